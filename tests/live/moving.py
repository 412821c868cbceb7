"""A real twin behind a real HAProxy, steered by the real loop; what Prometheus would say is scripted.

Two own instances of chat serve, four sleep in the buffer beside offline work. `load` is what each chat
instance is said to run: with it a test makes the pool want more, or less.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import Popen
from typing import Any

from controlplane.adapters.clock import SystemClock
from controlplane.adapters.gateways.haproxy import files, members
from controlplane.adapters.gateways.haproxy.gateway import HaproxyGateway
from controlplane.adapters.gateways.haproxy.layout import GatewayLayout
from controlplane.adapters.gateways.haproxy.render import render
from controlplane.adapters.gateways.haproxy.runtime import RuntimeSocket
from controlplane.adapters.memory.metrics import MemoryMetrics
from controlplane.adapters.orchestrators.twin import TwinOrchestrator
from controlplane.domain.conservation import account
from controlplane.domain.fleet import Inventory, Life
from controlplane.domain.gateway import ServerState, ServerView
from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.plan import Action, ActionKind
from controlplane.domain.policy import Policies
from controlplane.loop.cycle import Loop, Ports, Report
from controlplane.loop.second_look import server
from controlplane.ports import MetricsAnswer, Unavailable
from tests.domain.fleets import CHAT, Yard, batch_policy, chat_policy, rules
from tests.loop.world import MemoryLease, MemoryLedger, answer
from tests.support import answers, eventually, free_port, start, stop
from tests.twin.world import CHAT as PATH
from tests.twin.world import Twin, body, twin_running

SURGE, LULL = 60.0, 2.0
KEPT = ("chat-8b-01", "chat-8b-02")
GUEST = "chat-8b-s01"
"""The sleeper that a surge wakes."""

PATIENT_S = 10.0
"""What is tested is what happens, not how fast on a busy machine."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a caller has of a stream."""

    text: str
    complete: bool

    @property
    def sha256(self) -> str:
        """As the twin tells it."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that has begun, from the instance in `slot`, and is read in a thread."""

    name: str
    slot: str
    heard: Future[Heard]


@dataclass(slots=True)
class Dock:
    """The parts, and a loop over them that a test drives cycle by cycle."""

    twin: Twin
    folder: Path
    policies: Policies
    readers: ThreadPoolExecutor
    load: float = LULL
    ledger: MemoryLedger = field(default_factory=lambda: MemoryLedger([]))
    port: int = field(default_factory=free_port)
    exporter: int = field(default_factory=free_port)
    streams: list[Stream] = field(default_factory=list)
    process: Popen[bytes] | None = None
    loop: Loop = field(init=False)
    gateway: HaproxyGateway = field(init=False)

    def __post_init__(self) -> None:
        clock = SystemClock()
        self.gateway = HaproxyGateway(
            "door", RuntimeSocket(self.socket), lambda: self.loop.last_known, clock, PATIENT_S
        )
        ports = Ports(
            clock,
            MemoryMetrics([self._seen]),
            {"door": self.gateway},
            TwinOrchestrator(f"http://{self.twin.control}", PATIENT_S),
            self.ledger,
            MemoryLease(),
        )
        self.loop = Loop("demo", ports, "1.0")

    @property
    def socket(self) -> Path:
        return self.folder / "door.sock"

    def open_door(self, *options: str) -> None:
        """Start HAProxy from a file of what stands there now, all of it open that serves."""
        command: list[str | Path] = ["haproxy", *(options or ("-db",)), "-f", self.write_door()]
        self.process = start(command, self.folder / "haproxy.log")
        eventually(lambda: answers(self.port) and self._speaks(), 10, because="HAProxy listens")

    def reload_door(self) -> None:
        """A new worker from a new file; the old one lives on until its last stream has ended."""
        before = self.gateway.read().epoch
        assert self.process is not None
        self.write_door()
        self.process.send_signal(signal.SIGUSR2)
        eventually(lambda: self._speaks() and self.gateway.read().epoch != before, 10)

    def write_door(self) -> Path:
        """The file of what stands there now."""
        found = TwinOrchestrator(f"http://{self.twin.control}", PATIENT_S).inventory()
        layout = GatewayLayout(
            listen=f"127.0.0.1:{self.port}",
            exporter=f"127.0.0.1:{self.exporter}",
            socket=self.socket,
            pools=members.pool_layouts(self.policies, found),
            threads=1,
        )
        return files.write(render(layout), self.folder / "gateway")

    def shut_door(self) -> None:
        """End HAProxy, and with it what is open there."""
        if self.process is not None:
            stop(self.process)

    def _speaks(self) -> bool:
        with contextlib.suppress(Unavailable):
            return bool(self.gateway.read())
        return False

    def cycle(self, kind: CycleKind = CycleKind.WEIGHTS) -> Report:
        """One cycle, now. No GPU is in two hands at any."""
        report = self.loop.cycle(kind, self.policies)
        assert report.failure == ""
        assert report.observation is not None
        assert isinstance(report.observation.inventory, Inventory)
        assert account(report.observation.inventory).unaccounted == 0
        return report

    def tick(self) -> bool:
        """One cycle of each clock."""
        return all(self.cycle(kind).plan for kind in (CycleKind.CAPACITY, CycleKind.WEIGHTS))

    def until(self, predicate: str, deadline_s: float = 20.0) -> None:
        """Ticks until the guest is so in the twin."""
        eventually(lambda: self.tick() and self.twin.phase(GUEST) == predicate, deadline_s, every_s=0.1)

    def at_door(self, slot: str = GUEST) -> ServerView:
        """An instance as HAProxy has it now."""
        found = server(self.gateway.read(), self.id_of(slot))
        assert found is not None
        return found

    def id_of(self, slot: str) -> InstanceId:
        return InstanceId(self.twin.instance(slot)["instance_id"])

    def begin(self, tokens: int) -> Stream:
        """A stream through the door that has begun."""
        name = f"r-{len(self.streams)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", PATH, json.dumps(body(tokens)), {"x-request-id": name})
        answered = connection.getresponse()
        assert answered.status == 200
        slot = answered.headers["x-twin-instance"]
        stream = Stream(name, slot, self.readers.submit(_read, connection, answered))
        self.streams.append(stream)
        return stream

    def begin_on(self, slot: str, count: int, tokens: int) -> list[Stream]:
        """Streams until so many of all that were begun are served by one instance."""

        def mine() -> list[Stream]:
            return [each for each in self.streams if each.slot == slot]

        for _ in range(12 * count):
            if len(mine()) >= count:
                break
            self.begin(tokens)
        assert len(mine()) >= count
        return mine()

    def written(self) -> dict[str, Any]:
        """What the twin says that it wrote, by stream."""
        told: dict[str, Any] = self.twin.json("/truth/streams")
        return told

    def ordered_down(self) -> Sequence[Action]:
        """Every recorded order to the guest to sleep or to end."""
        name = self.id_of(GUEST)
        mine = [each for each in self.ledger.actions.values() if each.instance == name]
        return [each for each in mine if each.kind is ActionKind.ENSURE and each.level < Life.AWAKE.level]

    def waited_s(self) -> float:
        """From the decision that the guest leaves to the first order, by the record."""
        moves = (move for record in self.ledger.records for move in record.next_state.moves)
        leaving = [each for each in moves if each.instance == self.id_of(GUEST) and each.to is Life.ASLEEP]
        asked = next(each.asked_at for each in leaving if each.asked_at is not None)
        return asked - leaving[0].since

    def borrow(self) -> None:
        """The surge comes, the guest wakes on a loan, and takes some requests at a time."""
        assert self.twin.phase(GUEST) == "asleep"
        assert not self.ledger.lent
        self.load = SURGE
        eventually(lambda: self.tick() and self._takes_some(), 20, every_s=0.1)
        assert self.twin.phase(GUEST) == "serving"
        assert [name.partition("@")[0] for name in self.ledger.lent] == [f"demo/{GUEST}"]

    def _takes_some(self) -> bool:
        row = self.at_door()
        return row.state is ServerState.OPEN and row.limit >= 4

    def _seen(self, kind: CycleKind, rules_: Policies, now: float) -> MetricsAnswer:
        yard = Yard(now=now, policies=rules_, running={CHAT: self.load})
        yard.instances = {each.instance_id: each for each in self.loop.last_known}
        if self.ledger.records:
            yard.state = self.ledger.records[-1].next_state
        yard.at_work = {
            move.instance: int(self.twin.value(_slot(move.instance), "vllm:num_requests_running"))
            for move in yard.state.moves
            if move.to is not Life.AWAKE
        }
        return answer(yard.seen(kind))


