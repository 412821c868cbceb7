"""What the controller says of itself: nothing that is gone, nothing that is not known, and it parses."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from alerts.rules import capacity as capacity_alerts
from alerts.rules import loop as loop_alerts
from alerts.rules import pools as pool_alerts
from controlplane.domain.fleet import Phase
from controlplane.domain.gateway import ServerState
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.observation import SourceHealth
from controlplane.domain.plan import ActionState
from controlplane.domain.policy import Policies, PoolKind, Slo
from controlplane.domain.readings import Known, PoolSignal, Signal
from controlplane.loop.cycle import Report
from controlplane.loop.runner import Beat, Health
from controlplane.ports import InvalidConfig, MetricsAnswer
from controlplane.telemetry import catalog
from controlplane.telemetry.catalog import Kind
from controlplane.telemetry.exporter import Exporter, Told
from controlplane.telemetry.http import Endpoint
from tests.builders import Value, instances, inventory, policies, pool_policy, steady_pool
from tests.loop.world import CHAT, SLOW, World, answer

HOSTILE = 'chat"70b\\x\nand more'
WEIGHTS, CAPACITY = CycleKind.WEIGHTS, CycleKind.CAPACITY

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Page:
    """The controller's own page over a world: told after each cycle, read as text."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told = Told("demo")
        started = world.clock.monotonic()
        self.health = Health(world.clock, {WEIGHTS: Beat(5.0, started), CAPACITY: Beat(30.0, started)})
        self.exporter = Exporter(self.told, self.health)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self.exporter)

    def cycle(self, kind: CycleKind = WEIGHTS) -> Report:
        report = self.world.cycle(kind)
        self.told.tell(report)
        return report

    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def rows(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of one name, by their labels other than `cluster`."""
        return {
            tuple(
                sorted((key, value) for key, value in sample.labels.items() if key != "cluster")
            ): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
            if sample.name == name
        }

    def slots(self, name: str) -> list[str]:
        ids = [dict(labels)["instance_id"] for labels in self.rows(name)]
        return sorted(each.partition("/")[2].partition("@")[0] for each in ids)


@pytest.fixture
def page() -> Page:
    return Page(World().settled())


def test_before_the_first_cycle_only_what_is_known_has_a_value(page: Page) -> None:
    assert page.rows("trimtab_build_info")
    assert page.rows("trimtab_cycle_interval_seconds") == {
        (("kind", "capacity"),): 30.0,
        (("kind", "weights"),): 5.0,
    }
    for name in ("trimtab_weight", "trimtab_gateway_up", "trimtab_inventory_up", "trimtab_held"):
        assert page.rows(name) == {}


def test_series_of_an_instance_that_is_gone_are_gone_within_one_cycle(page: Page) -> None:
    """B-023."""
    page.cycle()
    assert page.slots("trimtab_weight") == [f"chat-8b-0{number}" for number in range(1, 5)]
    gone, world = page.world.members[1], page.world
    world.orchestrator.now = inventory([each for each in world.members if each != gone])
    del world.gateway.servers[CHAT][gone.instance_id]
    page.cycle()
    assert page.slots("trimtab_weight") == ["chat-8b-01", "chat-8b-03", "chat-8b-04"]
    assert page.slots("trimtab_limit_requests") == page.slots("trimtab_weight")
    assert "chat-8b-02" not in page.text()


def test_a_server_that_the_gateway_does_not_know_has_no_weight(page: Page) -> None:
    page.world.meddle(2, state=ServerState.ABSENT, weight=0, limit=0)
    page.cycle()
    assert page.slots("trimtab_weight") == ["chat-8b-01", "chat-8b-03", "chat-8b-04"]


def test_what_did_not_answer_is_down_and_its_figures_are_absent(page: Page) -> None:
    """B-023: unknown is never shown as healthy."""
    page.cycle()
    assert page.rows("trimtab_gateway_up") == {(("gateway", "edge"),): 1.0}
    assert page.rows("trimtab_inventory_up") == {(): 1.0}
    page.world.gateway.reads.down = "no such socket"
    page.world.orchestrator.faults.down = "connection refused"
    page.cycle()
    assert page.rows("trimtab_gateway_up") == {(("gateway", "edge"),): 0.0}
    assert page.rows("trimtab_inventory_up") == {(): 0.0}
    assert page.rows("trimtab_weight") == {}
    assert page.rows("trimtab_source_clock_skew_seconds") == {}


def test_hostile_label_values_hurt_nobody(page: Page) -> None:
    """B-040: quote, backslash and newline are escaped, and every other series is still there."""
    page.cycle()
    before = page.rows("trimtab_weight")
    world = page.world
    world.gateway.put(CHAT, replace(world.server(1), instance_id=InstanceId(HOSTILE)))
    world.gateway.servers[PoolName(HOSTILE)] = {}
    page.told.cluster = HOSTILE
    page.cycle()
    after = page.rows("trimtab_weight")
    assert len(after) == len(before) + 1
    assert HOSTILE in {dict(labels)["instance_id"] for labels in after}
    assert {
        sample.labels["cluster"]
        for family in text_string_to_metric_families(page.text())
        for sample in family.samples
        if sample.name == "trimtab_weight"
    } == {HOSTILE}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
@pytest.mark.parametrize("cluster", ["demo", HOSTILE])
def test_prometheus_own_check_finds_no_fault(page: Page, cluster: str) -> None:
    """B-040."""
    page.told.cluster = cluster
    page.world.speed = SLOW
    page.cycle()
    page.cycle(CAPACITY)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page.text(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_family_is_on_the_page_with_its_help_and_its_labels(page: Page) -> None:
    page.world.speed = SLOW
    page.cycle()
    page.cycle(CAPACITY)
    found = {family.name: family for family in text_string_to_metric_families(page.text())}
    for family in catalog.FAMILIES:
        shown = found[family.name.removesuffix("_total")]
        assert (shown.documentation, shown.type) == (family.help, family.kind)
        assert family.help.endswith(".")
        for sample in shown.samples:
            assert set(sample.labels) == set(family.labels)
    assert len(found) == len(catalog.FAMILIES) == len(catalog.BY_NAME)


def test_only_counters_end_in_total() -> None:
    for family in catalog.FAMILIES:
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert re.fullmatch(r"trimtab_[a-z_]+", family.name)
        assert family.labels[0] == "cluster"


def test_alerts_speak_of_families_and_labels_that_exist() -> None:
    alerts = (*loop_alerts.ALERTS, *pool_alerts.ALERTS, *capacity_alerts.ALERTS)
    used = {name for alert in alerts for name in re.findall(r"trimtab_[a-z_]+", alert.expr)}
    assert used
    assert used <= set(catalog.BY_NAME)
    for alert in alerts:
        names = re.findall(r"trimtab_[a-z_]+", alert.expr)
        labels = {label for name in names for label in catalog.BY_NAME[name].labels}
        assert set(re.findall(r"\$labels\.([a-z_]+)", alert.summary)) <= labels


def test_no_series_stands_twice(page: Page) -> None:
    """Two reports of two kinds are on one page; a duplicate would cost Prometheus the whole scrape."""
    for kind in (WEIGHTS, CAPACITY, WEIGHTS):
        page.cycle(kind)
    seen = [line.rpartition(" ")[0] for line in page.text().splitlines() if not line.startswith("#")]
    assert len(seen) == len(set(seen))


def test_both_kinds_of_cycle_have_their_query_count(page: Page) -> None:
    """A series that comes and goes with whoever ran last would tear every graph."""
    page.cycle(WEIGHTS)
    page.cycle(CAPACITY)
    assert page.rows("trimtab_queries") == {(("kind", "capacity"),): 4.0, (("kind", "weights"),): 4.0}
    assert set(page.rows("trimtab_cycle_duration_seconds")) == set(page.rows("trimtab_queries"))


def test_blind_cycles_are_those_of_the_newest_cycle_whatever_its_kind(page: Page) -> None:
    """Both kinds share one memory; the older report must not hide the newer one's figure."""
    page.cycle(WEIGHTS)
    page.cycle(CAPACITY)
    assert page.rows("trimtab_blind_cycles") == {(("pool", "chat-8b"),): 0.0}
    page.world.metrics.say(MetricsAnswer({}, {}, SourceHealth(4, (("running", "no answer"),))))
    page.cycle(WEIGHTS)
    assert page.rows("trimtab_blind_cycles") == {(("pool", "chat-8b"),): 1.0}
    assert page.rows("trimtab_held") == {(("pool", "chat-8b"),): 1.0}


def test_a_pool_whose_policy_is_gone_is_gone_from_the_page(page: Page) -> None:
    """Its memory is kept, in case the policy comes back; its series are not (B-023)."""
    page.cycle(WEIGHTS)
    page.cycle(CAPACITY)
    assert dict(page.rows("trimtab_blind_cycles")).keys() == {(("pool", "chat-8b"),)}
    page.world.rules = policies(pool_policy("vision"))
    page.cycle(WEIGHTS)
    page.cycle(CAPACITY)
    assert page.rows("trimtab_blind_cycles").keys() == {(("pool", "vision"),)}
    assert page.rows("trimtab_held").keys() == {(("pool", "vision"),)}


def test_requests_that_only_the_gateway_counts_are_shown(page: Page) -> None:
    """B-021: gateway 7 above what the engines know is 7, not a guess; agreement is 0."""
    page.cycle(CAPACITY)
    assert page.rows("trimtab_gateway_unconfirmed_requests") == {(("pool", "chat-8b"),): 0.0}
    more = 7.0

    def stuck(kind: CycleKind, rules: Policies, now: float) -> MetricsAnswer:
        said = page.world._seen(kind, rules, now)
        counted = said.pools[CHAT][PoolSignal.GATEWAY_IN_FLIGHT]
        assert isinstance(counted, Known)
        readings = {
            **said.pools[CHAT],
            PoolSignal.GATEWAY_IN_FLIGHT: replace(counted, value=counted.value + more),
        }
        return replace(said, pools={CHAT: readings})

    page.world.metrics.say(stuck)
    page.cycle(CAPACITY)
    assert page.rows("trimtab_gateway_unconfirmed_requests") == {(("pool", "chat-8b"),): more}


def test_rejected_samples_and_failed_queries_add_up(page: Page) -> None:
    """B-007: a single impossible sample is countable."""
    page.cycle()
    assert page.rows("trimtab_rejected_samples_total") == {(("kind", "weights"),): 0.0}
    assert page.rows("trimtab_query_failures_total") == {}
    health = SourceHealth(4, (("running", "no answer in 2 s"),), rejected_samples=2)
    page.world.metrics.say(MetricsAnswer({}, {}, health))
    page.cycle()
    page.cycle()
    assert page.rows("trimtab_rejected_samples_total") == {(("kind", "weights"),): 4.0}
    assert page.rows("trimtab_query_failures_total") == {(("kind", "weights"), ("query", "running")): 2.0}


def test_cycles_decisions_and_actions_are_counted_by_how_they_ended(page: Page) -> None:
    page.world.speed = SLOW
    done = page.cycle()
    page.world.ledger.break_next("record")
    page.cycle()
    page.told.broken(WEIGHTS)
    assert page.rows("trimtab_cycles_total") == {
        (("kind", "weights"), ("result", result)): 1.0 for result in ("broken", "done", "failed")
    }
    assert page.rows("trimtab_decisions_total") == {
        (("kind", "weights"), ("outcome", "change"), ("pool", "chat-8b")): 1.0
    }
    actions = page.rows("trimtab_actions_total")
    assert sum(actions.values()) == len(done.outcomes) > 0
    assert {dict(labels)["state"] for labels in actions} == {ActionState.APPLIED}


def test_a_telling_in_the_middle_of_a_scrape_does_not_break_it(page: Page) -> None:
    """The loop's thread counts while the endpoint's thread reads."""
    page.cycle()
    rows: Iterator[object] = page.exporter.collect()
    for kind in ("one", "two", "three"):
        next(rows)
        page.told._count(catalog.CYCLES, kind, "done")
        page.told._count(catalog.DECISIONS, "weights", kind, "held")
    assert len(list(rows)) == len(catalog.FAMILIES) - 3


@pytest.fixture
def endpoint(page: Page) -> Iterator[Endpoint]:
    served = Endpoint("127.0.0.1", 0, page.exporter, page.health)
    yield served
    served.close()


def get(endpoint: Endpoint, path: str, accept: str = "text/plain") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}{path}", headers={"accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10.0) as reply:  # noqa: S310
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_page_is_served_in_both_formats(page: Page, endpoint: Endpoint) -> None:
    page.cycle()
    status, text = get(endpoint, "/metrics")
    assert status == 200
    assert {family.name for family in text_string_to_metric_families(text)} >= {"trimtab_weight"}
    status, text = get(endpoint, "/metrics", "application/openmetrics-text; version=1.0.0")
    assert status == 200
    found = openmetrics_families(text)  # type: ignore[no-untyped-call]
    assert {family.name for family in found} >= {"trimtab_weight", "trimtab_cycles"}


