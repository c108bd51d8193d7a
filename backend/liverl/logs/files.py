"""Lists the log files of a run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from liverl.rundir.layout import TRAIN_LOG
from liverl.rundir.log_names import read_log_name

if TYPE_CHECKING:
    from liverl.rundir.layout import RunDir

_OF_RAY = ("raylet.*", "gcs_server.*", "worker-*.err", "worker-*.out", "python-core-*.log")
MOST_OF_RAY = 40  # logs; a session of a large run has thousands


class LogFile(msgspec.Struct, frozen=True):
    """The log of one generation of a service."""

    service: str
    generation: int
    path: Path


def log_files(run: RunDir, services: tuple[str, ...] = ()) -> list[LogFile]:
    """Return the logs of the newest attempt: all generations, oldest first within a service."""
    attempts = run.attempts()
    if not attempts:
        return []
    wanted = [f for f in _logs_in(run.logs(attempts[-1])) if not services or f.service in services]
    return sorted(wanted, key=lambda f: (f.service, f.generation))


def also_written(log: Path) -> list[Path]:
    """The logs that the process with the output ``log`` has written elsewhere: links beside it, of the same generation.
    The trainer's is the first."""
    written = read_log_name(log.name)
    if written is None or written.service != "trainer":
        return []
    files = [f for f in _logs_in(log.parent, links=True) if f.generation == written.generation]
    order = sorted(files, key=lambda f: (f.service != TRAIN_LOG, f.service))
    return [file.path for file in order]


def ray_logs(folder: Path, since: float) -> list[Path]:
    """``session_logs`` of the newest session of Ray in its directory ``folder``."""
    return session_logs(folder / "session_latest" / "logs", since)


def session_logs(folder: Path, since: float) -> list[Path]:
    """The logs of a session of Ray that were written to since Unix time ``since``: of its own processes, and of the
    workers that wrote last. ``folder``: with the logs of the session."""
    found: list[tuple[float, Path]] = []
    for pattern in _OF_RAY:
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                facts = path.stat()
                if facts.st_size and facts.st_mtime >= since:
                    found.append((facts.st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)[:MOST_OF_RAY]]


def history(run: RunDir) -> dict[str, list[LogFile]]:
    """Return the logs of every service over all attempts, oldest first."""
    by_service: dict[str, list[LogFile]] = {}
    for attempt in run.attempts():
        for file in sorted(_logs_in(run.logs(attempt)), key=lambda f: f.generation):
            by_service.setdefault(file.service, []).append(file)
    return by_service


def _logs_in(folder: Path, *, links: bool = False) -> list[LogFile]:
    """The logs in a folder. ``links``: only links, which the list of the folder tells apart: no file is looked at, as
    a run of many replicas has a log of each."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not links or entry.is_symlink()]
    except OSError:
        return []
    return [LogFile(*name, folder / entry) for entry in names if (name := read_log_name(entry)) is not None]