def _read(connection: http.client.HTTPConnection, answered: http.client.HTTPResponse) -> Heard:
    """A stream to its end, whoever ends it."""
    with contextlib.closing(connection):
        try:
            raw, complete = answered.read(), True
        except http.client.IncompleteRead as error:
            raw, complete = error.partial, False
        except ConnectionResetError:
            raw, complete = b"", False
    events = [each.removeprefix("data: ") for each in raw.decode().split("\n\n")]
    chunks = [json.loads(each) for each in events if each.startswith("{") and each.endswith("}")]
    texts = (each["choices"][0]["delta"].get("content", "") for each in chunks if each["choices"])
    return Heard("".join(texts), complete and "[DONE]" in events)


def moving_rules(drain_s: float) -> Policies:
    """Chat between two and three instances; the buffer keeps four GPUs free."""
    chat = chat_policy()
    capacity = replace(chat.capacity, maximum=3, drain_s=drain_s)
    return rules(replace(chat, capacity=capacity), batch_policy(model="eval-8b"), reserve=4)


@contextlib.contextmanager
def dock_open(*options: str, drain_s: float = 60.0) -> Iterator[Dock]:
    """Everything started, and ended by its own pid. `options`: HAProxy's, where it runs in another way."""
    with (
        tempfile.TemporaryDirectory(prefix="dock") as name,
        twin_running(Path(name) / "twin.log", "--wake", "0.2") as (twin, _),
        ThreadPoolExecutor(max_workers=40) as readers,
    ):
        _only_some(twin)
        dock = Dock(twin, Path(name), moving_rules(drain_s), readers)
        dock.loop.last_known = TwinOrchestrator(f"http://{twin.control}", PATIENT_S).inventory().instances
        try:
            dock.open_door(*options)
            yield dock
        finally:
            dock.shut_door()


def _only_some(twin: Twin) -> None:
    """Few enough own instances that a handful of streams reaches every one."""
    rows = twin.json("/inventory")["instances"]
    own = [each["instance_id"] for each in rows if each["node"] in {"n1", "n2"}]
    others = [name for name in own if _slot(name) not in KEPT]
    for name in others:
        assert twin.put("/adopt", {"action_id": "a-1", "instance_id": name})[0] == 200
        assert twin.want(name, "gone")[0] == 200
    eventually(lambda: {twin.phase(_slot(name)) for name in others} == {"gone"}, 20)


def _slot(name: str) -> str:
    return name.rpartition("/")[2].partition("@")[0]
