"""Divides the logs of a folder into those of the newest launch and those of earlier launches.

A folder of somebody else's runs keeps the logs of all of them. Only the newest launch is the watched run: an old
failure is no verdict on it, and old trials are none of its trials.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from liverl.logs.records import RecordReader
from liverl.procs import procfs
from liverl.procs.procfs import Proc
from liverl.util.regular_file import open_binary
from liverl.watch.folder import LogFound
from liverl.watch.processes import Found

ENDS = 64 << 10  # bytes at each end of a log that are searched for a stamp
# Two logs of one launch that were last written within so many seconds of each other (one of them may be buffered).
TOGETHER_S = 120.0
ZONE_S = 900.0  # zones differ by multiples of 15 minutes
_SHELLS = frozenset(
    ("bash", "sh", "dash", "zsh", "ksh", "env", "setsid", "nohup", "timeout", "stdbuf", "srun")
)

_TYPED = frozenset(("-i", "--rcfile", "--init-file"))  # options of a shell that somebody types in


class Launches(msgspec.Struct, frozen=True):
    """``began``: when the newest launch began, Unix seconds, None if that is not known; ``current``: its logs;
    ``earlier``: the logs of launches before it, the newest first."""

    began: float | None = None
    current: tuple[LogFound, ...] = ()
    earlier: tuple[LogFound, ...] = ()


class LogSpan(msgspec.Struct, frozen=True):
    """Unix seconds of the first and the last stamp of a log, None without one."""

    first: float | None = None
    last: float | None = None


def launches(
    logs: Iterable[LogFound],
    begun: float | None,
    written: Collection[Path],
    span: Callable[[LogFound], LogSpan],
    trainer: bool = True,
) -> Launches:
    """Divide ``logs``. ``begun``: when the processes of the newest launch were started, None if none is visible;
    ``written``: logs that a process has open for writing, which are of the newest launch whatever their age;
    ``trainer``: one of those processes is a trainer. Servers alone may outlive many launches."""
    logs = sorted(logs, key=lambda log: log.modified, reverse=True)
    known = (begun,) if begun is not None and trainer else (begun, _began(logs, span))
    began = max((one for one in known if one is not None), default=None)
    if began is None:
        return Launches(None, tuple(logs))
    current = tuple(log for log in logs if log.path in written or log.modified >= began)
    return Launches(began, current, tuple(log for log in logs if log not in current))


def _began(logs: Iterable[LogFound], span: Callable[[LogFound], LogSpan]) -> float | None:
    """When the newest of several launches began, of which no process is visible: each has a trainer's log of its
    own. None if there are no two."""
    trainers = [log for log in logs if log.role == "trainer"]
    before = [log for log in trainers if trainers[0].modified - log.modified > TOGETHER_S]
    if not before:
        return None
    newest = trainers[0]
    first = began_by_stamps(span(newest), newest.modified)
    ended = max(log.modified for log in before)
    # One that was still written when the newest began is of the same launch.
    return first if first is not None else ended + TOGETHER_S


def began_by_stamps(span: LogSpan, modified: float) -> float | None:
    """When the first line of a log was written, by its stamps. They may be of another zone than this host's clock (a
    container prints UTC): a last stamp that lies after the file's last change tells by how much. Pure."""
    if span.first is None or span.last is None:
        return None
    ahead = span.last - modified
    shift = -(-ahead // ZONE_S) * ZONE_S if ahead > TOGETHER_S else 0.0
    return span.first - shift


class LogSpans:
    """Reads the spans of logs, each once."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, float, LogSpan]] = {}

    def __call__(self, log: LogFound) -> LogSpan:
        known = self._known.get(log.path)
        if known is None or known[:2] != (log.size, log.modified):
            known = self._known[log.path] = (log.size, log.modified, _span(log))
        return known[2]


def _span(log: LogFound) -> LogSpan:
    try:
        with open_binary(log.path) as file:
            head = file.read(ENDS)
            file.seek(max(0, log.size - ENDS))
            tail = file.read(ENDS)
    except OSError:
        return LogSpan()  # removed meanwhile, or not readable
    return LogSpan(
        next(iter(_times(head, log.modified)), None), max(_times(tail, log.modified), default=None)
    )


def _times(data: bytes, modified: float) -> list[float]:
    reader = RecordReader(modified)
    whole = data[: data.rfind(b"\n") + 1]
    return [record.at for record in (*reader.feed(whole), *reader.end()) if record.at is not None]


def launch_began(processes: Iterable[Found], table: Mapping[int, Proc], boot: float) -> float | None:
    """When the newest launch began: the trainer that was started last, or the script above it that started servers
    first; without a trainer the oldest server. None without a process. ``boot``: Unix time of the host's start."""
    processes = list(processes)
    trainers = [one for one in processes if one.kind == "trainer"]
    if not trainers:
        return min((one.started_at for one in processes), default=None)
    newest = max(trainers, key=lambda one: one.started_at)
    began, above = newest.started_at, table.get(newest.pid)
    while above is not None and (parent := table.get(above.ppid)) is not None and _is_script(parent.pid):
        began, above = min(began, boot + parent.tick / os.sysconf("SC_CLK_TCK")), parent
    return began


def _is_script(pid: int) -> bool:
    """Whether a process is a shell or a wrapper that runs a script or a command, and no shell that a user types in."""
    argv = procfs.arguments(pid)
    if len(argv) < 2 or os.path.basename(argv[0]) not in _SHELLS or _TYPED & {*argv}:
        return False
    return any(not word.startswith("-") for word in argv[1:])
