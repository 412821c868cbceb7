"""The only file that names concrete adapters: from settings to a loop that can run."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from controlplane import __version__
from controlplane.adapters.clock import SystemClock
from controlplane.adapters.gateways.haproxy.gateway import HaproxyGateway
from controlplane.adapters.gateways.haproxy.runtime import RuntimeSocket
from controlplane.adapters.orchestrators.gauge import GaugeOrchestrator
from controlplane.adapters.orchestrators.twin import TwinOrchestrator
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.adapters.prometheus import targets
from controlplane.adapters.prometheus.asks import Mode as Series
from controlplane.adapters.prometheus.client import PrometheusClient
from controlplane.adapters.prometheus.source import PrometheusSource
from controlplane.adapters.sql.open import Record, open_record
from controlplane.adapters.sql.pages import SqlPages
from controlplane.domain.fleet import Instance
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.policy import Mode, Policies
from controlplane.loop.cycle import Loop, Ports
from controlplane.loop.runner import Runner
from controlplane.ports import Clock, Gateway, InvalidConfig, Orchestrator, PolicySource, Unavailable
from controlplane.settings import FleetSettings, GatewaySettings, OrchestratorKind
from controlplane.telemetry.exporter import Exporter, Told
from controlplane.telemetry.http import Endpoint
from controlplane.telemetry.news import News
from controlplane.telemetry.webhook import Webhook

log = logging.getLogger("trimtab")


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: policies and profiles, whether only to observe, whether rules record the series."""

    policies: Path
    profiles: Path | None = None
    observe_only: bool = False
    inline: bool = False
    source: str = "live"


Stamp = Callable[[], object]


class FollowedPolicies:
    """Policies as the files stand; the last good ones where they are wrong, which is said once.

    `stamp` changes when the files do: they are read again only then, and while they are wrong (what
    was wrong may be no file's content, such as a permission).
    """

    def __init__(self, source: PolicySource, stamp: Stamp, told: Told, *, observe_only: bool) -> None:
        self._source = source
        self._stamp = stamp
        self._told = told
        self._observe_only = observe_only
        self._problem = ""
        self._read_at = stamp()
        self._good = told.policies = self._shaped(source.load())

    def now(self) -> Policies:
        """What is in force."""
        stamp = self._stamp()
        if stamp != self._read_at or self._problem:
            self._read_again()
            self._read_at = stamp
        return self._good

    def _read_again(self) -> None:
        try:
            self._good = self._told.policies = self._shaped(self._source.load())
            self._note("")
        except InvalidConfig as error:
            self._note(str(error))

    def _shaped(self, policies: Policies) -> Policies:
        return only_observing(policies) if self._observe_only else policies

    def _note(self, problem: str) -> None:
        self._told.policies_valid = not problem
        if problem and problem != self._problem:
            log.error("policies are invalid, the last good ones stay in force:\n%s", problem)
        if self._problem and not problem:
            log.info("policies are valid again and in force")
        self._problem = problem


def files_stamp(*folders: Path | None) -> object:
    """Names, sizes and times of all files below: equal as long as nobody wrote there."""
    return [
        (str(path), status.st_mtime_ns, status.st_size)
        for folder in folders
        if folder is not None
        for path in sorted(folder.glob("*"))
        if (status := _status(path)) is not None
    ]


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # it went away between the listing and the look
        return None


def only_observing(policies: Policies) -> Policies:
    """The same policies, in which no kind of action may do anything.

    Other content has another hash: the record keeps content once a hash, and replay computes from that.
    """
    pools = {
        pool: replace(policy, weights_mode=Mode.OBSERVE, capacity_mode=Mode.OBSERVE)
        for pool, policy in policies.pools.items()
    }
    version = policies.version
    content_hash = hashlib.sha256(f"{version.content_hash}:observe-only".encode()).hexdigest()
    return replace(policies, version=replace(version, content_hash=content_hash), pools=pools)


@dataclass(slots=True)
class Controller:
    """A loop with its runner and its endpoint; `stop` may be set from any thread."""

    runner: Runner
    endpoint: Endpoint
    stop: threading.Event

    def run(self) -> None:
        """Run until `stop` is set; the cycle under way ends first."""
        self.runner.start()
        try:
            self.stop.wait()
        finally:
            self.runner.stop()


