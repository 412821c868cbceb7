"""One real Prometheus for all tests of this room, scraping a fleet that the tests control."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from controlplane.adapters.engines.rules import recording_text
from controlplane.adapters.engines.template import Rendering
from controlplane.adapters.prometheus.asks import Mode
from controlplane.adapters.prometheus.client import PrometheusClient
from controlplane.adapters.prometheus.config import ScrapePlan, prometheus_config
from controlplane.adapters.prometheus.source import PrometheusSource
from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Missing, Reading, Signal
from controlplane.ports import MetricsAnswer
from controlplane.settings import PrometheusSettings
from tests.adapters.prometheus.policies import policies
from tests.adapters.prometheus.world import Engine, Pages, door, exposer, gpu, haproxy, idle
from tests.support import eventually, free_port, running

WINDOW_S, INTERVAL_S = 5.0, 1.0
RENDERING = Rendering(WINDOW_S, INTERVAL_S, cluster="demo")


class Fleet:
    """Targets, their texts, and the Prometheus that watches them."""

    def __init__(self, pages: Pages, directory: Path, url: str) -> None:
        self.pages, self.directory, self.url = pages, directory, url
        self.targets: dict[str, dict[str, Any]] = {}
        self.gpus: dict[str, str] = {}
        self._number = itertools.count(1)
        began = time.time() - 100
        pages.pages["/gpus"] = lambda: (200, "".join(self.gpus.values()))
        pages.pages["/door"] = lambda: (200, door("chat", time.time() - began))
        pages.pages["/gateway"] = lambda: (200, haproxy("chat", time.time() - began))

    def add(
        self, name: str, engine: Engine, instance: str = "", pod: str = "", node: str = "n1"
    ) -> InstanceId:
        """A target, from the next `publish` on; answers its instance id."""
        instance = instance or f"demo/{name}@s1"
        path = f"/engine-{next(self._number)}"
        self.pages.pages[path] = engine.answer
        labels = {
            "cluster": "demo",
            "pool": "chat",
            "instance_id": instance,
            "node": node,
            "namespace": "demo",
        }
        labels |= {"pod": pod or name, "__metrics_path__": path}
        self.targets[name] = {"targets": [self.pages.address], "labels": labels}
        return InstanceId(instance)

    def publish(self) -> None:
        """Write the target list in one step, as Prometheus may read at any moment."""
        draft = self.directory / "engines.tmp"
        draft.write_text(json.dumps(list(self.targets.values())))
        draft.rename(self.directory / "engines.json")

    def get(self, path: str, **parameters: str | float) -> Any:
        """A plain call of Prometheus' API: `data` of its answer."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=5)
        answer.raise_for_status()
        return answer.json()["data"]


class Watch:
    """The adapter under test against the real server."""

    def __init__(self, client: PrometheusClient, mode: Mode) -> None:
        self.source = PrometheusSource(client, "demo", INTERVAL_S, mode)
        self.policies: Policies = policies(window_s=WINDOW_S)

    def read(self, kind: CycleKind = CycleKind.WEIGHTS) -> MetricsAnswer:
        """One cycle's answer now."""
        return self.source.read(kind, self.policies, time.time())

    def reading(
        self, signal: Signal, instance: InstanceId, kind: CycleKind = CycleKind.CAPACITY
    ) -> Reading | None:
        """One reading now, None where the instance stands in no answer."""
        return self.read(kind).instances[signal].get(instance)

    def cause(self, signal: Signal, instance: InstanceId, kind: CycleKind = CycleKind.CAPACITY) -> str:
        """Why it is missing; `known` where it isn't, `absent` where nobody speaks of the instance."""
        found = self.reading(signal, instance, kind)
        return "absent" if found is None else found.cause if isinstance(found, Missing) else "known"


