"""The runtime API's client against a far side that answers badly, late or never."""

from __future__ import annotations

import errno
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.gateways.haproxy import runtime
from controlplane.adapters.gateways.haproxy.parse import tables
from controlplane.adapters.gateways.haproxy.runtime import Deadline, RuntimeSocket
from controlplane.ports import OutcomeUnknown, Unavailable

Behaviour = Callable[[socket.socket], None]
FarSide = Callable[[Behaviour], RuntimeSocket]


@pytest.fixture
def far_side() -> Iterator[FarSide]:
    """A Unix socket on which one connection is treated as the test says."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = Path(directory) / "admin.sock"
        listener.bind(str(path))
        listener.listen()
        threads: list[threading.Thread] = []

        def behave(behaviour: Behaviour) -> RuntimeSocket:
            def serve() -> None:
                with suppress(OSError), listener.accept()[0] as connection:
                    behaviour(connection)

            thread = threading.Thread(target=serve, daemon=True)
            threads.append(thread)
            thread.start()
            return RuntimeSocket(path)

        yield behave
        for thread in threads:
            thread.join(5)
            assert not thread.is_alive()


def replying(text: str) -> Behaviour:
    def behave(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(text.encode())

    return behave


def test_each_command_gets_its_own_answer(far_side: FarSide) -> None:
    far = far_side(replying("\nNo such server.\n\n\nPid: 1\n\n"))
    answer = far.set(["a", "b", "c"], ["show info"], Deadline(5))
    assert answer.settings == ("", "No such server.", "")
    assert answer.questions == ("Pid: 1",)


def test_all_commands_travel_on_one_line(far_side: FarSide) -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        seen.append(connection.recv(1 << 16))
        connection.sendall(b"\n\nx\n\n")

    far_side(behave).set(["a", "b"], ["show info"], Deadline(5))
    assert seen == [b"a;b;show info\n"]


def test_answers_that_end_each_in_its_own_way_are_read_as_one_text(far_side: FarSide) -> None:
    """`del server` ends without the empty line that parts answers: among others it would be a neighbour's."""
    said = "\nServer still has connections attached to it, cannot remove it.\n"
    far = far_side(replying(said))
    assert far.tell(["a", "b"], Deadline(5)) == said.strip()
    with pytest.raises(OutcomeUnknown, match="answers came"):
        far_side(replying(said)).set(["a", "b"], ["show info"], Deadline(5))


def test_an_answer_that_breaks_off_is_unknown_for_settings(far_side: FarSide) -> None:
    with pytest.raises(OutcomeUnknown, match="answers came"):
        far_side(replying("\n")).set(["a", "b"], ["show info"], Deadline(5))


def test_a_question_without_an_answer_is_merely_unavailable(far_side: FarSide) -> None:
    with pytest.raises(Unavailable):
        far_side(replying("")).ask(["show info"], Deadline(5))


def test_a_far_side_that_trickles_does_not_hold_the_cycle(far_side: FarSide) -> None:
    """B-059: a socket's own timeout restarts with every byte; the deadline does not."""
    stopped = threading.Event()

    def trickle(connection: socket.socket) -> None:
        with suppress(OSError):
            while not stopped.wait(0.02):
                connection.sendall(b"x")

    try:
        with pytest.raises(OutcomeUnknown, match="no answer in time"):
            far_side(trickle).set(["a"], ["show info"], Deadline(0.3))
    finally:
        stopped.set()


def test_an_endless_answer_is_cut_at_its_bound(far_side: FarSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "ANSWER_MAX", 1000)

    def flood(connection: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection.sendall(b"x" * 4096)

    with pytest.raises(Unavailable, match="beyond 1000 bytes"):
        far_side(flood).ask(["show info"], Deadline(5))


def test_no_file_descriptor_left_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("controlplane.adapters.gateways.haproxy.runtime.socket.socket", none_left)
    with pytest.raises(Unavailable, match="Too many open files"):
        RuntimeSocket(tmp_path / "s").ask(["show info"], Deadline(1))


def test_a_socket_that_nobody_owns_is_unavailable_and_nothing_was_sent(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"nobody\.sock"):
        RuntimeSocket(tmp_path / "nobody.sock").set(["a"], [], Deadline(1))


@pytest.mark.parametrize("hostile", ["a;b", "a\nb"])
def test_no_command_can_carry_another_one(tmp_path: Path, hostile: str) -> None:
    with pytest.raises(ValueError, match="semicolon"):
        RuntimeSocket(tmp_path / "x").set([hostile], [], Deadline(1))
    with pytest.raises(ValueError, match="semicolon"):
        RuntimeSocket(tmp_path / "x").tell([hostile], Deadline(1))


INFO = "Pid: 7\nUptime_sec: 3"
STATES = (
    "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port\n"
    "3 chat 1 s1 127.0.0.1 2 0 40 9001"
)
STAT = (
    "# pxname,svname,qcur,scur,slim,stot,dreq,econ,type,\n"
    "chat,s1,1,2,8,12,,0,2,\n"
    "chat,BACKEND,3,2,800,20,4,1,1,"
)


def test_tables_join_state_and_counters() -> None:
    found = tables(INFO, STATES, STAT)
    server = found.servers["chat", "s1"]
    assert (server.weight, server.limit, server.in_flight, server.sessions_total) == (40, 8, 2, 12)
    assert (server.closed, server.down, server.address) == (False, False, "127.0.0.1:9001")
    backend = found.backends[0]
    assert (backend.queue, backend.arrivals_total, backend.denied_total) == (3, 20, 4)
    assert found.process.pid == 7


@pytest.mark.parametrize(
    ("admin", "closed"), [(0, False), (1, True), (4, False), (8, True), (0x10, True), (0x20, True)]
)
def test_closed_is_drained_or_in_maintenance_but_not_a_memory_of_the_file(admin: int, closed: bool) -> None:
    found = tables(INFO, STATES.replace(" 2 0 40", f" 2 {admin} 40"), STAT)
    assert found.servers["chat", "s1"].closed is closed


@pytest.mark.parametrize(
    ("info", "states", "stat", "what"),
    [
        ("Uptime_sec: 3", STATES, STAT, "Pid is None"),
        ("Pid: many\nUptime_sec: 3", STATES, STAT, "Pid is 'many'"),
        (INFO, "2" + STATES[1:], STAT, "version 1 was expected"),
        (INFO, STATES.replace(" 40 ", " NaN "), STAT, "srv_uweight is 'NaN'"),
        (INFO, STATES, STAT.replace("12,,0", "-3,,0"), "stot is '-3'"),
        (INFO, STATES, "Permission denied", "show stat begins with 'Permission denied'"),
    ],
)
def test_a_table_that_is_not_as_expected_is_named_and_never_read_as_zero(
    info: str, states: str, stat: str, what: str
) -> None:
    with pytest.raises(Unavailable, match=what):
        tables(info, states, stat)


def test_a_server_that_came_between_two_tables_is_left_for_the_next_reading() -> None:
    later = STATES + "\n3 chat 2 s2 127.0.0.1 2 0 40 9002"
    assert set(tables(INFO, later, STAT).servers) == {("chat", "s1")}


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_no_text_whatsoever_breaks_the_reader(info: str, states: str, stat: str) -> None:
    for broken in (
        (info, STATES, STAT),
        (INFO, "1\n# be_name\n" + states, STAT),
        (INFO, STATES, STAT + stat),
    ):
        with suppress(Unavailable):
            tables(*broken)
