"""The right to act, on SQLite: one controller a file, by a lock that the kernel gives back."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from controlplane.ports import Unavailable


class FileLease:
    """Holds `<database>.lock` while it leads. A crash releases it, a frozen holder keeps it."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock. False where another process has it. Raises Unavailable where the file
        can't be made."""
        if self._file is not None:
            return True
        try:
            opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(opened)
            return False
        os.ftruncate(opened, 0)
        os.write(opened, f"{os.getpid()}\n".encode())
        self._file = opened
        return True

    def held(self) -> bool:
        """Whether this process leads, and its lock file is still the one that others would meet."""
        if self._file is None:
            return False
        try:
            mine, theirs = os.fstat(self._file), self._path.stat()
        except OSError:
            return False
        return (mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino)

    def holder(self) -> str:
        """Who leads, as far as the file tells: a process id, or nobody known."""
        try:
            return self._path.read_text("utf-8").strip() or "unknown"
        except OSError:
            return "unknown"

    def release(self) -> None:
        """Give it back; the file stays, unlocked."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
