"""The engine model's laws, whatever arrives when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.twin.engine.costs import BLOCK_TOKENS, Costs, blocks_for
from controlplane.twin.engine.engine import Engine, Event, EventKind

COSTS = Costs(
    d0_ms=6.4,
    d1_ms=0.012,
    d2_ms=0.000044,
    p1_ms=0.0175,
    f=1.08,
    ttft_overhead_ms=22.0,
    kv_tokens=4096,
    max_num_seqs=4,
    max_batched_tokens=512,
)
FAR = 1e9

lengths = st.tuples(st.integers(1, 900), st.integers(1, 60), st.floats(0.0, 5.0))
traffic = st.lists(lengths, min_size=1, max_size=25)
memories = st.integers(64, 400).map(lambda blocks: blocks * BLOCK_TOKENS)


def play(engine: Engine, arrivals: list[tuple[int, int, float]]) -> list[Event]:
    """Everything that happens from the first arrival until the engine is empty."""
    events: list[Event] = []
    for key, (prompt, output, at) in enumerate(sorted(arrivals, key=lambda each: each[2])):
        for step in engine.advance(at):
            events += step.events
        engine.submit(key, prompt, output, at)
    for step in engine.advance(FAR):
        events += step.events
    return events


@given(traffic, memories)
def test_every_request_gets_exactly_its_tokens_and_gives_its_memory_back(
    arrivals: list[tuple[int, int, float]], kv_tokens: int
) -> None:
    engine = Engine(replace(COSTS, kv_tokens=kv_tokens))
    wanted = {k: each[1] for k, each in enumerate(sorted(arrivals, key=lambda each: each[2]))}
    events = play(engine, arrivals)
    made = dict.fromkeys(wanted, 0)
    for event in events:
        made[event.request] += event.kind is EventKind.TOKEN
    assert made == wanted
    assert sorted(e.request for e in events if e.kind is EventKind.FINISHED) == sorted(wanted)
    assert engine.free_blocks == engine.costs.blocks
    assert engine.next_end is None


@given(traffic, memories)
def test_seats_and_blocks_are_never_overdrawn_and_time_never_goes_back(
    arrivals: list[tuple[int, int, float]], kv_tokens: int
) -> None:
    engine = Engine(replace(COSTS, kv_tokens=kv_tokens))
    for key, (prompt, output, _at) in enumerate(arrivals):
        engine.submit(key, prompt, output, 0.0)
    last = 0.0
    for step in engine.advance(FAR):
        assert last <= step.start < step.end
        last = step.end
        assert len(engine.running) <= engine.costs.max_num_seqs
        held = sum(each.blocks for each in engine.running)
        assert engine.free_blocks >= 0
        assert held + engine.free_blocks == engine.costs.blocks


@given(traffic)
def test_requests_are_admitted_first_come_first_served(arrivals: list[tuple[int, int, float]]) -> None:
    engine = Engine(replace(COSTS, kv_tokens=200 * BLOCK_TOKENS))
    first = [event.request for event in play(engine, arrivals) if event.kind is EventKind.SCHEDULED]
    assert first == sorted(first)


def test_a_lone_request_takes_its_prompt_and_one_step_a_token() -> None:
    engine = Engine(COSTS)
    engine.submit(0, 500, 3, 10.0)
    steps = list(engine.advance(FAR))
    assert [(step.prompt_tokens, step.decoding) for step in steps] == [(500, 1), (0, 1), (0, 1)]
    assert steps[0].end - 10.0 == pytest.approx(1.08 * (6.4 + 0.0175 * 500) / 1000)
    assert steps[1].end - steps[1].start == pytest.approx(1.08 * (6.4 + 0.012 + 0.000044 * 501) / 1000)


def test_a_long_prompt_is_chunked_and_others_decode_meanwhile() -> None:
    engine = Engine(COSTS)
    engine.submit(0, 100, 50, 0.0)
    assert next(engine.advance(FAR)).decoding == 1
    engine.submit(1, 1200, 2, engine.next_end or 0.0)
    mixed = [step for step in engine.advance(FAR) if step.prompt_tokens and step.decoding]
    assert [step.prompt_tokens for step in mixed] == [511, 511, 178]


def test_half_the_speed_takes_twice_the_time() -> None:
    ends = []
    for speed in (1.0, 0.5):
        engine = Engine(COSTS, speed)
        engine.submit(0, 64, 8, 0.0)
        ends.append([step.end for step in engine.advance(FAR)][-1])
    assert ends[1] == pytest.approx(2 * ends[0])


def test_memory_that_runs_out_preempts_the_youngest_and_loses_nothing() -> None:
    engine = Engine(replace(COSTS, kv_tokens=blocks_for(200) * BLOCK_TOKENS))
    engine.submit(0, 90, 80, 0.0)
    engine.submit(1, 80, 80, 0.0)
    events = [event for step in engine.advance(FAR) for event in step.events]
    assert {event.request for event in events if event.kind is EventKind.PREEMPTED} == {1}
    assert [e.request for e in events if e.kind is EventKind.FINISHED] == [0, 1]
    assert sum(event.kind is EventKind.TOKEN for event in events) == 160


def test_an_aborted_request_leaves_at_the_end_of_its_step_and_makes_no_more_tokens() -> None:
    engine = Engine(COSTS)
    engine.submit(0, 100, 50, 0.0)
    engine.submit(1, 100, 50, 0.0)
    next(engine.advance(FAR))  # the second came while the first one's prompt was under way
    before = next(engine.advance(FAR))
    assert {event.request for event in before.events if event.kind is EventKind.TOKEN} == {0, 1}
    assert engine.abort(1)
    next(engine.advance(FAR))
    after = next(engine.advance(FAR))
    assert {event.request for event in after.events} == {0}
    assert not engine.abort(1)


def test_what_can_never_fit_is_refused_and_leaves_the_engine_as_it_was() -> None:
    engine = Engine(COSTS)
    with pytest.raises(ValueError, match="do not fit 4096"):
        engine.submit(0, 4096, 1, 0.0)
    assert engine.next_end is None
    assert not engine.waiting
