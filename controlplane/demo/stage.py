"""Sets the stage: files, then processes in the order in which they need each other."""

from __future__ import annotations

import json
import os
import random
import secrets
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controlplane.adapters.alertmanager.config import PagingPlan, alertmanager_config
from controlplane.adapters.engines.rules import recording_text
from controlplane.adapters.engines.template import Rendering
from controlplane.adapters.gateways.haproxy import files, members
from controlplane.adapters.gateways.haproxy.layout import GatewayLayout
from controlplane.adapters.gateways.haproxy.render import render
from controlplane.adapters.orchestrators.twin import TwinOrchestrator
from controlplane.adapters.policyfiles.profilefile import load_profiles
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.adapters.prometheus.config import ScrapePlan, prometheus_config
from controlplane.binaries import find
from controlplane.demo import alerts, door, fleet
from controlplane.demo.fleet import Places
from controlplane.demo.processes import Child, Crew, DemoError
from controlplane.demo.profiles import perturbed, profile_text, truth
from controlplane.demo.record import RecordFile
from controlplane.demo.timeline import UNTIMED_S
from controlplane.domain.ids import CycleKind
from controlplane.domain.profile import Profile
from controlplane.twin.live.fleet import FLEETS, PoolPlan

READY_S = 30.0
GRACE_S = 30.0
"""What open requests get after the last one was sent."""

ENDLESS_PLAY_S = 3600.0
"""Where there is no end, traffic is played an hour at a time."""

PORTS = range(20_000, 30_000)
"""Where the demonstration listens: below what Linux gives the near ends of connections (32768 on)."""

SQLITE_ENDS = ("-wal", "-shm")
"""Files that SQLite keeps beside a database: an older one's would be taken for the new one's."""

TRAFFIC, CROWD = "traffic", "traffic-crowd"
"""How the generators are called; what stands before the last hyphen says which it is."""

PAGER = "prometheus-alertmanager"
PAGES_S: Mapping[str, float] = {"group_wait_s": 0.0, "group_interval_s": 1.0, "repeat_interval_s": 15.0}
"""A page is told at once, and again each 15 s: the record keeps one."""

SERVED = ("engines", "gpus")
"""Kinds of targets that the twin lists; each stands in a file of its own for Prometheus."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for. `duration_s` is None for "until Ctrl-C"; `database`: where to keep the record
    (None: with the run's other files)."""

    fleet: str
    duration_s: float | None
    trace: Path | None
    seed: int
    database: Path | None = None

    @property
    def story_s(self) -> float:
        """Length of the story."""
        return UNTIMED_S if self.duration_s is None else self.duration_s

    @property
    def play_s(self) -> float:
        """Seconds of traffic in one play."""
        return ENDLESS_PLAY_S if self.duration_s is None else self.duration_s


@dataclass(slots=True)
class Stage:
    """Everything that runs. `plays`: results files of the traffic, in the order of their start; `truths`: by
    pool, the profile that the twin plays by."""

    wish: Wish
    crew: Crew
    places: Places
    prometheus_binary: Path
    twin: Child | None = None
    plays: list[Path] = field(default_factory=list)
    truths: Mapping[str, Profile] = field(default_factory=dict)

    @property
    def plans(self) -> Sequence[PoolPlan]:
        """The pools, as the twin plays them."""
        return FLEETS[self.wish.fleet][0]

    def child(self, name: str) -> Child | None:
        """A running process by its name."""
        return next((each for each in self.crew.children if each.name == name), None)


def ours(*arguments: object) -> list[str]:
    """A command of our own."""
    return [sys.executable, "-m", "controlplane", *map(str, arguments)]


