"""One line of the log: what it says, and what is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.door.line import LONGEST, Malformed, Outcome, outcome, parse


def raw(**changes: object) -> bytes:
    """A line as the gateway writes it."""
    whole: dict[str, object] = {
        "pid": 7,
        "at_ms": 1_800_000_000_000,
        "arrived_ms": "1800000000000",
        "ended_ms": "1800000001503",
        "pool": "chat-8b",
        "server": "chat-8b-03",
        "class": "-",
        "status": 200,
        "termination": "----",
        "wait_ms": 12,
        "ttft_ms": "507",
        "total_ms": 1503,
    }
    return json.dumps(whole | changes).encode()


def test_a_line_says_who_served_it_and_what_its_caller_saw() -> None:
    line = parse(raw())
    assert (line.pool, line.slot, line.class_, line.outcome) == ("chat-8b", "chat-8b-03", "default", "ok")
    assert (line.wait_s, line.ttft_s, line.total_s) == (0.012, 0.507, 1.503)
    assert (line.pid, line.arrived_at, line.ended_at) == (7, 1_800_000_000.0, 1_800_000_001.503)


def test_a_line_of_an_older_configuration_says_no_end_and_is_a_line() -> None:
    """It was written before the stamp was."""
    older = json.loads(raw())
    del older["ended_ms"]
    assert parse(raw()).ended_at is not None
    assert parse(json.dumps(older).encode()).ended_at is None


def test_what_was_not_reached_is_absent_and_not_zero() -> None:
    line = parse(
        raw(server="<NOSRV>", status=503, termination="sQ--", wait_ms=60_000, ttft_ms="", total_ms=-1)
    )
    assert (line.slot, line.ttft_s, line.total_s) == ("none", None, None)


@pytest.mark.parametrize(
    ("status", "termination", "expected"),
    [
        (200, "----", Outcome.OK),
        (200, "SD--", Outcome.CUT),  # the engine broke off an answer that had begun
        (200, "sD--", Outcome.CUT),  # it fell silent within one
        (200, "KD--", Outcome.CUT),  # a person ended it at the gateway
        (200, "DD--", Outcome.CUT),  # its server was found down
        (200, "PR--", Outcome.OK),  # the gateway's own list of models
        (200, "CD--", Outcome.LEFT),
        (-1, "CQ--", Outcome.LEFT),
        (400, "CH--", Outcome.LEFT),
        (503, "PR--", Outcome.REFUSED),  # the queue is full
        (503, "sQ--", Outcome.REFUSED),  # the wait ran out
        (503, "SC--", Outcome.FAILED),  # no engine took the connection
        (502, "SH--", Outcome.FAILED),
        (504, "sH--", Outcome.FAILED),
        (500, "----", Outcome.FAILED),
        (404, "PR--", Outcome.INVALID),
        (422, "----", Outcome.INVALID),
        (200, "", Outcome.OK),
    ],
)
def test_status_and_termination_together_say_what_became_of_it(
    status: int, termination: str, expected: Outcome
) -> None:
    """A truncated answer has the status of a whole one."""
    assert outcome(status, termination) is expected


@pytest.mark.parametrize(
    "line",
    [
        b"",
        raw()[:-3],
        b"[1]",
        b"\xff\xfe",
        b"[" * 5000,
        b"x" * (LONGEST + 1),
        raw(status="200"),
        raw(status=True),
        raw(status=-2),
        raw(status=99),
        raw(status=600),
        raw(status=10**30),
        raw(total_ms=float("nan")),
        raw(total_ms=float("inf")),
        raw(total_ms=1e300),
        raw(arrived_ms="1e18"),
        raw(wait_ms=[1]),
        raw(ttft_ms="soon"),
        raw(pool="x" * 65),
        raw(server="a\nb"),
        raw(pool=None),
    ],
    ids=lambda line: str(line[:24]),
)
def test_what_is_no_line_of_ours_is_said_to_be_none(line: bytes) -> None:
    parse(raw())
    with pytest.raises(Malformed):
        parse(line)


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reader(line: bytes) -> None:
    try:
        parse(line)
    except Malformed:
        return