def test_health_is_served_with_its_status(page: Page, endpoint: Endpoint) -> None:
    assert get(endpoint, "/healthz")[0] == 200
    page.world.clock.pass_s(15.5)
    status, body = get(endpoint, "/healthz")
    assert status == 503
    assert "the weights loop" in body
    assert "the capacity loop" not in body


def test_any_other_path_is_not_here_and_says_what_is(endpoint: Endpoint) -> None:
    status, body = get(endpoint, "/nothing")
    assert (status, body) == (404, "/metrics, /healthz and /alerts are here\n")


def test_a_port_that_is_taken_is_a_wrong_setting_and_is_named(page: Page, endpoint: Endpoint) -> None:
    with pytest.raises(InvalidConfig, match=rf"listen: cannot listen on 127.0.0.1:{endpoint.port}: "):
        Endpoint("127.0.0.1", endpoint.port, page.exporter, page.health)


def test_a_failed_cycle_shows_no_figures_of_its_own(page: Page) -> None:
    page.cycle()
    page.world.ledger.break_next("next_seq")
    assert page.world.ledger.faults["next_seq"]
    report = page.cycle()
    assert report.failure
    assert page.rows("trimtab_weight") == {}
    assert page.rows("trimtab_held") == {}
    assert page.rows("trimtab_cycles_total")[("kind", "weights"), ("result", "failed")] == 1.0


