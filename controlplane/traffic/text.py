"""The text of a streamed answer, hashed as it comes: whether a stream that was whole was also right."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_DONE = b"[DONE]"


class Text:
    """Takes an answer's bytes, however they are cut, and hashes the content of all its chunks.

    `flaw`: the first event that is no chunk of a chat completion, in words; None where all are.
    """

    __slots__ = ("_half", "_hash", "flaw")

    def __init__(self) -> None:
        self._half = b""
        self._hash = hashlib.sha256()
        self.flaw: str | None = None

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. A line's beginning waits for its end."""
        *lines, self._half = (self._half + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (data := line[5:].strip()) != _DONE:
                self._take(data)

    def sha256(self) -> str:
        """SHA-256 (hex) of the UTF-8 bytes of `choices[].delta.content`, in order of arrival."""
        return self._hash.hexdigest()

    def _take(self, data: bytes) -> None:
        try:
            self._hash.update(_content(json.loads(data)).encode())
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            self.flaw = self.flaw or f"an event that is no chunk: {type(error).__name__}: {error}"


def _content(chunk: Any) -> str:
    """The usage chunk has no choice, the role chunk no content: both are the empty text."""
    return "".join(choice.get("delta", {}).get("content") or "" for choice in chunk.get("choices", ()))