class Cast:
    """Who plays: each instance has one trouble of its own, or none."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.engines = {
            "busy": Engine(),
            "idle": idle(),
            "frozen": Engine(),
            "failing": Engine(),
            "leaving": Engine(),
            "late": Engine(sampled_ago_s=20.0),
            "sawtooth": Engine(sawtooth=True),
            "restarts": Engine(),
            "fast": Engine(e2e_s=0.1),
            "twice": Engine(),
            "flaky": Engine(flaky=True),
            "ragged": Engine(ragged=True),
        }
        self.ids = {name: fleet.add(name, engine) for name, engine in self.engines.items()}
        fleet.add("twice-again", self.engines["twice"], instance=self.ids["twice"], pod="twice", node="n2")
        self.ids["squatter"] = fleet.add("squatter", Engine(), pod="ragged")
        fleet.gpus |= {
            "busy": gpu("busy", 0, 80) + gpu("busy", 1, 40),
            "idle": gpu("idle", 2, 9.223372036854775794e18),
            "fast": gpu("fast", 3, 35) + gpu("fast", 4, 4294967295),
            "ragged": gpu("ragged", 5, 50),
            "nobody": gpu("", 6, 10),
        }
        fleet.publish()

    def __getitem__(self, name: str) -> InstanceId:
        return self.ids[name]

    def watched_for(self, scrapes: int) -> bool:
        """Whether every target was scraped that often."""
        query = 'min(count_over_time(up{job=~"engines|gpus|gateways|doors"}[1m])) and on() count(up) > 15'
        found = self.fleet.get("query", query=query)["result"]
        return bool(found) and int(found[0]["value"][1]) >= scrapes


@pytest.fixture(scope="session")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    """A Prometheus with our rules (window 5 s, scrapes each second) that has watched a fleet for a window."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not on PATH")
    directory = tmp_path_factory.mktemp("prometheus")
    port = free_port()
    with exposer() as pages:
        cast = Cast(Fleet(pages, directory, f"http://127.0.0.1:{port}"))
        _write(cast.fleet, pages)
        command = ["prometheus", f"--config.file={directory / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
        with running(command, directory / "log"):
            eventually(lambda: _ready(cast.fleet.url), 20, because="Prometheus does not get ready")
            eventually(lambda: cast.watched_for(7), 25, because="Prometheus does not scrape")
            yield cast


@pytest.fixture(scope="session")
def troubled(cast: Cast, client: PrometheusClient) -> MetricsAnswer:
    """Trouble begins for several at once; answers what was read the moment before."""
    before = Watch(client, Mode.RECORDED).read(CycleKind.CAPACITY)
    cast.engines["frozen"].freeze()
    cast.engines["failing"].status = 500
    cast.engines["restarts"].started = time.time() - 1
    del cast.fleet.targets["leaving"]
    cast.fleet.publish()
    return before


def _write(fleet: Fleet, pages: Pages) -> None:
    own: Mapping[str, Any] = {"targets": [pages.address], "labels": {"cluster": "demo", "node": "n1"}}
    gpus = {"targets": own["targets"], "labels": {**own["labels"], "__metrics_path__": "/gpus"}}
    (fleet.directory / "gpus.json").write_text(json.dumps([gpus]))
    (fleet.directory / "recording.yaml").write_text(recording_text(Rendering(WINDOW_S, INTERVAL_S)))
    plan = ScrapePlan(
        "demo",
        "engines.json",
        "gpus.json",
        {"g1": pages.address},
        INTERVAL_S,
        ["recording.yaml"],
        doors={"g1": pages.address},
    )
    text = prometheus_config(plan)
    (fleet.directory / "prometheus.yml").write_text(
        text.replace("job_name: gateways\n", "job_name: gateways\n  metrics_path: /gateway\n").replace(
            "job_name: doors\n", "job_name: doors\n  metrics_path: /door\n"
        )
    )


def _ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=1).status_code == 200
    except requests.RequestException:
        return False


@pytest.fixture(scope="session")
def client(cast: Cast) -> Iterator[PrometheusClient]:
    """Our client against the real server."""
    client = PrometheusClient(PrometheusSettings(cast.fleet.url, timeout_s=5.0, deadline_s=5.0))
    yield client
    client.close()


@pytest.fixture(params=[Mode.RECORDED, Mode.INLINE])
def watch(request: pytest.FixtureRequest, client: PrometheusClient) -> Watch:
    """The adapter in either mode."""
    return Watch(client, request.param)
