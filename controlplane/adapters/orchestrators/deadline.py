"""A call that ends in time, whatever the far side does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCall(Generic[T]):
    """Runs `work` in a thread of its own and waits for at most `seconds`.

    A socket's own timeout restarts with every byte, so a far side that trickles would hold
    a cycle for ever. At most one abandoned call lives at a time: while it does, the next
    is refused at once instead of piling up behind it.
    """

    def __init__(self, work: Callable[[], T], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._thread: threading.Thread | None = None

    def __call__(self) -> T:
        """Its result or exception. Raises TimeoutError at the deadline, and while one is abandoned."""
        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError("an earlier call still has no end")
        box: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(box,), daemon=True)
        self._thread.start()
        try:
            result, error = box.get(timeout=self._seconds)
        except queue.Empty:
            raise TimeoutError(f"no whole answer within {self._seconds:g} s") from None
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # without an error it is the work's own T

    def _run(self, box: queue.SimpleQueue[tuple[T | None, Exception | None]]) -> None:
        try:
            box.put((self._work(), None))
        except Exception as error:  # noqa: BLE001  # handed over to the caller's thread, whatever it is
            box.put((None, error))
