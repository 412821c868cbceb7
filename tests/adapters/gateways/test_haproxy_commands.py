"""From levels to commands, and from tables to views: the pure parts, exhaustively."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.gateways.haproxy import commands as cmd
from controlplane.adapters.gateways.haproxy.parse import UNLIMITED, Process, ServerRow
from controlplane.adapters.gateways.haproxy.view import next_epoch
from controlplane.domain.plan import ActionKind, ActionState
from tests.adapters.gateways.conftest import action

ROW = ServerRow("chat-8b", "s1", "127.0.0.1:1", False, False, 100, 8, 0, 0, 0)


def step(kind: ActionKind, level: int, server: ServerRow = ROW, ordinal: int = 0) -> cmd.Step:
    id_, one = action(kind, server.name, level, ordinal=ordinal)
    return cmd.Step(id_, one, server)


def texts(steps: Sequence[cmd.Step]) -> list[str]:
    return [command.text for command in cmd.commands(steps)]


def test_an_opened_server_gets_its_limit_before_and_once_more_after() -> None:
    """Before, or a burst would pass it; after, because `ready` does not wake the queue."""
    shut = replace(ROW, closed=True)
    batch = [step(ActionKind.OPEN, 1, shut), step(ActionKind.SET_LIMIT, 1, shut, 1)]
    assert texts(batch) == [
        "set maxconn server chat-8b/s1 1",
        "set server chat-8b/s1 state ready",
        "set maxconn server chat-8b/s1 1",
    ]


def test_who_leaves_leaves_first() -> None:
    other = replace(ROW, name="s2")
    assert texts([step(ActionKind.SET_WEIGHT, 5), step(ActionKind.CLOSE, 0, other, 1)]) == [
        "set server chat-8b/s2 state drain",
        "set server chat-8b/s1 weight 5",
    ]


def test_a_weight_that_leaves_zero_wakes_the_queue_and_another_does_not() -> None:
    asleep = replace(ROW, weight=0)
    assert texts([step(ActionKind.SET_WEIGHT, 5, asleep)])[1:] == ["set maxconn server chat-8b/s1 8"]
    assert texts([step(ActionKind.SET_WEIGHT, 5)])[1:] == []


def test_a_server_without_a_limit_is_not_given_one_to_wake_it() -> None:
    shut = replace(ROW, closed=True, limit=UNLIMITED)
    assert texts([step(ActionKind.OPEN, 1, shut)]) == ["set server chat-8b/s1 state ready"]


KINDS = st.sampled_from([ActionKind.SET_WEIGHT, ActionKind.SET_LIMIT, ActionKind.CLOSE, ActionKind.OPEN])


@given(st.lists(st.tuples(KINDS, st.integers(-(2**40), 2**40), st.booleans(), st.integers(0, 256))))
def test_no_batch_ever_sends_a_limit_below_one(rows: list[tuple[ActionKind, int, bool, int]]) -> None:
    steps = []
    for n, (kind, level, closed, weight) in enumerate(rows):
        server = replace(ROW, name=f"s{n}", closed=closed, weight=weight)
        one = step(kind, level, server, n)
        if not cmd.objection(one.action, server):
            steps.append(one)
    limits = [int(text.rsplit(" ", 1)[1]) for text in texts(steps) if text.startswith("set maxconn")]
    assert all(1 <= limit < UNLIMITED for limit in limits)


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.booleans(), st.integers(0, 3)), min_size=1),
    st.lists(st.tuples(st.integers(0, 5), KINDS, st.integers(0, 2))),
)
def test_a_pool_that_takes_traffic_keeps_a_weight_unless_it_is_closed(
    now: dict[int, tuple[bool, int]], wanted: list[tuple[int, ActionKind, int]]
) -> None:
    """B-126, for every batch: after the steps that are let through, some open server weighs something."""
    servers = {n: replace(ROW, name=f"s{n}", closed=shut, weight=w) for n, (shut, w) in now.items()}
    steps = [
        step(kind, 0 if kind is ActionKind.CLOSE else level, servers[n], ordinal)
        for ordinal, (n, kind, level) in enumerate(dict.fromkeys(wanted))
        if n in servers
    ]
    zeros = {s.id for s in steps if s.action.kind is ActionKind.SET_WEIGHT and s.action.level == 0}
    refused = cmd.starved(steps, tuple(servers.values()))
    assert refused in (frozenset(), frozenset(zeros))
    if refused:
        return
    after = {s.name: [s.weight, s.closed] for s in servers.values()}
    for s in steps:
        match s.action.kind:
            case ActionKind.SET_WEIGHT:
                after[s.server.name][0] = s.action.level
            case ActionKind.OPEN:
                after[s.server.name][1] = False
    for s in steps:
        if s.action.kind is ActionKind.CLOSE:
            after[s.server.name][1] = True
    assert not zeros or any(weight > 0 and not shut for weight, shut in after.values())


@pytest.mark.parametrize(
    ("replies", "after", "state", "what"),
    [
        ([""], replace(ROW, weight=37), ActionState.APPLIED, "read back"),
        (["No such server."], ROW, ActionState.REFUSED, "No such server."),
        (["", "Proxy is disabled."], replace(ROW, weight=37), ActionState.REFUSED, "Proxy is disabled."),
        ([""], replace(ROW, weight=0), ActionState.FAILED, "37 was accepted, 0 was read back"),  # B-125
        ([""], None, ActionState.FAILED, "vanished"),
    ],
)
def test_a_verdict_is_the_refusal_or_what_was_read_back(
    replies: list[str], after: ServerRow | None, state: ActionState, what: str
) -> None:
    found, why = cmd.verdict(step(ActionKind.SET_WEIGHT, 37), replies, after)
    assert found is state
    assert what in why


def test_capacity_is_not_a_gateways_business() -> None:
    _, one = action(ActionKind.SET_INSTANCES, "s1", 3)
    assert "no instances" in cmd.objection(one, ROW)


NOW = 1_000_000.0


def test_an_epoch_stays_while_the_clocks_wobble_and_the_process_lives() -> None:
    first = next_epoch(None, Process(7, 10, None), NOW)
    assert next_epoch(first, Process(7, 14, None), NOW + 5.4) == replace(first, uptime_s=14)


@pytest.mark.parametrize(
    ("process", "after_s"),
    [(Process(8, 11, None), 1.0), (Process(7, 0, None), 1.0), (Process(7, 3, None), 60.0)],
    ids=["another pid", "the same pid, younger", "the same pid, started later"],
)
def test_a_restart_is_another_epoch_even_with_the_same_pid(process: Process, after_s: float) -> None:
    """In a container the process has the same pid after each restart."""
    first = next_epoch(None, Process(7, 2, None), NOW)
    assert str(next_epoch(first, process, NOW + after_s)) != str(first)


def test_the_start_that_haproxy_states_is_believed() -> None:
    assert str(next_epoch(None, Process(7, 5, 1234), NOW)) == "7@1234"