def test_policies_in_force_are_valid_until_told_otherwise(page: Page) -> None:
    assert page.rows("trimtab_policies_valid") == {(): 1.0}
    page.told.policies_valid = False
    assert page.rows("trimtab_policies_valid") == {(): 0.0}


def uneven(page: Page, *values: Value, kind: CycleKind = CAPACITY) -> None:
    """One cycle in which the pool's instances read so on their better counter."""

    def said(kind: CycleKind, rules: Policies, now: float) -> MetricsAnswer:
        world = page.world
        changes = {Signal.SM_ACTIVE: values}
        return answer(
            steady_pool(members=world.members, running=world.running, kind=kind, now=now, changes=changes)
        )

    page.world.metrics.say(said)
    page.cycle(kind)


def of(page: Page, name: str, what: str = "utilisation") -> dict[str, float]:
    """Values of one kind of imbalance, by the counter or the instance."""
    rows = [(dict(labels), value) for labels, value in page.rows(name).items()]
    return {row.get("counter") or row["instance_id"]: value for row, value in rows if row["of"] == what}


def test_the_imbalance_of_the_last_capacity_cycle_is_shown_with_its_counter_and_the_hottest(
    page: Page,
) -> None:
    uneven(page, 0.4, 0.4, 0.8, 0.4)
    assert of(page, "trimtab_imbalance_ratio") == {"sm_active": pytest.approx(0.3)}
    assert of(page, "trimtab_hottest_instance_ratio") == {
        page.world.members[2].instance_id: pytest.approx(0.8)
    }
    page.cycle(WEIGHTS)
    assert of(page, "trimtab_imbalance_ratio") == {"sm_active": pytest.approx(0.3)}
    assert of(page, "trimtab_imbalance_ratio", "busyness")["busyness"] == pytest.approx(0.0)


