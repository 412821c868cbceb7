"""A client that comes back, against a server on loopback that breaks each attempt as told."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.traffic.call import request_id
from controlplane.traffic.client import JITTER, LONGEST_ASKED_S, Client, Retry, asked_s
from controlplane.traffic.player import Player, Settings
from controlplane.traffic.results import Outcome, Result
from controlplane.traffic.schedule import Request, Schedule, merged
from controlplane.traffic.summary import counts
from controlplane.traffic.text import Text
from controlplane.traffic.trace import Trace
from tests.traffic.stub import DONE, SLOT, Stub, delta, eventually, serving, usage


def plan(client: Client, *models: str) -> Schedule:
    """One request to each model, all due at once, told apart by their prompts' lengths."""
    parts = [
        (model, Trace(np.array([0.0]), np.array([at + 1]), np.array([8]))) for at, model in enumerate(models)
    ]
    return merged(parts, [client] * len(parts))


def play(client: Client, *models: str, **how: Any) -> tuple[list[Result], Stub]:
    """The results in the order of `models`, and what the server saw."""

    async def run() -> tuple[list[Result], Stub]:
        results: list[Result] = []
        async with serving() as stub:
            chosen = Settings(stub.url, **{"for_s": 0.0, **how})
            await Player(chosen, plan(client, *models), results.append).play()
        return sorted(results, key=lambda result: result.prompt_tokens), stub

    return asyncio.run(run())


def twice(wait_s: float = 0.0) -> Client:
    return Client(Retry(2, wait_s))


@pytest.mark.parametrize(
    "broken", ["cut", "no-done", "empty", "stream-error", "reset", "busy", "down", "broken"]
)
def test_an_attempt_that_broke_is_made_again_and_its_request_is_ok(broken: str) -> None:
    [once], _ = play(Client(), f"{broken},ok")
    assert once.outcome is not Outcome.OK
    [again], stub = play(twice(), f"{broken},ok")
    assert (again.outcome, again.attempts, again.status, again.error) == (Outcome.OK, 2, 200, None)
    assert (again.instance, again.tokens) == (SLOT, 8)
    assert len(stub.bodies) == 2
    assert counts([again])["retried"] == 1


@pytest.mark.parametrize("broken", ["short", "no-usage", "nobody", "moved"])
def test_what_another_attempt_would_not_mend_is_sent_once(broken: str) -> None:
    [result], stub = play(Client(Retry(8)), f"{broken},ok")
    assert (result.outcome, result.attempts, len(stub.bodies)) == (Outcome.FAILED, 1, 1)


def test_a_request_ends_as_its_last_attempt_does() -> None:
    [enough, short, refused], _ = play(Client(Retry(3)), "cut,down,ok", "cut,down,cut,ok", "cut,cut,busy,ok")
    assert (enough.outcome, enough.attempts) == (Outcome.OK, 3)
    assert (short.outcome, short.attempts, short.status) == (Outcome.FAILED, 3, 200)
    assert (refused.outcome, refused.attempts, refused.status) == (Outcome.REFUSED, 3, 503)
    assert counts([enough, short, refused]) == {
        "sent": 3,
        "ok": 1,
        "refused": 1,
        "failed": 1,
        "faulted": 0,
        "unfinished": 0,
        "retried": 6,
    }


def test_a_gateway_that_is_not_there_is_tried_as_often_as_allowed() -> None:
    async def run() -> list[Result]:
        results: list[Result] = []
        async with serving() as stub:
            gone = stub
        await Player(Settings(gone.url, 0.0), plan(Client(Retry(3)), "ok"), results.append).play()
        return results

    [result] = asyncio.run(run())
    assert (result.outcome, result.attempts, result.status) == (Outcome.FAILED, 3, None)


def test_times_count_from_the_first_attempt_and_hold_the_wait() -> None:
    [result], _ = play(twice(wait_s=0.05), "down,ok")
    assert result.ttft_s is not None
    assert 0.05 <= result.ttft_s <= result.total_s
    assert result.sent_s < 0.05 + result.total_s


def stopped(client: Client, model: str, due: Callable[[Player, Stub], bool]) -> Result:
    """The one result of a play that is stopped as soon as it is `due`; until then there is none."""

    async def run() -> Result:
        results: list[Result] = []
        async with serving() as stub:
            playing = Player(Settings(stub.url, 0.0), plan(client, model), results.append)
            task = asyncio.create_task(playing.play())
            await eventually(lambda: due(playing, stub))
            assert results == []
            playing.stop()
            await task
        [result] = results
        return result

    return asyncio.run(run())


def test_an_attempt_under_way_when_the_play_stops_is_unfinished_and_the_earlier_ones_are_retried() -> None:
    result = stopped(Client(Retry(8)), "cut,down,held", lambda _, stub: len(stub.bodies) == 3)
    assert (result.outcome, result.attempts, result.status) == (Outcome.UNFINISHED, 3, None)
    assert counts([result])["retried"] == 2


def test_a_request_that_waits_when_the_play_stops_has_failed_as_its_last_attempt_did() -> None:
    """That attempt is nobody's retry: it is in `failed`, and only there."""
    result = stopped(twice(wait_s=3600.0), "down,ok", lambda playing, _: playing.reads > 0)
    assert (result.outcome, result.status, result.attempts) == (Outcome.FAILED, 503, 1)
    assert counts([result])["retried"] == 0


