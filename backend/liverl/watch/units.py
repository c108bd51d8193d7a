"""What is watched, as services with lasting names: processes that were found, and logs without a process. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from liverl.external.litellm import option
from liverl.external.ray_cluster import parse, reachable
from liverl.model import ServiceKind
from liverl.util.plural import quantity
from liverl.watch.folder import LogFound
from liverl.watch.mirror import service_name
from liverl.watch.processes import Found

STILL_S = (
    300.0  # seconds behind another trainer's log, after which one is left for that (an estimate: a long step)
)
UNSEEN = "its process is not visible from here"  # of a log that grew a moment ago
# Of a log whose file alone says when it was written, and which was not seen to grow
MAY_BE_COPIED = "was written, or copied,"
MOST_LOGS = 40  # services that are logs only; of more the newest

_SERVERS: dict[str, ServiceKind] = {"replica": "replica", "proxy": "proxy"}  # by the role of their logs
_PREFIX: dict[str, str] = {"replica": "replica", "proxy": "proxy", "ray": "ray", "trainer": "trainer"}


class Unit(msgspec.Struct, frozen=True):
    """A service to be. ``process``: None for a log without one; ``log``: None if its output is in no file; ``pid``: of
    the process, or of another one that has the log open for writing."""

    kind: ServiceKind
    process: Found | None = None
    log: Path | None = None
    what: str = ""
    pid: int | None = None
    size: int = 0
    modified: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """What stays the same when the process is started again. A log that turns out to be the trainer's is another
        service from then on: metrics are read from that one."""
        process = self.process
        if process is None:
            return ("log", self.kind, os.fspath(self.log or ""))
        if process.port is not None:
            return (self.kind, process.port)
        return (self.kind, os.fspath(self.log or process.cwd))


def units(
    found: Iterable[Found],
    logs: Iterable[LogFound],
    writing: Mapping[Path, int],
    stats: Mapping[Path, tuple[int, float]],
    trained: Path | None = None,
) -> list[Unit]:
    """One unit per process, trainers the newest first, then one per log, the newest first. ``logs``: those that
    none of the processes writes; ``writing``: log -> pid
    that has it open; ``stats``: log of a process -> size, Unix time of its last change; ``trained``: which log is the
    trainer's, None: the newest one of a trainer."""
    result = []
    found = sorted(found, key=lambda one: -one.tick if one.kind == "trainer" else one.tick)
    for process in found:
        size, modified = stats.get(process.log, (0, 0.0)) if process.log is not None else (0, 0.0)
        result.append(Unit(process.kind, process, process.log, _title(process), process.pid, size, modified))
    alone = sorted((log for log in logs if log.role != "ray"), key=lambda log: log.modified, reverse=True)
    trainer = any(process.kind == "trainer" for process in found)
    alone = alone[:MOST_LOGS]
    if all(log.path != trained for log in alone):
        trained = None
    for log in alone:
        chosen = log.role == "trainer" and trained in (None, log.path)
        kind: ServiceKind = _SERVERS.get(log.role, "task")
        kind = "trainer" if chosen and not trainer else kind
        trainer = trainer or kind == "trainer"
        result.append(Unit(kind, None, log.path, log.what, writing.get(log.path), log.size, log.modified))
    return result


class TrainerLog:
    """Which of the trainers' logs without a process is that of the run: of two that are written in turns always the
    same one, or the run would be another one at each look."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._seen: frozenset[Path] = frozenset()

    def of(self, logs: Iterable[LogFound]) -> Path | None:
        """The newest one at the first look; then the same, until a new one is written, or another one goes on while it
        is still. None without any."""
        found = sorted((log for log in logs if log.role == "trainer"), key=lambda log: -log.modified)
        held = next((log for log in found if log.path == self._path), None)
        later = (
            log
            for log in found
            if held is None
            or (
                log.modified > held.modified
                and (log.path not in self._seen or log.modified - held.modified > STILL_S)
            )
        )
        chosen = next(later, held)
        self._path = None if chosen is None else chosen.path
        self._seen |= {log.path for log in found}
        return self._path


def left_out(logs: Iterable[LogFound]) -> tuple[str, ...]:
    """What of ``logs``, those of no process, becomes no service, in words. Pure."""
    alone = sorted((log for log in logs if log.role != "ray"), key=lambda log: log.modified, reverse=True)
    if len(alone) <= MOST_LOGS:
        return ()
    number = quantity(len(alone) - MOST_LOGS, "log")
    return (f"{number} older than the newest {MOST_LOGS}, such as {alone[MOST_LOGS].path}",)


def _title(process: Found) -> str:
    if process.engine == "sglang":
        return {"replica": "SGLang", "proxy": "SGLang's router"}[process.kind]
    return {"replica": "vllm serve", "proxy": "LiteLLM", "ray": "Ray", "trainer": "trainer"}[process.kind]


class Names:
    """Names that last: a process that is started again, and the process behind a log, get the same one."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], str] = {}
        self._by_log: dict[tuple[str, str], str] = {}

    def assign(self, all_units: Iterable[Unit]) -> dict[str, Unit]:
        """Name -> unit, in the order of ``all_units``."""
        given: dict[str, Unit] = {}
        for unit in all_units:
            log = (unit.kind, os.path.realpath(unit.log)) if unit.log is not None else None
            name = self._by_key.get(unit.key) or (self._by_log.get(log) if log is not None else None)
            if name is None or name in given:
                name = self._new(unit, given)
            given[name] = unit
            self._by_key[unit.key] = name
            if log is not None:
                self._by_log.setdefault(log, name)
        return given

    def _new(self, unit: Unit, given: Mapping[str, Unit]) -> str:
        taken = {*self._by_key.values(), *given}
        if unit.kind == "trainer" and "trainer" not in given:
            return "trainer"  # a later start is its next generation
        if unit.process is None and unit.kind in _SERVERS and unit.log is not None:
            stem = service_name(unit.log.stem)  # says more than a number
            return stem if stem not in taken else _numbered(stem, taken, 2)
        if unit.kind in _PREFIX and unit.kind != "replica" and _PREFIX[unit.kind] not in taken:
            return _PREFIX[unit.kind]
        if unit.kind == "replica":
            return _numbered("replica", taken, 0)
        stem = service_name(unit.log.stem if unit.log is not None else _PREFIX.get(unit.kind, "service"))
        return stem if stem not in taken else _numbered(stem, taken, 2)


def _numbered(stem: str, taken: Iterable[str], first: int) -> str:
    taken = set(taken)
    number = first
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def address_of(process: Found) -> str | None:
    """``http://host:port`` at which a client on this host reaches a server; None if it is none."""
    if process.kind == "ray":
        dashboard = parse(process.argv)
        return None if dashboard is None else f"http://{reachable(dashboard.host)}:{dashboard.first}"
    if process.port is None:
        return None
    host = reachable(option(process.argv, "--host") or "127.0.0.1")
    return f"http://[{host}]:{process.port}" if ":" in host else f"http://{host}:{process.port}"


def belongs(process: Found, folders: Iterable[Path]) -> bool:
    """Whether a process is part of the run in these folders: it works there, writes its log there, or names a path in
    one on its command line."""
    for folder in folders:
        text = os.path.realpath(folder)
        if any(_inside(path, text) for path in (process.cwd, os.fspath(process.log or ""))):
            return True
        if any(f"{text}/" in word or word.endswith(text) for word in process.argv):
            return True
    return False


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
