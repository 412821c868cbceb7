"""What was written by request id: over real sockets, and bounded."""

from __future__ import annotations

import hashlib
import http.client
import json

import pytest

from controlplane.twin.live import transcripts
from controlplane.twin.live.transcripts import Transcripts, request_id
from tests.support import eventually
from tests.twin.world import CHAT, Twin, body

pytestmark = pytest.mark.xdist_group("twin")


def read(twin: Twin, slot: str, name: str, tokens: int) -> tuple[str | None, str]:
    """The id that came back with a stream, and its text."""
    connection = http.client.HTTPConnection(twin.address(slot), timeout=20)
    connection.request("POST", CHAT, json.dumps(body(tokens)), {"x-request-id": name})
    with connection.getresponse() as answer:
        events = [each.removeprefix("data: ") for each in answer.read().decode().split("\n\n")]
        echoed = answer.headers["x-request-id"]
    connection.close()
    chunks = [json.loads(each) for each in events if each.startswith("{")]
    return echoed, "".join(
        each["choices"][0]["delta"].get("content", "") for each in chunks if each["choices"]
    )


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_stream_reads_as_the_twin_says_that_it_wrote_it_and_no_two_read_alike(twin: Twin) -> None:
    assert not {"r-1", "r-2"} & set(twin.json("/truth/streams"))
    texts = {}
    for name in ("r-1", "r-2"):
        echoed, texts[name] = read(twin, "chat-8b-11", name, 50)
        assert echoed == name
    told = twin.json("/truth/streams")
    for name, text in texts.items():
        assert text.count(" t") == 50
        assert told[name] == {"sha256": sha256(text), "complete": True}
    assert texts["r-1"] != texts["r-2"]
    assert read(twin, "chat-8b-12", "r-1", 50)[1] == texts["r-1"]


def test_a_stream_that_was_cut_is_not_complete(twin: Twin) -> None:
    slot = "chat-8b-12"
    connection = http.client.HTTPConnection(twin.address(slot), timeout=20)
    connection.request("POST", CHAT, json.dumps(body(5000)), {"x-request-id": "r-3"})
    assert connection.getresponse().read(20)
    eventually(lambda: "r-3" in twin.json("/truth/streams"), 10)
    connection.close()
    eventually(lambda: twin.value(slot, "vllm:num_requests_running") == 0, 10)
    assert twin.json("/truth/streams")["r-3"]["complete"] is False


def test_only_the_last_streams_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "KEPT_STREAMS", 2)
    kept = Transcripts()
    for name in ("a", "b"):
        kept.begin(name)
    assert list(kept.told()) == ["a", "b"]
    for again in (None, "a", "c"):
        kept.begin(again)
    assert list(kept.told()) == ["a", "c"]


@pytest.mark.parametrize("given", [None, "", "two words", "\udcff", "x" * 129, "ümlaut"])
def test_an_id_that_cannot_be_echoed_is_none(given: str | None) -> None:
    assert request_id(given) is None
    assert request_id("x" * 128) == "x" * 128