def test_below_one_running_request_an_instance_imbalance_is_no_number_and_not_zero(page: Page) -> None:
    page.world.running = 1.0
    uneven(page, 0.4, 0.4, 0.8, 0.4)
    assert of(page, "trimtab_imbalance_ratio")["sm_active"] == pytest.approx(0.3)
    page.world.running = 0.9
    uneven(page, 0.4, 0.4, 0.8, 0.4)
    assert math.isnan(of(page, "trimtab_imbalance_ratio")["sm_active"])
    assert of(page, "trimtab_hottest_instance_ratio") == {}


def test_an_imbalance_that_is_not_known_has_no_series(page: Page) -> None:
    """Unlike one that is known to be undefined: the alerts bridge the former, and heed the latter."""
    uneven(page, 0.4, 0.4, 0.8, 0.4)
    assert of(page, "trimtab_imbalance_ratio")
    page.world.metrics.say(MetricsAnswer({}, {}, SourceHealth(4, (("running", "no answer"),))))
    page.cycle(CAPACITY)
    assert of(page, "trimtab_imbalance_ratio") == {}
    page.world.ledger.break_next("next_seq")
    page.cycle(CAPACITY)
    assert of(page, "trimtab_imbalance_ratio") == {}


@pytest.mark.parametrize(
    ("phase", "spread"), [(Phase.SERVING, 0.6), (Phase.DRAINING, 0.0), (Phase.LOADING, 0.0)]
)
def test_what_drains_or_loads_is_not_in_the_imbalance_shown(phase: Phase, spread: float) -> None:
    members = instances(4)
    page = Page(World((*members[:3], replace(members[3], phase=phase))))
    uneven(page, 0.8, 0.8, 0.8, 0.0)
    assert of(page, "trimtab_imbalance_ratio")["sm_active"] == pytest.approx(spread)


