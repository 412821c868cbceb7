"""One request: its body, its stream as it arrives, and the verdict on it. No clock, no socket."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.traffic.results import Outcome
from controlplane.traffic.schedule import Request

PATH = "/v1/chat/completions"
INSTANCE_HEADER = "x-twin-instance"

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


class Stream:
    """An answer's bytes as they arrive: when content first came, how many
    reads it took, and the last `KEPT_BYTES`.

    Nothing is parsed on the way: a chunk is the unit of cost of the whole generator.
    """

    __slots__ = ("head", "reads", "tail", "ttft_s")

    def __init__(self) -> None:
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer amounts to. `tokens` is None where the server did not say."""

    outcome: Outcome
    tokens: int | None = None
    error: str | None = None


def verdict(status: int, headers: Mapping[str, str], stream: Stream, wanted: int) -> Verdict:
    """Judge an answer that ended as HTTP says it should. A 200 proves nothing by itself: a stream
    that was cut at the engine is a 200 too."""
    if status == 200:
        return _judge_stream(stream.tail, wanted)
    if status in (429, 503) and "Retry-After" in headers:
        return Verdict(Outcome.REFUSED, error=f"HTTP {status}: {_shown(stream.head)}")
    return Verdict(Outcome.FAILED, error=f"HTTP {status}: {_shown(stream.head)}")


def _judge_stream(tail: bytes, wanted: int) -> Verdict:
    usage = _USAGE.findall(tail)
    tokens = int(usage[-1]) if usage else None
    return (
        Verdict(Outcome.OK, tokens)
        if (error := _flaw(tail, tokens, wanted)) is None
        else Verdict(Outcome.FAILED, tokens, error)
    )


def _flaw(tail: bytes, tokens: int | None, wanted: int) -> str | None:
    if found := _STREAM_ERROR.search(tail):
        return f"error in the stream: {_shown(found[1])}"
    if not tail.rstrip().endswith(_DONE):
        return "the stream ended without [DONE]"
    if tokens is None:
        return "the stream has no usage, so its tokens cannot be checked"
    return None if tokens == wanted else f"{tokens} tokens; wanted {wanted}"


def _shown(text: bytes) -> str:
    return text[:SHOWN_BYTES].decode("utf-8", "replace").strip()
