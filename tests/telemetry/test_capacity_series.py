"""What the controller says of GPUs, loans and places that were not found; absent where it is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.domain.fleet import Phase
from controlplane.domain.ids import CycleKind
from controlplane.domain.observation import Reach
from controlplane.domain.policy import Mode
from tests.domain.fleets import BATCH, CHAT, batch_policy, chat_policy, rules
from tests.loop.test_moves import GUEST, SLEEPER, Moving
from tests.telemetry.test_exporter import Page

WEIGHTS, CAPACITY = CycleKind.WEIGHTS, CycleKind.CAPACITY
GPUS, LOST = "trimtab_gpus", "trimtab_gpus_unaccounted"
LOANS, LOANED, SHORT = "trimtab_loans_open", "trimtab_loaned_gpus", "trimtab_capacity_short_gpus"


@pytest.fixture
def page() -> Page:
    """Four of chat at home, four of offline work in the buffer, and chat asleep beside it, in a surge."""
    return Page(Moving())


def by_pool(page: Page, name: str) -> dict[str, float]:
    return {dict(labels)["pool"]: value for labels, value in page.rows(name).items()}


def places(page: Page) -> dict[tuple[str, str], float]:
    rows = page.rows(GPUS)
    return {(dict(labels)["state"], dict(labels)["pool"]): value for labels, value in rows.items()}


def become(page: Page, *phases: tuple[str, Phase]) -> None:
    assert isinstance(page.world, Moving)
    for name, phase in phases:
        page.world.become(next(each for each in page.world.yard.instances if each == name), phase)


def test_each_gpu_is_counted_once_where_it_serves(page: Page) -> None:
    assert page.rows(GPUS) == page.rows(LOST) == {}, "before the first cycle nothing is known"
    page.cycle(WEIGHTS)
    assert places(page) == {
        ("pool", CHAT): 8.0,
        ("pool", BATCH): 4.0,
        ("buffer", ""): 4.0,
        ("unavailable", ""): 0.0,
    }
    become(page, (GUEST, Phase.ASLEEP), (SLEEPER, Phase.SERVING))
    page.cycle(WEIGHTS)
    assert (places(page)["pool", CHAT], places(page)["pool", BATCH]) == (9.0, 3.0)
    assert sum(places(page).values()) == 16.0
    assert page.rows(LOST) == {(): 0.0}


def test_a_broken_gpu_is_unavailable_and_no_longer_a_pools(page: Page) -> None:
    orchestrator = page.world.orchestrator
    home, spare = orchestrator.now.nodes
    orchestrator.now = replace(orchestrator.now, nodes=(replace(home, unavailable_gpus=3), spare))
    page.cycle(WEIGHTS)
    assert (places(page)["unavailable", ""], places(page)["pool", CHAT]) == (3.0, 5.0)
    assert sum(places(page).values()) == 16.0


def test_a_gpu_in_two_hands_is_unaccounted_and_so_is_one_on_a_node_that_nobody_knows(page: Page) -> None:
    become(page, (SLEEPER, Phase.SERVING))
    page.cycle(WEIGHTS)
    assert page.rows(LOST) == {(): 1.0}
    orchestrator = page.world.orchestrator
    _home, spare = orchestrator.now.nodes
    orchestrator.now = replace(orchestrator.now, nodes=(spare,))
    page.cycle(WEIGHTS)
    assert page.rows(LOST) == {(): 5.0}


def test_without_an_inventory_no_gpu_is_counted_and_none_is_said_to_be_missing(page: Page) -> None:
    page.cycle(CAPACITY)
    assert page.rows(GPUS)
    assert by_pool(page, SHORT)
    page.world.orchestrator.faults.down = "connection refused"
    page.cycle(CAPACITY)
    assert page.rows(GPUS) == page.rows(LOST) == page.rows(SHORT) == {}
    assert by_pool(page, LOANED) == {CHAT: 1.0, BATCH: 0.0}, "the record stands, whoever is silent"


def test_a_loan_counts_from_the_cycle_that_opens_it_until_the_one_that_closes_it(page: Page) -> None:
    page.cycle(WEIGHTS)
    assert by_pool(page, LOANS) == by_pool(page, LOANED) == {CHAT: 0.0, BATCH: 0.0}
    page.cycle(CAPACITY)
    opened = len(page.world.ledger.lent)
    assert opened > 0
    assert by_pool(page, LOANS) == by_pool(page, LOANED) == {CHAT: float(opened), BATCH: 0.0}
    page.cycle(WEIGHTS)
    assert by_pool(page, LOANS)[CHAT] == float(len(page.world.ledger.lent))


def test_loans_of_a_pool_whose_policy_is_gone_are_still_on_the_page(page: Page) -> None:
    page.cycle(CAPACITY)
    lent = by_pool(page, LOANED)[CHAT]
    assert lent > 0
    page.world.rules = rules(batch_policy())
    page.world.orchestrator.faults.down = "connection refused"
    page.cycle(WEIGHTS)
    assert by_pool(page, LOANED) == {CHAT: lent, BATCH: 0.0}


def crowded(page: Page, **changes: object) -> None:
    """Home alone is left, and half of it broken: whatever chat wants more has no place."""
    orchestrator = page.world.orchestrator
    home = replace(orchestrator.now.nodes[0], unavailable_gpus=4)
    members = tuple(each for each in orchestrator.now.instances if each.node == home.node_id)
    orchestrator.now = replace(orchestrator.now, nodes=(home,), instances=members)
    page.world.rules = rules(chat_policy(**changes))


def test_gpus_for_which_there_was_no_place_are_counted_until_the_next_capacity_cycle(page: Page) -> None:
    roomy = page.world.orchestrator.now
    crowded(page)
    page.cycle(CAPACITY)
    assert by_pool(page, SHORT) == {CHAT: 1.0}
    page.world.orchestrator.now = roomy
    page.cycle(WEIGHTS)
    assert by_pool(page, SHORT) == {CHAT: 1.0}, "the fast clock asks for no place"
    page.cycle(CAPACITY)
    assert by_pool(page, SHORT) == {CHAT: 0.0}


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_a_pool_that_may_not_move_by_itself_is_not_said_to_lack_nothing(page: Page, mode: Mode) -> None:
    crowded(page)
    page.cycle(CAPACITY)
    assert by_pool(page, SHORT)[CHAT] > 0
    crowded(page, capacity_mode=mode)
    page.cycle(CAPACITY)
    assert page.rows(SHORT) == {}


def test_where_instances_cannot_be_asked_for_no_place_is_looked_for(page: Page) -> None:
    page.cycle(CAPACITY)
    assert page.rows(SHORT)
    page.world.orchestrator.reach = Reach.REPLICAS
    page.cycle(CAPACITY)
    assert page.rows(SHORT) == {}
    assert page.rows(GPUS)


def test_where_no_node_is_known_no_gpu_is_counted_and_none_is_missing(page: Page) -> None:
    """Instances on nodes that nobody knows would page, where the list of instances has no nodes at all."""
    page.cycle(WEIGHTS)
    assert page.rows(LOST) == {(): 0.0}
    orchestrator = page.world.orchestrator
    orchestrator.now = replace(orchestrator.now, nodes=())
    page.cycle(WEIGHTS)
    assert page.rows(GPUS) == page.rows(LOST) == {}
