"""Real HAProxys, each with its engines, for the length of one test."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from controlplane.adapters.gateways.haproxy import files
from controlplane.adapters.gateways.haproxy.gateway import HaproxyGateway
from controlplane.adapters.gateways.haproxy.layout import GatewayLayout, PoolLayout, ServerLayout
from controlplane.adapters.gateways.haproxy.render import render
from controlplane.adapters.gateways.haproxy.runtime import Deadline, RuntimeSocket
from controlplane.domain.fleet import Instance, Phase
from controlplane.domain.gateway import BackendView, ServerView
from controlplane.domain.ids import ActionId, CycleId, CycleKind, DecisionId, InstanceId, NodeId, PoolName
from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.ports import Unavailable
from tests.adapters.gateways.engines import Engine
from tests.support import answers, eventually, free_port, start, stop

POOL = PoolName("chat-8b")


class SystemClock:
    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def instance_id(slot: str) -> InstanceId:
    return InstanceId(f"demo/{slot}@s9k2x1")


def instance(slot: str, address: str, **changes: object) -> Instance:
    base = Instance(
        instance_id=instance_id(slot),
        pool=POOL,
        node=NodeId("n1"),
        tp=1,
        phase=Phase.SERVING,
        address=address,
        started_at=100.0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def action(
    kind: ActionKind, slot: str, level: int, seen: int | None = None, ordinal: int = 0
) -> tuple[ActionId, Action]:
    id_ = ActionId(DecisionId(CycleId("demo", CycleKind.WEIGHTS, 1), POOL), ordinal)
    return id_, Action(kind, POOL, "door", instance_id(slot), level, seen, "test")


@dataclass
class Door:
    """One HAProxy before its engines, and the gateway port on it. Slots are `s1`, `s2`, ..."""

    layout: GatewayLayout
    directory: Path
    engines: Sequence[Engine]
    instances: list[Instance]
    process: subprocess.Popen[bytes] | None = None
    gateway: HaproxyGateway = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = RuntimeSocket(self.layout.socket)
        # Patient: what is tested here is what is answered, not how fast on a busy machine.
        self.gateway = HaproxyGateway("door", self.runtime, lambda: self.instances, SystemClock(), 10)

    @property
    def port(self) -> int:
        return int(self.layout.listen.rpartition(":")[2])

    @property
    def exporter_port(self) -> int:
        return int(self.layout.exporter.rpartition(":")[2])

    def up(self, balance: str = "leastconn") -> Door:
        rendered = render(self.layout)
        config = files.write(
            replace(rendered, config=rendered.config.replace("leastconn", balance)), self.directory
        )
        self.process = start(["haproxy", "-db", "-f", config], self.directory / "haproxy.log")
        # It listens before the runtime API's socket has its final name.
        eventually(lambda: answers(self.port) and self._speaks(), 5, because="HAProxy listens")
        return self

    def _speaks(self) -> bool:
        with suppress(Unavailable):
            return bool(self.runtime.ask(["show info"], Deadline(1)))
        return False

    def down(self) -> None:
        if self.process is not None:
            stop(self.process)
            self.process = None

    def restart(self) -> None:
        self.down()
        self.up()

    def command(self, text: str) -> str:
        """Somebody else's hand on the runtime API."""
        return self.runtime.set([text], ["show info"], Deadline(5)).settings[0]

    def backend(self) -> BackendView:
        return next(one for one in self.gateway.read().backends if one.pool == POOL)

    def server(self, slot: str) -> ServerView:
        return next(one for one in self.backend().servers if one.instance_id == instance_id(slot))

    def apply_one(
        self, kind: ActionKind, slot: str, level: int, seen: int | None = None
    ) -> tuple[ActionState, str]:
        one = action(kind, slot, level, seen)
        return self.gateway.apply([one])[one[0]]


MakeDoor = Callable[..., Door]


@pytest.fixture
def make_door() -> Iterator[MakeDoor]:
    """Builds doors: `make_door(engines=2, limit=2, queue_bound=20, models=(...), **layout changes)`."""
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not on PATH")
    with ExitStack() as cleanup:

        def make(
            engines: int = 2,
            limit: int = 2,
            queue_bound: int = 50,
            models: tuple[str, ...] = ("llama-3.1-8b",),
            up: bool = True,
            **changes: object,
        ) -> Door:
            started = [Engine() for _ in range(engines)]
            for engine in started:
                cleanup.callback(engine.close)
            servers = [ServerLayout(f"s{n}", one.address, limit) for n, one in enumerate(started, 1)]
            # A Unix socket's path is short; a test's own directory may not be.
            directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="door")))
            layout = GatewayLayout(
                listen=f"127.0.0.1:{free_port()}",
                exporter=f"127.0.0.1:{free_port()}",
                socket=directory / "admin.sock",
                pools=(PoolLayout(POOL, models, tuple(servers), queue_bound),),
            )
            instances = [instance(one.name, one.address) for one in servers]
            door = Door(replace(layout, **changes), directory, started, instances)  # type: ignore[arg-type]
            cleanup.callback(door.down)
            return door.up() if up else door

        yield make


@pytest.fixture
def door(make_door: MakeDoor) -> Door:
    """Two engines, at most two requests in flight at each."""
    return make_door()
