"""Lost lines: found when they stay away, never invented while they are on their way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from controlplane.door.line import parse
from controlplane.door.lost import LOOKS, Look, Losses
from controlplane.door.reads import Reads
from tests.door.test_line import raw

POOL = "chat-8b"
LINE = parse(raw())


@dataclass
class Process:
    """A gateway's process: what it counted, the stamps of its lines under way, and by how much the clock
    was set since its start."""

    pid: int
    started_s: float
    ended: int = 0
    set_s: float = 0.0
    under_way: list[float | None] = field(default_factory=list)


@dataclass
class World:
    """A gateway, the lines between, and who reads them, on a clock of their own."""

    now_s: float = 1_000_000.0
    stamped: bool = True
    keys_max: int = 10_000
    pid: int = 7
    truly_lost: int = 0
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.named = self.start(self.pid)
        self.now_s += 100.0
        self.begin_to_read()

    def start(self, pid: int) -> Process:
        """A new process; whoever had that pid is dead."""
        self.processes = [each for each in self.processes if each.pid != pid]
        self.named = Process(pid, self.now_s)
        self.processes.append(self.named)
        return self.named

    def begin_to_read(self) -> None:
        self.reads, self.losses = Reads(self.keys_max), Losses(self.now_s)
        self.truly_lost = self.told = 0

    def set_clock(self, by_s: float) -> None:
        self.now_s += by_s
        for process in self.processes:
            process.set_s += by_s

    def end(self, count: int, lose: int = 0) -> None:
        """Requests end at the process that is named, and the first lines of them are lost."""
        self.named.ended += count
        self.truly_lost += lose
        self.named.under_way += [self.now_s if self.stamped else None] * (count - lose)

    def deliver(self, most: int | None = None) -> None:
        for process in self.processes:
            for stamp in process.under_way[:most]:
                self.send(process.pid, stamp)
            del process.under_way[:most]

    def send(self, pid: int, stamp: float | None, pool: str = POOL) -> None:
        self.reads.add(replace(LINE, pid=pid, ended_at=stamp, pool=pool))

    def look(self, *, deliver: bool = False) -> int:
        """One look, a second later; answers what is lost by now. `deliver`: lines come while it asks."""
        self.now_s += 1.0
        early, ended, named = self.reads.so_far(), self.named.ended, self.named
        if deliver:
            self.deliver()
        uptime_s = self.now_s - named.set_s - named.started_s
        look = Look(named.pid, named.started_s, uptime_s, self.now_s, self.now_s + 0.01, {POOL: ended})
        late = self.reads.take(named.pid, [POOL])
        late.subtract(early)
        self.losses.look(look, early, +late)
        return self.losses.by_pool()[POOL]

    def looks(self, count: int = LOOKS) -> int:
        """The last of some looks, each of which finds all lines that were not lost."""
        found = 0
        for _ in range(count):
            self.deliver()
            found = self.look()
        return found


def test_a_line_on_its_way_is_no_loss_and_one_that_stays_away_is() -> None:
    world = World()
    world.look()
    world.end(10, lose=1)
    assert world.looks(LOOKS - 1) == 0
    assert world.looks(1) == 1


def test_what_ended_before_we_began_to_read_is_no_loss() -> None:
    world = World()
    world.end(5000, lose=5000)
    assert world.looks(LOOKS + 1) == 0
    world.end(3, lose=2)
    assert world.looks() == 2


def test_a_loss_is_not_taken_back_when_more_lines_come_than_ended() -> None:
    world = World()
    world.look()
    world.end(10, lose=2)
    assert world.looks() == 2
    for _ in range(5):
        world.send(7, world.now_s)
    assert world.looks() == 2


def test_a_restart_under_another_pid_counts_anew_and_its_losses_are_added() -> None:
    world = World()
    world.look()
    world.end(10, lose=1)
    assert world.looks() == 1
    world.start(8)
    world.end(3, lose=2)
    assert world.looks(LOOKS - 1) == 1
    assert world.looks(1) == 3


def test_a_restart_under_the_same_pid_hides_no_loss() -> None:
    """In a container the pid is always the same; the lines of the earlier process make up for nothing."""
    world = World()
    world.look()
    world.end(100)
    assert world.looks() == 0
    world.now_s += 5.0
    world.start(7)
    world.end(20, lose=5)
    assert world.looks(LOOKS - 1) == 0
    assert world.looks(1) == 5


def test_lines_of_before_we_began_hide_no_loss() -> None:
    """A ring keeps them while its reader is away."""
    world = World()
    world.end(100)
    world.now_s += 10.0
    world.begin_to_read()
    world.look()
    world.end(20, lose=5)
    assert world.looks(LOOKS - 1) == 0
    assert world.looks(1) == 5


def test_lines_without_a_stamp_hide_no_more_than_came_late_and_invent_nothing() -> None:
    """Those of a gateway whose configuration is older than the stamp."""
    world = World(stamped=False)
    world.end(3)
    world.begin_to_read()
    world.look()
    world.end(20, lose=5)
    assert world.looks() == 5 - 3


def test_a_process_that_is_named_once_more_is_counted_on_and_not_twice() -> None:
    """Around a reload the runtime API may answer for the old process, the new one, and the old once more."""
    world = World()
    old = world.named
    world.look()
    world.end(10, lose=2)
    assert world.looks() == 2
    new = world.start(8)
    world.end(4, lose=1)
    assert world.looks() == 3
    for process in (old, new, old):
        world.named = process
        assert world.looks() == 3
    world.end(1, lose=1)
    assert world.looks() == 4


def test_a_process_that_writes_before_it_is_named_loses_nothing_by_it() -> None:
    world = World()
    old = world.named
    world.looks()
    new = world.start(8)
    world.end(5)
    world.deliver()
    world.named = old
    world.look()
    world.named = new
    assert world.looks(2 * LOOKS) == 0
    world.end(2, lose=2)
    assert world.looks() == 2


def test_counts_that_somebody_set_back_begin_anew() -> None:
    """`clear counters all`."""
    world = World()
    world.look()
    world.end(100, lose=1)
    assert world.looks() == 1
    world.named.ended = 0
    assert world.looks() == 1
    world.end(30, lose=2)
    assert world.looks() == 3


def test_a_clock_that_is_set_invents_no_loss() -> None:
    world = World()
    world.looks()
    for step_s in (-30.0, 30.0, -3600.0):
        world.set_clock(step_s)
        world.end(10)
        assert world.looks(2 * LOOKS) == 0
    world.end(3, lose=1)
    assert world.looks() == 1


def test_a_flood_of_forged_processes_takes_no_line_of_the_real_one_away() -> None:
    world = World(keys_max=20)
    world.look()
    for _ in range(LOOKS):
        world.end(10)
        for pid in range(100, 200):
            world.send(pid, world.now_s)
        assert world.looks(1) == 0
    world.end(5, lose=3)
    assert world.looks() == 3


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["end", "end", "look", "look", "deliver", "forge", "restart", "reader", "name", "clock"]
        ),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=80,
)


def play(world: World, step: Step) -> None:
    """What may happen around a gateway. No line is under way for more than five looks."""
    what, some, few = step
    if what == "end":
        world.end(some, min(some, few))
    elif what == "deliver":
        world.deliver(some)
    elif what == "forge":
        world.send(7 + few, [None, world.now_s, 0.0, world.now_s - 50.0][some % 4], [POOL, "x"][some % 2])
    elif what == "restart":
        world.deliver()
        world.now_s += some
        world.start(7 + few)
    elif what == "reader":
        world.begin_to_read()
    elif what == "clock":
        world.set_clock(20.0 * (some - 2))
    elif what == "name":
        world.named = world.processes[few % len(world.processes)]


@given(STEPS, st.booleans(), st.sampled_from([3, 10_000]))
def test_whatever_comes_between_losses_never_fall_and_are_never_more_than_was_lost(
    steps: list[Step], stamped: bool, keys_max: int
) -> None:
    """Restarts under the same pid and another, a reader that restarts, duplicates, forged lines, a flood."""
    world, looked = World(stamped=stamped, keys_max=keys_max), 0
    for step in steps:
        play(world, step)
        if step[0] == "reader":
            world.look()
        if step[0] == "look":
            looked += 1
            if looked % (LOOKS // 2) == 0:
                world.deliver()
            found = world.look(deliver=step[1] == 0)
            assert world.told <= found <= world.truly_lost
            world.told = found
    assert world.told <= world.looks(2 * LOOKS) <= world.truly_lost


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=60))
def test_all_that_is_lost_is_found_where_nobody_forges(steps: list[tuple[int, int, bool]]) -> None:
    """Each step ends some requests, some of which are lost; the other lines come at once or some looks
    late; now and then the gateway restarts under its pid, and no line is on its way at that moment."""
    world = World()
    world.looks(2)
    for number, (ends, lose, at_once) in enumerate(steps):
        world.end(ends, min(ends, lose))
        if at_once or number % (LOOKS // 2) == 0:
            world.deliver()
        assert world.look() <= world.truly_lost
        if number % 25 == 24:
            assert world.looks() == world.truly_lost
            world.now_s += 3.0
            world.start(7)
    assert world.looks() == world.truly_lost


def test_memory_is_bounded_whatever_is_sent() -> None:
    reads = Reads(keys_max=10)
    reads.take(7, [POOL])
    for number in range(100):
        reads.add(replace(LINE, pid=7, ended_at=float(number)))
        reads.add(replace(LINE, pid=number + 100, pool=f"n{number}"))
    found = reads.take(7, [POOL])
    assert len(found) <= 12
    assert sum(found.values()) == 200
    assert reads.so_far() == Counter()