def free_ports(count: int) -> list[int]:
    """Free TCP ports on loopback, all different. Raises DemoError where there are too few.

    Not from the range out of which the system takes the near ends of connections: a port of those that is
    free now may be somebody's before its server starts.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise DemoError(f"fewer than {count} ports from {PORTS[0]} to {PORTS[-1]} are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def fetch(url: str, timeout_s: float = 2.0) -> Any:
    """JSON from one of our own loopback addresses. Raises OSError or ValueError."""
    with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310 - loopback only
        return json.load(answer)


def healthy(url: str) -> bool:
    """Whether an address answers 200 now."""
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:  # noqa: S310 - loopback only
            return bool(answer.status == 200)
    except OSError:
        return False


def check(wish: Wish) -> tuple[Path, Path]:
    """Everything that can be found wrong before anything starts. Answers Prometheus and HAProxy.

    Raises DemoError for a record that exists already or with all that is wrong with the trace, or
    InvalidConfig for a missing binary.
    """
    if wish.database is not None:
        _new_record(wish.database)
    if wish.trace is not None:
        from controlplane.traffic.readers import read_trace  # noqa: PLC0415 - pyarrow is slow to import
        from controlplane.traffic.trace import TraceError  # noqa: PLC0415

        try:
            read_trace(wish.trace)
        except TraceError as error:
            raise DemoError(str(error)) from error
    find(PAGER)
    return find("prometheus"), find("haproxy")


def _new_record(database: Path) -> None:
    """Whatever stands there may be all that is left of a fleet's history: it is not ours to remove."""
    for each in (database, *(database.with_name(database.name + end) for end in SQLITE_ENDS)):
        if os.path.lexists(each):
            raise DemoError(
                f"{each} exists already; allowed: another name for the report, or remove that file"
            )


def start_fleet(stage: Stage, say: Callable[[str], None]) -> None:
    """Files and all processes but the traffic. Raises DemoError, Stopped or a PortError."""
    start_parts(stage, say)
    _start_controller(stage, say)


def start_parts(stage: Stage, say: Callable[[str], None]) -> None:
    """Twin, gateway and Prometheus, without a controller. Raises as `start_fleet`."""
    _beliefs(stage)
    _start_twin(stage, say)
    _start_door(stage, say)
    _start_gateway(stage, say)
    write_targets(stage, targets(stage, READY_S))
    start_prometheus(stage)
    say(f"Prometheus at http://127.0.0.1:{stage.places.prometheus}")
    _start_pager(stage, say)


def _beliefs(stage: Stage) -> None:
    """Policies, profiles with their errors, the fleet file and the traffic."""
    places, shipped = stage.places, load_profiles()
    truths = stage.truths = {plan.name: truth(shipped[plan.profile], plan.seats) for plan in stage.plans}
    _write(places.policies / "buffer.yaml", fleet.buffer_text(stage.plans))
    for plan in stage.plans:
        _write(places.policies / f"{plan.name}.yaml", fleet.policy_text(plan))
        wrong = perturbed(truths[plan.name], stage.wish.seed)
        _write(places.profiles / f"{plan.profile}.yaml", profile_text(wrong))
    trace = stage.wish.trace.absolute() if stage.wish.trace else None
    _write(places.folder / "mix.json", fleet.mix_text(stage.plans, truths, trace, stage.wish.seed))


def _start_twin(stage: Stage, say: Callable[[str], None]) -> None:
    wish = stage.wish
    options = ("--fleet", wish.fleet, "--cluster", fleet.CLUSTER, "--seed", wish.seed, "--chunk", fleet.CHUNK)
    child = stage.crew.start("twin", ours("twin", "serve", *options))
    stage.crew.wait_for(child, lambda: bool(child.first_line()), "ready line", READY_S)
    facts = json.loads(child.first_line())
    stage.places = replace(stage.places, twin=facts["control"])
    _write(stage.places.fleet, fleet.fleet_text(stage.places))
    say(f"the twin: {facts['instances']} instances, control port {facts['control']}")


