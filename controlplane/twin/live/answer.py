"""OpenAI-style requests in, streamed chunks out."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

CHARACTERS_A_TOKEN = 4
DEFAULT_OUTPUT = 128
LARGEST = 1_000_000
FIRST_NUMBERS = 100_000
DONE = b"data: [DONE]\n\n"


class BadRequest(Exception):
    """The body cannot be served; the text says which field and what is allowed."""

    status = 400
    kind = "BadRequestError"

    def body(self) -> dict[str, Any]:
        """The answer in the form that vLLM gives an error."""
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.status}}


class UnknownModel(BadRequest):
    """Another model than the one that is served; vLLM answers 404."""

    status = 404
    kind = "NotFoundError"


class Asleep(BadRequest):
    """Nothing is taken now: the engine sleeps, wakes or leaves."""

    status = 503
    kind = "ServiceUnavailableError"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a completion request comes to. Lengths in tokens."""

    model: str
    prompt_tokens: int
    output_tokens: int
    stream: bool
    usage: bool


def parse(raw: bytes, served: str) -> Asked:
    """Read a body for the model that is `served`.

    The fields `prompt_tokens` and `output_tokens` are extensions for traces: the prompt's length
    without its text, and the answer's without a model. null counts as absent. Raises BadRequest.
    """
    try:
        read = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not JSON, or nested too deeply") from error
    body = {key: value for key, value in read.items() if value is not None} if isinstance(read, dict) else {}
    if not isinstance(body.get("model"), str):
        raise BadRequest("model: a name is required")
    if body["model"] != served:
        raise UnknownModel(f"model: {body['model']!r} is not served here, {served!r} is")
    longest = body.get("max_tokens", body.get("max_completion_tokens", DEFAULT_OUTPUT))
    prompt = body["prompt_tokens"] if "prompt_tokens" in body else _prompt_length(body)
    options = body.get("stream_options")
    return Asked(
        model=body["model"],
        prompt_tokens=_count(prompt, "prompt_tokens"),
        output_tokens=_count(body.get("output_tokens", longest), "max_tokens"),
        stream=body.get("stream") is True,
        usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _count(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise BadRequest(f"{field}: {value!r} is not a whole number in 1..{LARGEST}")
    return value


def _prompt_length(body: dict[str, Any]) -> int:
    text = body.get("messages", body.get("prompt"))
    if text is None:
        raise BadRequest("messages (or prompt, or prompt_tokens) is required")
    length = len(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False))
    return max(1, length // CHARACTERS_A_TOKEN)


@dataclass(frozen=True, slots=True)
class Writer:
    """Chunks of one answer. Only what changes is formatted for each chunk.

    Tokens are numbered from `first` on, so that no two answers, and no two parts of one, read alike.
    """

    chat: bool
    key: str
    model: str
    created: int
    first: int = 0

    def text(self, made: int, count: int) -> str:
        """`count` tokens, after `made` of them."""
        start = self.first + made
        return "".join(f" t{number}" for number in range(start, start + count))

    def tokens(self, text: str) -> bytes:
        """A chunk with this text."""
        body = f'"delta":{{"content":"{text}"}}' if self.chat else f'"text":"{text}"'
        return self._chunk(f'{{"index":0,{body},"finish_reason":null}}')

    def last(self) -> bytes:
        """The chunk that says why it ended."""
        body = '"delta":{}' if self.chat else '"text":""'
        return self._chunk(f'{{"index":0,{body},"finish_reason":"length"}}')

    def usage(self, asked: Asked) -> bytes:
        """The chunk with the token counts."""
        return self._chunk("", f',"usage":{json.dumps(_usage(asked))}')

    def whole(self, asked: Asked) -> dict[str, Any]:
        """The answer that is not streamed."""
        text = self.text(0, asked.output_tokens)
        choice = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        kind = "chat.completion" if self.chat else "text_completion"
        return {
            "id": self.key,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "finish_reason": "length", **choice}],
            "usage": _usage(asked),
        }

    def _chunk(self, choice: str, more: str = "") -> bytes:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return (
            f'data: {{"id":"{self.key}","object":"{kind}","created":{self.created},'
            f'"model":{json.dumps(self.model)},"choices":[{choice}]{more}}}\n\n'
        ).encode()


def first_number(name: str) -> int:
    """The number of the first token of an answer of this name."""
    return zlib.crc32(name.encode()) % FIRST_NUMBERS


def _usage(asked: Asked) -> dict[str, int]:
    total = asked.prompt_tokens + asked.output_tokens
    return {
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": asked.output_tokens,
        "total_tokens": total,
    }