@contextmanager
def controller(
    settings: FleetSettings, options: Options, stop: threading.Event | None = None
) -> Iterator[Controller]:
    """Everything opened, in order, and closed again. Raises InvalidConfig or Unavailable."""
    stop = stop or threading.Event()
    with ExitStack() as stack:
        clock, told = SystemClock(), Told(settings.cluster)
        policies = FollowedPolicies(
            PolicyDirectory(options.policies, options.profiles, settings.prometheus.scrape_interval_s),
            lambda: files_stamp(options.policies, options.profiles),
            told,
            observe_only=options.observe_only,
        )
        record = _record(settings, options)
        stack.callback(record.close)
        _lead(record)
        stack.callback(record.lease.release)
        shared = Shared(clock, stop, told.desired)
        loop = stack.enter_context(open_loop(settings, record, shared, inline=options.inline))
        runner = Runner(_work(loop, policies, told), _intervals(settings), clock)
        listen, webhook = settings.listen, _webhook(settings, record, clock, told)
        exporter = Exporter(told, runner.health)
        endpoint = Endpoint(listen.host, listen.port, exporter, runner.health, webhook)
        stack.callback(endpoint.close)
        yield Controller(runner, endpoint, stop)


@dataclass(frozen=True, slots=True)
class Shared:
    """What a loop shares with others: the clock, the word to stop, and where an orchestrator of kind
    `gauge` puts the sizes that it is asked for."""

    clock: Clock
    stop: threading.Event
    levels: MutableMapping[PoolName, int] = field(default_factory=dict)


@contextmanager
def open_loop(settings: FleetSettings, record: Record, shared: Shared, *, inline: bool) -> Iterator[Loop]:
    """A loop over the real adapters and an open record; what it opened is closed again."""
    client = PrometheusClient(settings.prometheus)
    try:
        series = Series.INLINE if inline else Series.RECORDED
        source = PrometheusSource(client, settings.cluster, settings.prometheus.scrape_interval_s, series)
        holder: list[Loop] = []
        gateways = _gateways(settings.gateways, lambda: holder[0].last_known, shared.clock)
        orchestrator = _orchestrator(settings, client, shared)
        ports = Ports(shared.clock, source, gateways, orchestrator, record.ledger, record.lease)
        holder.append(Loop(settings.cluster, ports, __version__, shared.stop.is_set))
        yield holder[0]
    finally:
        client.close()


def _work(loop: Loop, policies: FollowedPolicies, told: Told) -> Callable[[CycleKind], None]:
    news = News()

    def work(kind: CycleKind) -> None:
        try:
            report = loop.cycle(kind, policies.now())
        except Exception:
            told.broken(kind)
            raise
        told.tell(report)
        news.tell(report)

    return work


def _intervals(settings: FleetSettings) -> Mapping[CycleKind, float]:
    cadence = settings.cadence
    return {CycleKind.WEIGHTS: cadence.weights_s, CycleKind.CAPACITY: cadence.capacity_s}


def _webhook(settings: FleetSettings, record: Record, clock: Clock, told: Told) -> Webhook | None:
    """Raises InvalidConfig where its token can't be read: the first page would be late to find out."""
    if settings.webhook is None:
        return None
    settings.webhook.token.read()
    return Webhook(settings.webhook.token, SqlPages(record.engine), settings.cluster, clock.wall, told.paged)


def _record(settings: FleetSettings, options: Options) -> Record:
    return open_record(database_url(settings), settings.cluster, options.source)


def database_url(settings: FleetSettings) -> str:
    """The record's URL, with the password put in from its place where there is one."""
    database = settings.database
    if database.password is None:
        return database.url
    from sqlalchemy.engine import make_url  # noqa: PLC0415 - only where a password is named

    url = make_url(database.url).set(password=database.password.read())
    return url.render_as_string(hide_password=False)


def _lead(record: Record) -> None:
    if not record.lease.acquire():
        raise Unavailable("another controller leads this record; stop it first")


def _gateways(
    settings: tuple[GatewaySettings, ...], instances: Callable[[], tuple[Instance, ...]], clock: Clock
) -> Mapping[str, Gateway]:
    return {
        each.name: HaproxyGateway(each.name, RuntimeSocket(each.socket), instances, clock, each.timeout_s)
        for each in settings
    }


def _orchestrator(settings: FleetSettings, client: PrometheusClient, shared: Shared) -> Orchestrator | None:
    match settings.orchestrator.kind:
        case OrchestratorKind.NONE:
            return None
        case OrchestratorKind.GAUGE:
            exist = partial(targets.instances, client, settings.cluster)
            return GaugeOrchestrator(exist, shared.levels, shared.clock.wall)
        case OrchestratorKind.TWIN:
            return TwinOrchestrator(settings.orchestrator.url, settings.orchestrator.timeout_s)