def _start_door(stage: Stage, say: Callable[[str], None]) -> None:
    """The gateway's log has a reader before there is a line in it."""
    places = stage.places
    if not places.door_metrics:
        return
    options = ("--socket", places.socket, "--policies", places.policies, "--profiles", places.profiles)
    ports = ("--log", f"127.0.0.1:{places.door_log}", "--metrics", f"127.0.0.1:{places.door_metrics}")
    trace = ("--trace", places.folder / door.TRACE)
    child = stage.crew.start("door", ours("gateway-exporter", *options, *ports, *trace))
    stage.crew.wait_for(child, lambda: bool(child.first_line()), "ready line", READY_S)
    say(f"the gateway's exporter: metrics at http://127.0.0.1:{places.door_metrics}/metrics")


def _start_gateway(stage: Stage, say: Callable[[str], None]) -> None:
    places = stage.places
    found = TwinOrchestrator(f"http://127.0.0.1:{places.twin}").inventory()
    layout = GatewayLayout(
        listen=f"127.0.0.1:{places.gateway}",
        exporter=f"127.0.0.1:{places.exporter}",
        socket=places.socket,
        pools=members.pool_layouts(PolicyDirectory(places.policies, places.profiles).load(), found),
        threads=1,
        log=f"ring@127.0.0.1:{places.door_log}" if places.door_log else None,
    )
    files.write(render(layout), places.folder / "gateway")
    _run_gateway(stage)
    say(f"HAProxy at http://127.0.0.1:{places.gateway}")


def _run_gateway(stage: Stage) -> None:
    places = stage.places
    child = stage.crew.start(
        "haproxy", [find("haproxy"), "-db", "-f", places.folder / "gateway" / "haproxy.cfg"]
    )
    url = f"http://127.0.0.1:{places.gateway}/health"
    ready = lambda: healthy(url) and places.socket.exists()  # noqa: E731 - its port answers before its socket
    stage.crew.wait_for(child, ready, "answer", READY_S)


def restart_gateway(stage: Stage) -> None:
    """End the gateway and start it again from its file, as a crash and its supervisor would."""
    running = stage.child("haproxy")
    if running is not None:
        stage.crew.end(running)
    _run_gateway(stage)


def start_prometheus(stage: Stage) -> Child:
    """Prometheus on its port and its data, which a second start finds again."""
    places = stage.places
    plan = ScrapePlan(
        cluster=fleet.CLUSTER,
        engines="engines.json",
        gpus="gpus.json",
        gateways={fleet.GATEWAY: f"127.0.0.1:{places.exporter}"},
        doors={fleet.GATEWAY: f"127.0.0.1:{places.door_metrics}"} if places.door_metrics else {},
        interval_s=fleet.SCRAPE_S,
        rule_files=["recording.yaml", *(["alerts.yaml"] if places.alertmanager else [])],
        trimtab=f"127.0.0.1:{places.controller}" if places.controller else "",
        alertmanager=f"127.0.0.1:{places.alertmanager}" if places.alertmanager else "",
    )
    _write(places.folder / "alerts.yaml", alerts.shortened(fleet.ALERT, fleet.HELD_S))
    _write(places.folder / "prometheus.yml", prometheus_config(plan))
    _write(places.folder / "recording.yaml", recording_text(Rendering(fleet.WINDOW_S, fleet.SCRAPE_S)))
    command: list[str | Path] = [
        stage.prometheus_binary,
        f"--config.file={places.folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={places.folder / 'prometheus-data'}",
        f"--web.listen-address=127.0.0.1:{places.prometheus}",
        "--log.level=warn",
    ]
    child = stage.crew.start("prometheus", command)
    url = f"http://127.0.0.1:{places.prometheus}/-/ready"
    stage.crew.wait_for(child, lambda: healthy(url), "answer", READY_S)
    return child


