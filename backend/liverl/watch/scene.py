"""What was found on this host of a watched run: its services, by process or log, and their process trees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from liverl.external.model_list import place
from liverl.logs.zones import span_here
from liverl.procs import procfs
from liverl.procs.procfs import Proc
from liverl.watch.engines import EngineFinder
from liverl.watch.folder import LogFound, Survey
from liverl.watch.launches import LogStamps, launch_began, launches
from liverl.watch.log_times import LogTimes
from liverl.watch.processes import Found, ProcessFinder, descendants, writers
from liverl.watch.replicas import Candidate
from liverl.watch.target import Target
from liverl.watch.units import Names, TrainerLog, Unit, address_of, belongs, left_out, units


class Scene(msgspec.Struct, frozen=True):
    """``trees``: service -> pids of its processes; ``found``: all servers and trainers of this user, also those
    that are not of the watched run; ``parents``: pid -> parent, of all processes; ``began``: when the newest launch
    began, Unix seconds, None if that is not known; ``earlier``: logs of launches before it, the newest first;
    ``engines``: replicas that a trainer has started, found by their processes; ``left_out``: what is no service
    because of a limit, in words; ``first``: Unix time of the first line of the logs of the newest launch, as well as
    they tell it, None without one."""

    services: dict[str, Unit] = {}
    trees: dict[str, tuple[int, ...]] = {}
    found: tuple[Found, ...] = ()
    parents: dict[int, int] = {}
    began: float | None = None
    earlier: tuple[LogFound, ...] = ()
    engines: tuple[Candidate, ...] = ()
    left_out: tuple[str, ...] = ()
    first: float | None = None

    def below(self, leader: int) -> list[int]:
        """The process and all that descend from it."""
        return [pid for pid in self.parents if _is_below(pid, leader, self.parents)]

    @property
    def processes(self) -> list[Found]:
        """Those of the watched run."""
        return [unit.process for unit in self.services.values() if unit.process is not None]


class SceneFinder:
    """Looks for the services of ``target``; a service keeps its name from look to look."""

    def __init__(self, target: Target, times: LogTimes | None = None) -> None:
        self._target, self._times = target, times or LogTimes()
        self._finder, self._names, self._trainer_log = ProcessFinder(), Names(), TrainerLog()
        self._written: set[str] = set()  # logs of processes that were found once: no services of their own
        self._stamps = LogStamps()
        self._engines = EngineFinder(self._finder.boot, all_of_them=not target.named)
        self._begun: float | None = None  # of the newest launch whose processes were seen
        self._trained = False  # a trainer was among them
        self._seen: dict[Path, float] = {}  # log -> when it was last written, as of the first look at it

    def look(self, survey: Survey) -> Scene:
        """What is there now. ``survey``: of the target's folders."""
        table = procfs.scan()
        found = self._finder.look(table)
        mine = [one for one in found if is_part(one, self._target)]
        self._written |= {os.path.realpath(one.log) for one in mine if one.log is not None}
        self._times.together(log.path for log in survey.logs)
        logs = [
            replace(log, modified=self._times(log.path)[1])
            for log in survey.logs
            if os.path.realpath(log.path) not in self._written
        ]
        stats = {one.log: stat_of(one.log) for one in mine if one.log is not None}
        begun = launch_began(mine, table, self._finder.boot)
        self._trained = self._trained or any(one.kind == "trainer" for one in mine)
        if begun is not None:
            self._begun = max(begun, self._begun or begun)
        writing = writers(log.path for log in logs)
        known = launches(logs, self._begun, writing.keys(), self._stamps, self._trained)
        trained = self._trainer_log.of(known.current)
        named = self._names.assign(units(mine, known.current, writing, stats, trained))
        parents = {pid: proc.ppid for pid, proc in table.items()}
        trees = _trees(table, named)
        engines = self._engines.look(
            table,
            [unit.pid for unit in named.values() if unit.pid is not None],
            {one.pid for one in mine if one.kind == "replica"},
            [unit.log for unit in named.values() if unit.log is not None],
            known.began,
        )
        return Scene(
            named,
            trees,
            tuple(found),
            parents,
            known.began,
            known.earlier,
            tuple(engines),
            left_out(known.current),
            min((self._first(log) for log in known.current), default=None),
        )

    def _first(self, log: LogFound) -> float:
        """When the first line of a log was written, as well as its stamps tell it; without any, when it was last
        written before it was first seen here: its time of change moves on with each line."""
        seen = self._seen.setdefault(log.path, log.modified)
        span = span_here(self._stamps(log), log.modified) if log.role == "trainer" else None
        return seen if span is None else min(span[0], seen)


def is_part(process: Found, target: Target) -> bool:
    """Whether a process is part of what the user named; without any name all are but those of runs of liverl-tui.
    Pure."""
    if not target.named:
        return not process.tagged
    if process.kind == "proxy" and process.port == target.litellm_port:
        return True
    if process.kind == "ray" and target.ray is not None:
        return place(address_of(process) or "") == place(target.ray)
    if target.folders:
        return belongs(process, target.folders)
    return process.kind == "trainer" and not process.tagged


def stat_of(path: Path) -> tuple[int, float]:
    """Size in bytes and Unix time of the last change; zeros if the file is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0.0
    return status.st_size, status.st_mtime


def ray_logs(survey: Survey) -> list[LogFound]:
    """The logs of Ray's own processes: they are judged, and no services."""
    return [log for log in survey.logs if log.role == "ray"]


def _trees(table: Mapping[int, Proc], services: Mapping[str, Unit]) -> dict[str, tuple[int, ...]]:
    leaders = {unit.pid: name for name, unit in services.items() if unit.pid is not None}
    return {leaders[pid]: tuple(sorted(tree)) for pid, tree in descendants(table, leaders).items()}


def _is_below(pid: int, leader: int, parents: Mapping[int, int]) -> bool:
    seen: set[int] = set()
    while pid in parents and pid not in seen:
        if pid == leader:
            return True
        seen.add(pid)
        pid = parents[pid]
    return False