KINDS = ["ok", "cut", "no-done", "reset", "busy", "down", "broken", "short", "nobody"]
FINAL = {"ok", "short", "nobody"}
ENDS = {"ok": Outcome.OK, "busy": Outcome.REFUSED}


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), min_size=1, max_size=8),
    st.integers(1, 5),
)
def test_every_request_has_one_line_and_every_attempt_one_place(told: list[list[str]], most: int) -> None:
    """Whatever breaks, and however often."""
    results, stub = play(Client(Retry(most)), *(",".join(kinds) for kinds in told))
    assert [result.prompt_tokens for result in results] == list(range(1, len(told) + 1))
    for kinds, result in zip(told, results, strict=True):
        endless = [*kinds, *[kinds[-1]] * most]
        last = next(at for at, kind in enumerate(endless) if kind in FINAL or at + 1 == most)
        assert result.attempts == last + 1
        assert result.outcome is ENDS.get(endless[last], Outcome.FAILED)
    counted = counts(results)
    assert counted["sent"] == counted["ok"] + counted["refused"] + counted["failed"] == len(told)
    assert counted["sent"] + counted["retried"] == len(stub.bodies)


# -- waits -----------------------------------------------------------------------------------------


@given(
    st.floats(0, 3600),
    st.none() | st.floats(0, 1e9),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_shorter_than_either_side_asked_and_hardly_longer(
    wait_s: float, asked: float | None, luck: float, more: float
) -> None:
    retry = Retry(8, wait_s)
    least = max(wait_s, min(asked or 0.0, LONGEST_ASKED_S))
    assert least <= retry.pause_s(asked, luck) <= (1 + JITTER) * least
    assert retry.pause_s(asked, min(luck, more)) <= retry.pause_s(asked, max(luck, more))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 1.5 ", 1.5),
        (None, None),
        ("", None),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
def test_a_retry_after_is_seconds_or_nothing(header: str | None, seconds: float | None) -> None:
    assert asked_s(header) == seconds


def test_waits_are_the_same_for_the_same_seed_and_differ_from_request_to_request() -> None:
    from controlplane.traffic.call import Verdict
    from controlplane.traffic.player import _Call

    def waits(seed: int) -> list[float]:
        requests = [Request(0.0, "m", 1, 1, number, twice(1.0)) for number in range(20)]
        broken = Verdict(Outcome.FAILED, again=True)
        return [_Call(request, seed, sent=0.0, attempts=1).pause_s(broken) for request in requests]

    assert waits(3) == waits(3)
    assert waits(3) != waits(4)
    assert len(set(waits(3))) == 20


# -- names and hashes ------------------------------------------------------------------------------


def test_an_attempt_is_named_and_a_whole_text_hashed_where_that_is_asked_for() -> None:
    [result], stub = play(Client(Retry(3), hashed=True), "cut,down,ok", seed=7)
    names = [f"cut%2Cdown%2Cok-7000000000-{attempt}" for attempt in (1, 2, 3)]
    assert stub.names == names
    assert result.request_id == names[-1]
    assert result.sha256 == hashlib.sha256(b"eight tokens").hexdigest()


def test_nothing_is_named_or_hashed_where_nobody_asks() -> None:
    [result], stub = play(Client(), "ok")
    assert stub.names == [None]
    assert (result.request_id, result.sha256) == (None, None)


@pytest.mark.parametrize("broken", ["cut", "short", "busy", "nobody"])
def test_an_answer_that_is_not_whole_has_no_hash(broken: str) -> None:
    [result], _ = play(Client(hashed=True), broken)
    assert result.sha256 is None
    assert result.error


def test_an_event_that_is_no_chunk_is_a_failure_where_the_text_is_hashed() -> None:
    [plain], _ = play(Client(), "garbled")
    assert plain.outcome is Outcome.OK
    [hashed], _ = play(Client(hashed=True), "garbled")
    assert (hashed.outcome, hashed.sha256) == (Outcome.FAILED, None)
    assert "an event that is no chunk" in (hashed.error or "")


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 10**8 - 1), st.integers(1, 100)), unique=True))
def test_no_two_attempts_have_the_same_name(attempts: list[tuple[int, int, int]]) -> None:
    names = [request_id(Request(0.0, "m", 1, 1, number), seed, attempt) for seed, number, attempt in attempts]
    assert len(set(names)) == len(names)


def test_a_model_s_name_that_no_header_could_carry_is_quoted() -> None:
    assert request_id(Request(0.0, "meta/llama-3.1:8b", 1, 1, 12), 0, 1) == "meta/llama-3.1:8b-12-1"
    assert request_id(Request(0.0, "a\r\nb é", 1, 1, 0), 0, 1) == "a%0D%0Ab%20%C3%A9-0-1"


@given(st.lists(st.text(st.characters(codec="utf-8"))), st.lists(st.integers(1, 40)))
def test_the_hash_is_that_of_the_whole_text_however_the_bytes_are_cut(
    texts: list[str], cuts: list[int]
) -> None:
    sent = b"".join([delta(role="assistant"), *(delta(content=text) for text in texts), usage(8), DONE])
    text = Text()
    for cut in cuts:
        text.feed(sent[:cut])
        sent = sent[cut:]
    text.feed(sent)
    assert text.flaw is None
    assert text.sha256() == hashlib.sha256("".join(texts).encode()).hexdigest()


@pytest.mark.parametrize(
    "event", ["[]", "7", '{"choices": 7}', '{"choices": [{"delta": {"content": 7}}]}', "{"]
)
def test_what_is_no_chunk_is_a_flaw_and_not_an_error(event: str) -> None:
    text = Text()
    text.feed(f"data: {event}\n".encode()[:-1])
    assert text.flaw is None
    text.feed(b"\n")
    assert text.flaw is not None
