"""From a rule to the record: real Prometheus, real Alertmanager, our endpoint, a record on disk.

Nothing stands in between but what `trimtab rules` prints; only times are short.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from controlplane.adapters.alertmanager.config import PagingPlan, alertmanager_config
from controlplane.adapters.memory.metrics import SILENCE
from controlplane.adapters.prometheus.config import ScrapePlan, prometheus_config
from controlplane.adapters.sql.open import Record, open_record
from controlplane.adapters.sql.pages import SqlPages
from controlplane.adapters.sql.reader import Page, PageFilter
from controlplane.domain.ids import CycleKind
from controlplane.loop.runner import Beat, Health
from controlplane.ports import Notified, Unavailable
from controlplane.settings import SecretRef
from controlplane.telemetry.exporter import Exporter, Told
from controlplane.telemetry.http import Endpoint
from controlplane.telemetry.webhook import Webhook
from tests.adapters.sql.records import answer, made, weight
from tests.loop.world import World
from tests.support import answers, eventually, free_port, running
from tests.telemetry.notifications import TOKEN

RULES = Path(__file__).resolve().parents[2] / "alerts/compiled/loop.yaml"
BLIND_CYCLES = 10

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on PATH"),
    pytest.mark.skipif(
        shutil.which("prometheus-alertmanager") is None, reason="prometheus-alertmanager is not on PATH"
    ),
]


@dataclass
class Flaky:
    """The record, which is away at first."""

    inner: SqlPages
    faults: int = 1
    calls: list[int] = field(default_factory=list)

    def keep(self, notified: Sequence[Notified], at: float) -> Sequence[Notified]:
        self.calls.append(len(notified))
        if len(self.calls) <= self.faults:
            raise Unavailable("the database did not do it: database is locked")
        return self.inner.keep(notified, at)


class Controller:
    """A loop over a world of stand-ins, its real page, and its real record."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.record = record
        self.prometheus = ""
        self.world = World().settled()
        self.told = Told("demo")
        self.token = folder / "alerts-token"
        self.token.write_text(TOKEN)
        self.pages = Flaky(SqlPages(record.engine))
        health = Health(self.world.clock, {CycleKind.WEIGHTS: Beat(5.0, self.world.clock.monotonic())})
        webhook = Webhook(SecretRef(file=self.token), self.pages, "demo", time.time, self.told.paged)
        self.endpoint = Endpoint("127.0.0.1", 0, Exporter(self.told, health), health, webhook)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.endpoint.port}"

    def cycle(self) -> None:
        self.told.tell(self.world.cycle())

    def seen(self, blind_cycles: int) -> bool:
        """Whether Prometheus has looked three times since the figure was this, so that rules have as well."""
        query = f"count_over_time((trimtab_blind_cycles == {blind_cycles})[20s:1s]) >= 3"
        asked = requests.get(f"{self.prometheus}/api/v1/query", params={"query": query}, timeout=5)
        return bool(asked.json()["data"]["result"])

    def on_record(self) -> list[Page]:
        """Pages about blindness: on a slow machine others may join, about what nobody scrapes here."""
        found = self.record.reader.pages(PageFilter(), 100)
        return [page for page in found if page.alertname == "TrimtabBlind"]


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    record = open_record(f"sqlite:///{tmp_path / 'trimtab.db'}", "demo")
    made_ = Controller(tmp_path, record)
    yield made_
    made_.endpoint.close()
    record.lease.release()
    record.close()


@pytest.fixture
def watched(controller: Controller, tmp_path: Path) -> Iterator[Controller]:
    """Prometheus scrapes it, and Alertmanager pages it, each second."""
    prometheus, alertmanager, folder = free_port(), free_port(), tmp_path
    controller.prometheus = f"http://127.0.0.1:{prometheus}"
    plan = PagingPlan(f"http://{controller.address}/alerts", "alerts-token", 0.0, 1.0, 1.0)
    (folder / "alertmanager.yml").write_text(alertmanager_config(plan))
    (folder / "engines.json").write_text("[]")
    scraped = ScrapePlan(
        "demo",
        "engines.json",
        "engines.json",
        {},
        1.0,
        [str(RULES)],
        controller.address,
        alertmanager=f"127.0.0.1:{alertmanager}",
    )
    (folder / "prometheus.yml").write_text(prometheus_config(scraped))
    pager: list[str | Path] = [
        "prometheus-alertmanager",
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{alertmanager}",
        "--cluster.listen-address=",
    ]
    watcher: list[str | Path] = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{prometheus}",
    ]
    with running(pager, folder / "pager.log"), running(watcher, folder / "watcher.log"):
        eventually(
            lambda: answers(alertmanager) and answers(prometheus), 20, because="the servers do not start"
        )
        yield controller


def test_a_rule_that_fires_is_one_page_however_often_it_is_told_until_it_ends(watched: Controller) -> None:
    """The record is away when the first notification comes: Alertmanager sends it again."""
    watched.world.metrics.say(SILENCE)
    for _ in range(BLIND_CYCLES - 1):
        watched.cycle()
    eventually(lambda: watched.seen(BLIND_CYCLES - 1), 30, because="Prometheus does not scrape")
    assert watched.on_record() == [], "nine blind cycles are none too many"

    watched.cycle()
    (page,) = eventually(watched.on_record, 30, because="no page arrives")
    assert (page.status, page.pool, page.severity) == ("firing", "chat-8b", "page")
    assert page.runbook == "alerts/runbooks/TrimtabBlind.md"
    assert "Pool chat-8b of demo has been below its coverage for 10 cycles" in page.summary
    assert len(watched.pages.calls) > 1, "the first was refused"

    told = page.notifications
    watched.record.ledger.record(
        made(answer(weight()), seq=1, at=page.id.starts_at + 1, kind=CycleKind.CAPACITY)
    )
    eventually(lambda: watched.on_record()[0].notifications > told + 1, 30, because="it is not told again")
    (again,) = watched.on_record()
    assert (again.id, again.status) == (page.id, "firing")
    assert str(again.decision) == "demo:capacity:1:chat-8b"

    watched.world.metrics.say(watched.world._seen)
    watched.cycle()
    eventually(lambda: watched.on_record()[0].status == "resolved", 30, because="its end does not arrive")
    (ended,) = watched.on_record()
    assert ended.id == page.id
    assert ended.resolved_at is not None
    assert ended.resolved_at > page.id.starts_at
