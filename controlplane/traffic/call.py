"""One request: its body, its stream as it arrives, and the verdict on it. No clock, no socket."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from controlplane.traffic.client import asked_s
from controlplane.traffic.results import Outcome
from controlplane.traffic.schedule import Request
from controlplane.traffic.text import Text

PATH = "/v1/chat/completions"
INSTANCE_HEADER = "x-twin-instance"
REQUEST_HEADER = "x-request-id"
IDS_A_SEED = 10**9
"""Requests that one seed has names for: more than a trace may have."""

KEPT_BYTES = 4096
"""Of a stream, only its last bytes are kept: the usage chunk and `[DONE]` fit several times."""
SHOWN_BYTES = 200
"""How much of an error's body goes into the results: enough to know it, too little to leak much."""

_CONTENT = re.compile(rb'"(?:content|text|reasoning|reasoning_content)"\s*:\s*"[^"]')
_USAGE = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
_STREAM_ERROR = re.compile(rb'data:\s*(\{\s*"error".*)')
_DONE = b"data: [DONE]"


def body(request: Request) -> bytes:
    """The JSON body of a streamed chat completion of exactly `output_tokens` tokens.

    `model` comes first: a gateway may read only the head of a body. `prompt_tokens` is an extension:
    the twin takes the prompt's length from it, so that no megabytes of text need to travel.
    """
    return json.dumps(
        {
            "model": request.model,
            "messages": [{"role": "user", "content": "Go on."}],
            "prompt_tokens": request.prompt_tokens,
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        separators=(",", ":"),
    ).encode()


def request_id(request: Request, seed: int, attempt: int) -> str:
    """`<model>-<n>-<attempt>`: no two attempts of plays with different seeds have the same.

    n counts a play's requests from `seed` times `IDS_A_SEED` on. A model's name is quoted where a header
    could not carry it.
    """
    return f"{quote(request.model, safe='/:@+')}-{seed * IDS_A_SEED + request.number}-{attempt}"


class Stream:
    """An answer's bytes as they arrive: when content first came, how many
    reads it took, and the last `KEPT_BYTES`.

    Nothing is parsed on the way, but for the `text` where one is wanted: a chunk is the unit of cost of
    the whole generator.
    """

    __slots__ = ("head", "reads", "tail", "text", "ttft_s")

    def __init__(self, text: Text | None = None) -> None:
        self.text = text
        self.reads = 0
        self.ttft_s: float | None = None
        self.head = b""
        self.tail = b""

    def feed(self, chunk: bytes, at_s: float) -> None:
        """Take `chunk`, received `at_s` seconds after the request was sent."""
        self.reads += 1
        if self.ttft_s is None:
            self.head += chunk
            if _CONTENT.search(self.head):
                self.ttft_s = at_s
        self.tail = (self.tail + chunk)[-KEPT_BYTES:]
        if self.text is not None:
            self.text.feed(chunk)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer amounts to. `tokens` is None where the server did not say.

    `again`: another attempt may end better; a whole answer with the wrong tokens, an error of the caller's
    own (4xx) and a time-out would not. `after_s`: the server's own word on when, None where it has none.
    """

    outcome: Outcome
    tokens: int | None = None
    error: str | None = None
    again: bool = False
    after_s: float | None = None


def verdict(status: int, headers: Mapping[str, str], stream: Stream, wanted: int) -> Verdict:
    """Judge an answer that ended as HTTP says it should. A 200 proves nothing by itself: a stream
    that was cut at the engine is a 200 too."""
    if status == 200:
        return _judge_stream(stream, wanted)
    error, asked = f"HTTP {status}: {_shown(stream.head)}", headers.get("Retry-After")
    if status in (429, 503) and asked is not None:
        return Verdict(Outcome.REFUSED, error=error, again=True, after_s=asked_s(asked))
    return Verdict(Outcome.FAILED, error=error, again=status >= 500)


def _judge_stream(stream: Stream, wanted: int) -> Verdict:
    usage = _USAGE.findall(stream.tail)
    tokens = int(usage[-1]) if usage else None
    if (error := _break(stream.tail)) is not None:
        return Verdict(Outcome.FAILED, tokens, error, again=True)
    if (error := _flaw(stream, tokens, wanted)) is not None:
        return Verdict(Outcome.FAILED, tokens, error)
    return Verdict(Outcome.OK, tokens)


def _break(tail: bytes) -> str | None:
    """Why the answer is not whole."""
    if found := _STREAM_ERROR.search(tail):
        return f"error in the stream: {_shown(found[1])}"
    return None if tail.rstrip().endswith(_DONE) else "the stream ended without [DONE]"


def _flaw(stream: Stream, tokens: int | None, wanted: int) -> str | None:
    """What is wrong with a whole answer."""
    if tokens is None:
        return "the stream has no usage, so its tokens cannot be checked"
    if tokens != wanted:
        return f"{tokens} tokens; wanted {wanted}"
    return None if stream.text is None else stream.text.flaw


def _shown(text: bytes) -> str:
    return text[:SHOWN_BYTES].decode("utf-8", "replace").strip()
