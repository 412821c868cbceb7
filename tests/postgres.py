"""A real PostgreSQL for the length of a test run: in a folder of its own, on a Unix socket alone.

It sorts text as people do and not by bytes, as servers in production mostly do: what depends on the
order of text is found out here.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from controlplane.adapters.sql.engine import open_engine
from controlplane.adapters.sql.migrate import migrate
from controlplane.binaries import find
from controlplane.ports import InvalidConfig
from tests.support import TOOLS, eventually, start

STARTED_S = 60.0
SUPERUSER = "trimtab"
TEMPLATE = "migrated"
UNHURT = ("fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0", "autovacuum=off")
SMALL = ("shared_buffers=32MB", "max_connections=80", "listen_addresses=")


PLACES = tuple(Path(each) for each in (*os.environ["PATH"].split(os.pathsep), "/usr/sbin") if each)


class CannotRun(Exception):
    """Why there is no PostgreSQL here."""


class Postgres:
    """One server. `stop` and `start` may be called in any order; databases outlive both."""

    def __init__(self, folder: Path, user: pwd.struct_passwd | None, postgres: Path) -> None:
        self.folder = folder
        self._user = user
        self._postgres = postgres
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0

    def start(self) -> None:
        """Until it answers. Nothing where it runs already."""
        if self._process is not None:
            return
        settings = [word for each in (*UNHURT, *SMALL) for word in ("-c", each)]
        command: list[str | Path] = [self._postgres, "-D", self.folder / "data", "-k", self.folder, *settings]
        self._process = start(command, self._output, environment(), self.folder, self._user)
        eventually(self._answers, STARTED_S, because=f"it does not answer; see {self._output}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """By its own pid; whoever is connected is cut off. Nothing where it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(how)
        try:
            process.wait(STARTED_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait()

    def url(self, database: str, user: str = SUPERUSER) -> str:
        """As a fleet file names a database of it."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """Another program at it: no setting of ours, no library of ours. Commits each statement."""
        return psycopg.connect(
            host=str(self.folder), dbname=database, user=SUPERUSER, autocommit=True, connect_timeout=5
        )

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """One statement on a connection of its own."""
        with closing(self.connect(database)) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template0") -> str:
        """A new database's name. `TEMPLATE`: one that is migrated already."""
        self._made += 1
        name = f"test{self._made}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, database: str) -> None:
        """Also where somebody is connected."""
        self.run(f"DROP DATABASE {database} WITH (FORCE)")

    def processes(self) -> list[int]:
        """The server and those that serve a connection: what stands still where a machine does."""
        assert self._process is not None
        rows = self.run("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        return [self._process.pid, *(int(str(pid)) for (pid,) in rows)]

    @property
    def _output(self) -> Path:
        return self.folder / "postgres.log"

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise AssertionError(f"PostgreSQL ended:\n{self._output.read_text('utf-8')[-2000:]}")
        with suppress(psycopg.OperationalError):
            return self.run("SELECT 1") == [(1,)]
        return False


def environment() -> dict[str, str]:
    """No setting of the caller's reaches the server."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def unprivileged() -> pwd.struct_passwd | None:
    """Whom it runs as: PostgreSQL refuses root. None: as ourselves. Raises CannotRun."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise CannotRun("PostgreSQL refuses root, and there is neither a user postgres nor nobody")


def runs(binary: Path, user: pwd.struct_passwd | None) -> bool:
    """Whether this user can start it at all."""
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                [binary, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment(),
                cwd="/",
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )
        except OSError:
            return False
        return process.wait(STARTED_S) == 0


def binaries(user: pwd.struct_passwd | None, folder: Path, tools: Path = TOOLS) -> tuple[Path, Path]:
    """`postgres` and `initdb`, as this user can run them. Raises CannotRun.

    A checkout in root's own home is closed to anybody else: then what was unpacked there is linked
    into `folder`.
    """
    try:
        first, second = (find(name, [tools, *PLACES]).resolve() for name in ("postgres", "initdb"))
    except InvalidConfig as error:
        raise CannotRun(str(error)) from error
    if not (runs(first, user) and runs(second, user)) and (tools.parent / "root").is_dir():
        _link_tools(tools, folder)
        first, second = folder / "bin/postgres", folder / "bin/initdb"
    if not (runs(first, user) and runs(second, user)):
        raise CannotRun(f"{first} does not run as user {user.pw_name if user else os.geteuid()}")
    return first, second


def _link_tools(tools: Path, folder: Path) -> None:
    """PostgreSQL, its data and its libraries, laid out as `make setup` does, for everybody to read."""
    for each in ("bin", "root", "root/usr", "root/usr/share"):
        (folder / each).mkdir()
        (folder / each).chmod(0o755)
    for name in ("postgres", "initdb"):
        shutil.copy(tools / name, folder / "bin" / name)
    root = tools.parent / "root"
    for each in ("lib", "usr/lib", "usr/share/postgresql"):
        if (root / each).is_dir():
            shutil.copytree(root / each, folder / "root" / each, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, target, follow_symlinks=False)


def _new_cluster(folder: Path, user: pwd.struct_passwd | None, initdb: Path) -> None:
    options = ["--no-sync", "--auth=trust", f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C"]
    by_language = ["--locale-provider=icu", "--icu-locale=en-US"]
    command: Sequence[str | Path] = [initdb, "-D", folder / "data", *options, *by_language]
    output = folder / "initdb.log"
    if start(command, output, environment(), folder, user).wait(STARTED_S):
        raise AssertionError(f"initdb failed:\n{output.read_text('utf-8')[-2000:]}")


@contextmanager
def server() -> Iterator[Postgres]:
    """A server with an empty and a migrated template. Raises CannotRun."""
    user = unprivileged()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-pg-")))
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        postgres, initdb = binaries(user, folder)
        _new_cluster(folder, user, initdb)
        opened = Postgres(folder, user, postgres)
        stack.callback(opened.stop, signal.SIGQUIT)  # nobody needs its last checkpoint
        opened.start()
        _template(opened)
        yield opened


def _template(opened: Postgres) -> None:
    opened.run(f"CREATE DATABASE {TEMPLATE}")
    engine = open_engine(opened.url(TEMPLATE))
    try:
        migrate(engine)
    finally:
        engine.dispose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of this process."""
    try:
        with server() as opened:
            yield opened
    except CannotRun as error:
        pytest.skip(re.sub(r"\s+", " ", str(error)))
