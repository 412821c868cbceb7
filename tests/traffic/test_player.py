"""The player against a server on loopback. No test measures time."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from controlplane.traffic.player import Player, Settings
from controlplane.traffic.results import Outcome, Result, ResultWriter
from controlplane.traffic.schedule import Schedule, merged
from controlplane.traffic.trace import Trace
from tests.traffic.stub import SLOT, Stub, eventually, serving


def schedule(*models: str, tokens: int = 8) -> Schedule:
    """One request to each model, all due at once."""
    one = Trace(np.array([0.0]), np.array([100]), np.array([tokens]))
    return merged([(model, one) for model in models])


def player(stub: Stub, plan: Schedule, sink: Callable[[Result], None], **settings: Any) -> Player:
    return Player(Settings(stub.url, **{"for_s": 0.0, "grace_s": 30.0, **settings}), plan, sink)


def play(*models: str, tokens: int = 8) -> list[Result]:
    """Play one request to each model and answer the results in the order of `models`."""

    async def run() -> list[Result]:
        results: list[Result] = []
        async with serving() as stub:
            await player(stub, schedule(*models, tokens=tokens), results.append).play()
        return sorted(results, key=lambda result: models.index(result.model))

    return asyncio.run(run())


def test_a_whole_stream_with_the_wanted_tokens_is_ok() -> None:
    [result] = play("ok")
    assert result.outcome is Outcome.OK
    assert (result.status, result.tokens, result.instance, result.error) == (200, 8, SLOT, None)
    assert result.ttft_s is not None
    assert 0 < result.ttft_s <= result.total_s


@pytest.mark.parametrize("model", ["refused", "limited"])
def test_a_limit_that_says_when_to_come_back_is_a_refusal(model: str) -> None:
    [result] = play(model)
    assert (result.outcome, result.tokens, result.ttft_s) == (Outcome.REFUSED, None, None)


@pytest.mark.parametrize(
    ("model", "status", "error"),
    [
        ("short", 200, "7 tokens; wanted 8"),
        ("no-done", 200, "without [DONE]"),
        ("no-usage", 200, "no usage"),
        ("stream-error", 200, "out of memory"),
        ("empty", 200, "without [DONE]"),
        ("cut", 200, "ClientPayloadError"),
        ("reset", None, ""),
        ("down", 503, "HTTP 503"),
        ("broken", 500, "HTTP 500"),
        ("moved", 307, "HTTP 307"),
        ("nobody", 404, "no model nobody"),
    ],
)
def test_anything_else_is_a_failure_with_its_error(model: str, status: int | None, error: str) -> None:
    """B-049: a request that broke stays in the results with what it cost its caller."""
    [result] = play(model)
    assert result.outcome is Outcome.FAILED
    assert result.status == status
    assert error in (result.error or "")
    assert result.error
    assert result.total_s > 0


def test_an_error_body_is_cut_short() -> None:
    """B-190: a peer's text is quoted, not copied."""
    [result] = play("broken")
    assert len(result.error or "") < 300


def test_one_bad_answer_leaves_the_others_alone() -> None:
    outcomes = [result.outcome for result in play("ok", "reset", "cut", "nobody", "short", "refused")]
    assert outcomes == ["ok", "failed", "failed", "failed", "failed", "refused"]


def test_requests_leave_at_their_time_while_no_answer_comes() -> None:
    """Open loop: with all answers withheld, every request is open at the server together."""

    async def run() -> tuple[int, list[Result]]:
        results: list[Result] = []
        trace = Trace(np.linspace(0.0, 0.2, 40), np.full(40, 10), np.full(40, 8))
        async with serving() as stub:
            task = asyncio.create_task(player(stub, merged([("held", trace)]), results.append).play())
            await eventually(lambda: stub.open_now == 40)
            assert results == []
            stub.release.set()
            await task
            return stub.open_most, results

    open_most, results = asyncio.run(run())
    assert open_most == 40
    assert [result.outcome for result in results] == ["ok"] * 40


def test_what_is_open_when_the_grace_ends_is_unfinished_and_not_ok() -> None:
    async def run() -> list[Result]:
        results: list[Result] = []
        async with serving() as stub:
            await player(stub, schedule("ok", "held"), results.append, grace_s=0.2).play()
        return results

    assert {result.model: result.outcome for result in asyncio.run(run())} == {
        "ok": Outcome.OK,
        "held": Outcome.UNFINISHED,
    }


def test_stop_sends_nothing_more_and_keeps_what_it_has() -> None:
    async def run() -> tuple[list[Result], int]:
        results: list[Result] = []
        late = Trace(np.array([0.0, 3600.0]), np.array([1, 1]), np.array([8, 8]))
        async with serving() as stub:
            playing = player(stub, merged([("held", late)]), results.append, for_s=3600.0)
            task = asyncio.create_task(playing.play())
            await eventually(lambda: stub.open_now == 1)
            playing.stop()
            await task
            return results, len(stub.bodies)

    results, seen = asyncio.run(run())
    assert seen == 1
    assert [result.outcome for result in results] == [Outcome.UNFINISHED]


def test_an_answer_that_takes_too_long_is_a_failure() -> None:
    async def run() -> list[Result]:
        results: list[Result] = []
        async with serving() as stub:
            await player(stub, schedule("held"), results.append, timeout_s=0.2).play()
        return results

    [result] = asyncio.run(run())
    assert (result.outcome, result.status) == (Outcome.FAILED, None)
    assert "timeout" in (result.error or "")


def test_a_gateway_that_is_not_there_fails_each_request() -> None:
    async def run() -> list[Result]:
        results: list[Result] = []
        async with serving() as stub:
            gone = stub
        await player(gone, schedule("ok"), results.append).play()
        return results

    [result] = asyncio.run(run())
    assert (result.outcome, result.status) == (Outcome.FAILED, None)
    assert "ClientConnectorError" in (result.error or "")


def test_a_results_file_that_cannot_be_written_ends_the_play() -> None:
    """B-191: an error inside a background task is not swallowed."""

    def full(result: Result) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        async with serving() as stub:
            await player(stub, schedule("ok"), full).play()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run())
    assert caught.group_contains(OSError, match="No space left")


def sent(run: Coroutine[Any, Any, Stub]) -> tuple[bytes, dict[str, Any]]:
    stub = asyncio.run(run)
    return stub.raw[0], stub.bodies[0]


def test_the_model_comes_first_in_the_body_and_the_lengths_are_the_trace_s() -> None:
    async def run() -> Stub:
        async with serving() as stub:
            await player(stub, schedule("ok", tokens=33), lambda _: None).play()
        return stub

    raw, body = sent(run())
    assert raw.startswith(b'{"model":"ok",')
    assert body["prompt_tokens"] == 100
    assert body["max_tokens"] == 33
    assert body["stream"] is True
    assert body["ignore_eos"] is True


def test_results_are_lines_of_json_with_null_for_what_is_not_known() -> None:
    file = io.StringIO()

    async def run() -> None:
        async with serving() as stub:
            await player(stub, schedule("reset"), ResultWriter(file)).play()

    asyncio.run(run())
    row = json.loads(file.getvalue())
    assert row["outcome"] == "failed"
    assert row["ttft_s"] is None
    assert row["status"] is None
    assert row["tokens"] is None
