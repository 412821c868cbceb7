"""Writing rendered files so that a crash leaves either the old or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from controlplane.adapters.gateways.haproxy.render import CONFIG_FILE, RenderedFiles
from controlplane.ports import Unavailable


def write(files: RenderedFiles, directory: Path) -> Path:
    """Write all files into `directory` (made if absent); answers the configuration's path.

    Each file is replaced at once, the configuration last. Raises Unavailable, naming the file.
    """
    for name, content in files.by_name().items():
        _replace(directory / name, content)
    return directory / CONFIG_FILE


def _replace(path: Path, content: str) -> None:
    """tmp + fsync + rename + fsync of the directory: HAProxy, restarted at any moment, reads a whole file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as sink:
                sink.write(content)
                sink.flush()
                os.fchmod(sink.fileno(), 0o644)
                os.fsync(sink.fileno())
            Path(name).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror or error}") from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