def _start_pager(stage: Stage, say: Callable[[str], None]) -> None:
    """Alertmanager, and the token that it shows to the controller: new for each run, read by us alone."""
    places = stage.places
    if not places.alertmanager:
        return
    places.token.touch(0o600)
    places.token.write_text(secrets.token_urlsafe(), encoding="utf-8")
    plan = PagingPlan(f"http://127.0.0.1:{places.controller}/alerts", places.token.name, **PAGES_S)
    _write(places.folder / "alertmanager.yml", alertmanager_config(plan))
    command: list[str | Path] = [
        find(PAGER),
        f"--config.file={places.folder / 'alertmanager.yml'}",
        f"--storage.path={places.folder / 'alertmanager-data'}",
        f"--web.listen-address=127.0.0.1:{places.alertmanager}",
        "--cluster.listen-address=",  # one alone: no port towards others
        "--log.level=warn",
    ]
    child = stage.crew.start("alertmanager", command)
    url = f"http://127.0.0.1:{places.alertmanager}/-/ready"
    stage.crew.wait_for(child, lambda: healthy(url), "answer", READY_S)
    say(f"Alertmanager at http://127.0.0.1:{places.alertmanager}")


def _start_controller(stage: Stage, say: Callable[[str], None]) -> None:
    places = stage.places
    options = ("--fleet", places.fleet, "--policies", places.policies, "--profiles", places.profiles)
    child = stage.crew.start("controller", ours("run", "--demo", *options))
    stage.crew.wait_for(child, lambda: bool(child.first_line()), "ready line", READY_S)
    record = RecordFile(places.database)
    try:
        recorded = lambda: record.newest(CycleKind.WEIGHTS) is not None  # noqa: E731
        stage.crew.wait_for(child, recorded, "recorded decision", READY_S)
    finally:
        record.close()
    say(f"the controller: metrics at http://127.0.0.1:{json.loads(child.first_line())['metrics']}/metrics")


def start_traffic(stage: Stage) -> Child:
    """The generator, one process for all pools; it ends by itself."""
    return _play(stage, TRAFFIC, "mix.json", stage.wish.play_s)


def start_crowd(stage: Stage, seconds: float) -> Child:
    """Chat beside the traffic, for so long, from another process: its callers know nothing of the others."""
    plan = next(plan for plan in stage.plans if plan.name == fleet.STARRED)
    text = fleet.crowd_text(plan, stage.truths[plan.name], seconds, stage.wish.seed)
    _write(stage.places.folder / "crowd.json", text)
    return _play(stage, CROWD, "crowd.json", seconds)


def _play(stage: Stage, kind: str, mix: str, seconds: float) -> Child:
    """Request ids are drawn by seed: each play has one of its own."""
    number = len(stage.plays)
    results = stage.places.folder / f"results-{number}.jsonl"
    stage.plays.append(results)
    url, seed = f"http://127.0.0.1:{stage.places.gateway}", stage.wish.seed + number
    options = ("--url", url, "--mix", stage.places.folder / mix, "--results", results, "--seed", seed)
    length = ("--for", seconds, "--grace", GRACE_S)
    return stage.crew.start(f"{kind}-{number}", ours("traffic", "play", *options, *length))


def targets(stage: Stage, timeout_s: float = 2.0) -> Mapping[str, list[Any]]:
    """What the twin lists now, by kind. Raises DemoError where it does not answer in time."""
    try:
        return {kind: fetch(f"http://127.0.0.1:{stage.places.twin}/sd/{kind}", timeout_s) for kind in SERVED}
    except (OSError, ValueError) as error:
        raise DemoError(f"the twin does not list its targets: {error}") from error


def write_targets(stage: Stage, listed: Mapping[str, list[Any]], share: float = 1.0) -> None:
    """Tell Prometheus of these targets, or of a share of them spread over all pools."""
    for kind, each in listed.items():
        _write(stage.places.folder / f"{kind}.json", json.dumps(_spread(each, share)))


def _spread(listed: Sequence[Any], share: float) -> list[Any]:
    """Every n-th target, so that each pool loses its part."""
    return [each for number, each in enumerate(listed) if int((number + 1) * share) > int(number * share)]


def _write(path: Path, text: str) -> None:
    """Replaced at once: Prometheus reads these files while we write them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
