"""Faults that a stand-in can be ordered to show."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controlplane.ports import Unavailable


@dataclass(slots=True)
class Faults:
    """Errors for the next calls, in order; after them all is well again, unless `down`."""

    down: str = ""
    _next: deque[Exception | None] = field(default_factory=deque)

    def then(self, *errors: Exception | None) -> None:
        """Order the outcomes of the next calls: an error to raise, or None for a good call."""
        self._next.extend(errors)

    def unavailable(self, times: int = 1, reason: str = "ordered: unavailable") -> None:
        """The next `times` calls find nobody."""
        self.then(*[Unavailable(reason)] * times)

    def check(self) -> None:
        """Raise what is due for this call."""
        if self.down:
            raise Unavailable(self.down)
        error = self._next.popleft() if self._next else None
        if error is not None:
            raise error
