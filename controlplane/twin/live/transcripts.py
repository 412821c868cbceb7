"""What the twin really wrote, by the caller's request id: whoever read a stream can be held against it."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol

KEPT_STREAMS = 5000
REQUEST_ID = re.compile(r"[!-~]{1,128}")
"""Ids that are echoed and kept; a header may hold anything."""


class Digest(Protocol):
    """A running hash."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""

    def hexdigest(self) -> str:
        """The hash of all bytes so far."""


@dataclass(slots=True)
class Transcript:
    """The text of one stream as it was written; `complete` once its end was written too."""

    complete: bool = False
    _digest: Digest = field(default_factory=hashlib.sha256)

    def add(self, text: str) -> None:
        """Text that is about to be written."""
        self._digest.update(text.encode())

    def told(self) -> dict[str, Any]:
        """As `/truth/streams` has it."""
        return {"sha256": self._digest.hexdigest(), "complete": self.complete}


@dataclass(slots=True)
class Transcripts:
    """The last `KEPT_STREAMS` streams whose caller named them."""

    _kept: OrderedDict[str, Transcript] = field(default_factory=OrderedDict)

    def begin(self, request_id: str | None) -> Transcript:
        """A stream begins; a second one of the same name takes the place of the first."""
        made = Transcript()
        if request_id is not None:
            self._kept[request_id] = made
            self._kept.move_to_end(request_id)
            if len(self._kept) > KEPT_STREAMS:
                self._kept.popitem(last=False)
        return made

    def told(self) -> dict[str, dict[str, Any]]:
        """Every kept stream by its request id."""
        return {name: each.told() for name, each in self._kept.items()}


def request_id(given: str | None) -> str | None:
    """The caller's id for a request; None where there is none that can be echoed."""
    return given if given is not None and REQUEST_ID.fullmatch(given) else None
