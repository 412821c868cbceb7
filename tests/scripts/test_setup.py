"""`make setup` without a network: what it links, what it wraps, what it says."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import eventually, start, stop

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/setup"


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, at work below a directory of its own."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("trimtab_setup", str(SCRIPT))
    spec = importlib.util.spec_from_loader("trimtab_setup", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "trimtab_setup", module)  # dataclasses look their module up
    loader.exec_module(module)
    monkeypatch.setattr(module, "TOOLS", tmp_path / ".tools")
    monkeypatch.setattr(module, "LOG", tmp_path / ".tools/setup.log")
    (tmp_path / ".tools/bin").mkdir(parents=True)
    return module


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def a_server(setup: ModuleType, *tested: str) -> object:
    return setup.Server("lamp", ("lamp", "lampctl"), "--version", tested)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has lamp 2.42.1 on its PATH."""
    for name in ("lamp", "lampctl"):
        program(tmp_path / "machine" / name, f'echo "{name}, version 2.42.1+ds (of somebody)"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'machine'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "machine"


def test_a_server_of_a_tested_version_is_linked_and_said(
    setup: ModuleType, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup.link_from_machine(a_server(setup, "2.42."))
    assert (setup.TOOLS / "bin/lampctl").resolve() == machine / "lampctl"
    assert "lamp 2.42.1 of this machine is used" in capsys.readouterr().out


def test_a_version_is_read_as_each_server_says_it(setup: ModuleType, tmp_path: Path) -> None:
    for said, version in (
        ("haproxy version 2.6.12-1 2023", "2.6.12"),
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0)", "15.18"),
        ("something else 1.2", ""),
    ):
        assert setup.version_of(program(tmp_path / "lamp", f'echo "{said}"'), a_server(setup)) == version


def test_a_server_in_a_folder_of_its_version_is_wrapped_too(setup: ModuleType) -> None:
    program(setup.TOOLS / "root/usr/lib/postgresql/15/bin/lampd", "echo lampd runs")
    setup.write_wrapper("lampd")
    done = subprocess.run([setup.TOOLS / "bin/lampd"], capture_output=True, text=True, check=True)
    assert done.stdout == "lampd runs\n"


def test_a_server_of_another_version_is_not_linked(setup: ModuleType, machine: Path) -> None:
    assert not setup.link_from_machine(a_server(setup, "2.4.", "3."))
    assert list((setup.TOOLS / "bin").iterdir()) == []


def test_a_server_with_half_of_its_binaries_is_not_linked(setup: ModuleType, machine: Path) -> None:
    (machine / "lampctl").unlink()
    assert not setup.link_from_machine(a_server(setup, "2.42."))


def test_a_binary_that_does_not_run_has_no_version(setup: ModuleType, tmp_path: Path) -> None:
    server = a_server(setup, "2.42.")
    assert setup.version_of(program(tmp_path / "lamp", "echo version 2.42.1; exit 1"), server) == ""
    assert setup.version_of(tmp_path / "absent", server) == ""
    assert setup.version_of(program(tmp_path / "lamp", "echo version 2.42.1"), server) == "2.42.1"


def test_a_starter_keeps_the_pid_and_finds_the_unpacked_libraries(setup: ModuleType, tmp_path: Path) -> None:
    """A server is stopped by the pid it was started with, so nothing may stand in between."""
    program(setup.TOOLS / "root/usr/sbin/lamp", 'echo "$$ $LD_LIBRARY_PATH $1"; exec sleep 60')
    setup.write_wrapper("lamp")
    (tmp_path / "link").symlink_to(setup.TOOLS / "bin/lamp")
    log = tmp_path / "log"
    process = start([tmp_path / "link", "an argument"], log)
    try:
        said = eventually(lambda: log.read_text().strip(), 20)
    finally:
        stop(process)
    pid, libraries, argument = said.split(" ", 2)
    assert int(pid) == process.pid
    assert libraries.startswith(f"{setup.TOOLS / 'bin'}/../root/usr/lib/")
    assert argument == "an argument"


def test_a_folder_that_is_compiled_in_is_found_where_it_was_unpacked(setup: ModuleType) -> None:
    """The program's length is kept, and its data need not be where installing would have put them."""
    data = "/usr/share/lamps-of-the-house"
    binary = program(setup.TOOLS / "root/usr/bin/lamp", f"cat {data}/colour")
    size = binary.stat().st_size
    colour = setup.TOOLS / "root" / data[1:] / "colour"
    colour.parent.mkdir(parents=True)
    colour.write_text("green")
    setup.write_wrapper("lamp", data)
    shown = subprocess.run([setup.TOOLS / "bin/lamp"], capture_output=True, text=True, check=True)
    assert (shown.stdout, binary.stat().st_size) == ("green", size)


def test_a_program_that_does_not_name_the_folder_is_left_as_it_is(setup: ModuleType) -> None:
    binary = program(setup.TOOLS / "root/usr/bin/lamp", "echo on")
    before = binary.read_bytes()
    setup.write_wrapper("lamp", "/usr/share/lamps-of-the-house")
    assert binary.read_bytes() == before
    assert "<" not in (setup.TOOLS / "bin/lamp").read_text()


def test_a_package_without_the_binary_says_so(setup: ModuleType) -> None:
    with pytest.raises(setup.SetupError, match="lamp is in none of the packages"):
        setup.write_wrapper("lamp")


def test_a_machine_without_apt_is_told_the_packages(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup.SetupError, match=r"lamp \(lamp, lampctl; tested: 2\.42\.x\).*make setup"):
        setup.unpack([a_server(setup, "2.42.")])


def test_a_failed_command_shows_the_end_of_its_log_and_a_remedy(setup: ModuleType) -> None:
    with pytest.raises(setup.SetupError) as caught:
        setup.run([sys.executable, "-c", "print('no such moon'); raise SystemExit(3)"], "Look up.")
    assert all(part in str(caught.value) for part in ("no such moon", "Look up.", str(setup.LOG)))
    with pytest.raises(setup.SetupError, match="could not be started"):
        setup.run([setup.TOOLS / "absent"], "Look up.")


def test_nothing_is_done_twice_and_a_change_is_noticed(setup: ModuleType, tmp_path: Path) -> None:
    stamp = tmp_path / "stamp"
    assert not setup.up_to_date(stamp, "one")
    stamp.write_text("one")
    assert setup.up_to_date(stamp, "one")
    assert not setup.up_to_date(stamp, "two")


def test_the_python_key_follows_the_lock(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = setup.python_key()
    assert setup.python_key() == before
    (tmp_path / "requirements.lock").write_text("another")
    monkeypatch.setattr(setup, "LOCK", tmp_path / "requirements.lock")
    assert setup.python_key() != before


def test_an_old_python_is_refused_with_a_sentence(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 9))
    with pytest.raises(setup.SetupError, match=r"Trimtab needs 3\.11 or newer"):
        setup.require_python()


def test_the_script_needs_nothing_but_the_standard_library() -> None:
    """It runs before anything is installed."""
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text("utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "fcntl" in imported
    assert {name.split(".")[0] for name in imported} - sys.stdlib_module_names == set()
