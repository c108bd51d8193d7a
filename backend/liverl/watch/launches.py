"""The newest launch in a folder of somebody else's runs, which keeps the logs of all of them: only it is the watched
run. An old failure is no verdict on it, and old trials are none of its trials."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from liverl.logs.launches import Written, divide
from liverl.logs.zones import Stamps, span_here
from liverl.procs import procfs
from liverl.procs.procfs import Proc
from liverl.watch.folder import LogFound
from liverl.watch.log_times import ends_of
from liverl.watch.processes import Found

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


def launches(
    logs: Iterable[LogFound],
    begun: float | None,
    written: Collection[Path],
    stamps_of: Callable[[LogFound], Stamps],
    trainer: bool = True,
) -> Launches:
    """Divide ``logs``. ``begun``: when the processes of the newest launch were started, None if none is visible;
    ``written``: logs that a process has open for writing, which are of the newest launch whatever their age;
    ``trainer``: one of those processes is a trainer."""
    logs = sorted(logs, key=lambda log: log.modified, reverse=True)
    told = begun is not None and trainer
    found = divide(
        _undated(logs) if told else _dated(logs, stamps_of),
        begun,
        trainer=trainer,
        kept=frozenset(os.fspath(path) for path in written),
    )
    earlier = tuple(log for log in logs if os.fspath(log.path) in found.earlier)
    return Launches(found.began, tuple(log for log in logs if log not in earlier), earlier)


def _undated(logs: Sequence[LogFound]) -> list[Written]:
    return [Written(os.fspath(log.path), log.modified, None, log.role == "trainer") for log in logs]


def _dated(logs: Sequence[LogFound], stamps_of: Callable[[LogFound], Stamps]) -> list[Written]:
    """The same with the beginnings of trainers' logs, by their stamps."""
    trainers = [log for log in logs if log.role == "trainer"]
    spans = {log.path: span_here(stamps_of(log), log.modified) for log in trainers if len(trainers) > 1}
    found = []
    for log, one in zip(logs, _undated(logs), strict=True):
        span = spans.get(log.path)
        found.append(one if span is None else msgspec.structs.replace(one, begin=span[0]))
    return found


class LogStamps:
    """Reads the stamps at both ends of logs, again where they have grown."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, float, Stamps]] = {}

    def __call__(self, log: LogFound) -> Stamps:
        """Those of one log; none if it cannot be read."""
        known = self._known.get(log.path)
        if known is None or known[:2] != (log.size, log.modified):
            known = self._known[log.path] = (
                log.size,
                log.modified,
                ends_of(log.path, log.size, log.modified).stamps,
            )
        return known[2]


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
