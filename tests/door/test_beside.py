"""What is asked of the gateway beside its lines: answers by hand, and a clock by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from controlplane.adapters.gateways.haproxy.parse import QUESTIONS
from controlplane.adapters.gateways.haproxy.runtime import Answer, Deadline
from controlplane.door.beside import PRECISELY, Beside
from controlplane.door.lost import LOOKS, Losses
from controlplane.door.tally import Tally
from controlplane.ports import Unavailable
from tests.door.test_line import raw

NOW_S = 1_800_000_000.0
STAT = "# pxname,svname,type,qcur,scur,stot,dreq,econ,slim\n"
STATES = "1\n# be_name srv_name srv_addr srv_port srv_admin_state srv_op_state srv_uweight\n"


@dataclass
class Gateway:
    """A runtime API that answers as it is told."""

    ended: int = 0
    times: str = f"Uptime_sec: 100.000000\nStart_time_sec: {NOW_S - 100:.6f}"
    answers: bool = True
    asked: list[Sequence[str]] = field(default_factory=list)

    def ask(self, questions: Sequence[str], deadline: Deadline) -> tuple[str, ...]:
        self.asked.append(questions)
        if not self.answers:
            raise Unavailable("nobody there")
        stat = f"{STAT}chat-8b,chat-8b-03,2,0,0,{self.ended},0,0,4\n"
        stat += f"chat-8b,BACKEND,1,0,0,{self.ended},0,0,\n"
        states = f"{STATES}chat-8b chat-8b-03 127.0.0.1 80 0 2 1\n"
        return "Pid: 7\nUptime_sec: 100", states, stat, self.times

    def set(self, settings: Sequence[str], questions: Sequence[str], deadline: Deadline) -> Answer:
        raise AssertionError("nothing is set from here")

    def tell(self, commands: Sequence[str], deadline: Deadline) -> str:
        raise AssertionError("nothing is told from here")


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def beside(gateway: Gateway) -> Beside:
    return Beside(gateway, Tally(), Losses(NOW_S), lambda: NOW_S)


def values(beside: Beside, name: str) -> list[float]:
    return [one.value for family in beside.collect() for one in family.samples if one.name == name]


def test_a_line_that_never_comes_is_lost_after_some_looks(gateway: Gateway, beside: Beside) -> None:
    beside.look()
    gateway.ended = 3
    for _ in range(2):
        beside.tally.take(raw(ended_ms=str(int(1000 * NOW_S))))
    for _ in range(LOOKS - 1):
        beside.look()
    assert values(beside, "trimtab_door_lost_lines_total") == [0.0]
    beside.look()
    assert values(beside, "trimtab_door_lost_lines_total") == [1.0]
    assert gateway.asked[0] == (*QUESTIONS, PRECISELY), "all in one look"


def test_a_silent_gateway_takes_back_no_loss_and_holds_no_line_up(gateway: Gateway, beside: Beside) -> None:
    beside.look()
    gateway.ended = 1
    for _ in range(LOOKS):
        beside.look()
    beside.tally.take(raw(server="new"))
    gateway.answers = False
    assert beside.tally.waiting() == 1
    beside.look()
    assert beside.tally.waiting() == 0
    assert values(beside, "trimtab_door_gateway_up") == [0.0]
    assert values(beside, "trimtab_door_queue") == []
    assert values(beside, "trimtab_door_lost_lines_total") == [1.0]


@pytest.mark.parametrize("start", ["", "Start_time_sec: ", "Start_time_sec: -1", "Start_time_sec: soon"])
def test_a_gateway_that_does_not_say_when_it_began_is_not_understood(
    start: str, gateway: Gateway, beside: Beside
) -> None:
    beside.look()
    assert values(beside, "trimtab_door_gateway_up") == [1.0]
    gateway.times = f"Uptime_sec: 100.0\n{start}"
    beside.look()
    assert values(beside, "trimtab_door_gateway_up") == [0.0]
    assert "show info float: Start_time_sec is" in beside.trouble