def test_a_number_to_follow_is_shown_once_it_was_ordered_and_not_before(page: Page) -> None:
    assert page.rows("trimtab_desired_replicas") == {}
    page.told.desired[CHAT] = 14
    assert page.rows("trimtab_desired_replicas") == {(("pool", "chat-8b"),): 14.0}


def test_targets_are_those_of_the_policies_in_force_before_any_cycle(page: Page) -> None:
    assert page.rows("trimtab_pool_target_seconds") == {}
    slo = Slo(ttft_p95_s=1.5, tpot_p95_s=0.04, e2e_p95_s=20.0)
    page.told.policies = policies(
        replace(pool_policy("chat-8b"), slo=slo), replace(pool_policy("batch"), kind=PoolKind.OFFLINE)
    )
    shown = {
        (row["pool"], row["pool_kind"], row["signal"]): value
        for labels, value in page.rows("trimtab_pool_target_seconds").items()
        for row in (dict(labels),)
    }
    assert {key[2]: value for key, value in shown.items() if key[:2] == ("chat-8b", "online")} == {
        "ttft_p95": 1.5,
        "tpot_p95": 0.04,
        "e2e_p95": 20.0,
    }
    assert {key[2] for key in shown if key[:2] == ("batch", "offline")} >= {"ttft_p95", "tpot_p95"}
    page.told.policies = policies(pool_policy("vision"))
    assert {dict(labels)["pool"] for labels in page.rows("trimtab_pool_target_seconds")} == {"vision"}
