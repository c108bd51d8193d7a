"""What runs, and what has run, apart from the journal: the keeper's records, its exit files, the tags in the
environment of processes, the recorded process trees, and the names of logs.

A journal can be damaged or missing. ``rebuild`` completes the history with this, so that every living process is
adopted and no service is started beside itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from liverl.model import Exit
from liverl.plan.spec import ServiceSpec
from liverl.procs import procfs
from liverl.procs.procfs import Proc
from liverl.procs.tree import Member
from liverl.rundir.journal import JournalContent, read_journal
from liverl.rundir.layout import RunDir, read_backend
from liverl.rundir.log_names import LogName, read_log_name
from liverl.supervise.recovery.replay import (
    Intent,
    Number,
    Pid,
    RunHistory,
    ServiceHistory,
    Sighting,
    add_members,
    complete,
    read_history,
)
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

_OTHERS = ("backend", "keeper", "client")  # tags of processes that are no service


class _Child(msgspec.Struct):
    """The keeper's record of a process, also in ``exits/TOKEN.json``. Older keepers do not send ``about``."""

    pid: Pid
    token: str = ""
    tick: Number | None = None
    exit: Exit | None = None
    about: Any = None


@dataclass
class _Found:
    child: _Child | None = None
    procs: dict[int, Proc] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """What is known of a run: its history, and the journal that it was read from."""

    history: RunHistory
    journal: JournalContent

    @property
    def damaged(self) -> tuple[int, ...]:
        """The numbers of the journal's damaged lines."""
        numbers = self.journal.numbers
        return tuple(sorted({*self.journal.damaged, *(numbers[at] for at in self.history.skipped)}))

    def damage(self, path: Path) -> str | None:
        """One sentence on what is wrong with the journal at ``path``; None if nothing is."""
        if self.journal.problem:
            return f"{path} cannot be read: {self.journal.problem}"
        lines = self.damaged
        if not lines:
            return None
        shown = ", ".join(map(str, lines[:20])) + (", ..." if len(lines) > 20 else "")
        word = "lines" if len(lines) > 1 else "line"
        return f"{path}: {len(lines)} damaged {word} skipped ({word} {shown})"


def read_run(run_dir: Path, run: str) -> RunRecord:
    """The history of a run from its journal, with its newest attempt as the directory and its processes show it. See
    ``rebuild`` for the rest.

    Raises:
        OSError: the journal is a file and cannot be read.
    """
    paths = RunDir(run_dir)
    journal = read_journal(paths.journal)
    history = read_history(journal.records)
    _settle_attempt(history, run_dir, run)
    try:
        add_members(history, read_regular(paths.members))
    except OSError:
        pass
    return RunRecord(history, journal)


def _settle_attempt(history: RunHistory, run_dir: Path, run: str) -> None:
    """Correct the number of the newest attempt, the numbers of used generations, and the era by what the journal may
    have lost."""
    logs = {number: _logged(RunDir(run_dir).logs(number)) for number in RunDir(run_dir).attempts()}
    newest = max((number for number, names in logs.items() if names), default=0)
    for names in logs.values():
        for service, generation in names.items():
            history.highest[service] = max(history.highest.get(service, 0), generation)
    lost = newest > history.attempt or (not history.attempt and _tagged(run_dir, run))
    if lost:
        history.rebuilt = True
        history.attempt, history.attempt_started_at, history.attempt_monotonic = max(newest, 1), None, None
        history.era, history.ended, history.stop = "", False, None
        history.replicas, history.leaving = None, ()
        for number, names in logs.items():
            for service, generation in names.items() if number < newest else ():
                history.base[service] = max(history.base.get(service, 0), generation)
    if not history.era and _same_boot(run_dir, run):
        history.era = procfs.pid_era()


def _same_boot(run_dir: Path, run: str) -> bool:
    """Whether this host has not been started anew since the run's last backend, or a process of the run lives."""
    record = read_backend(run_dir)
    return (record is not None and record.boot_id == procfs.boot_id()) or bool(_tagged(run_dir, run))


def _logged(folder: Path) -> dict[str, int]:
    """The highest generation of each service that has a log in ``folder``."""
    found: dict[str, int] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in filter(None, map(read_log_name, names)):
        found[name.service] = max(found.get(name.service, 0), name.generation)
    return found


def rebuild(
    record: RunRecord, run_dir: Path, run: str, children: Iterable[Mapping[str, Any]] = ()
) -> list[Sighting]:
    """Complete the history with everything that is found of the run's services. ``children``: the keeper's records.
    Returns the living generations that the journal does not know as processes."""
    history = record.history
    same_boot = history.era == procfs.pid_era()
    sightings = look(run_dir, run, children, history.members if same_boot else {})

    def alive(pid: int, tick: int | None) -> bool:
        return same_boot and procfs.alive(pid, tick)

    return complete(history, sightings, alive)


def look(
    run_dir: Path,
    run: str,
    children: Iterable[Mapping[str, Any]] = (),
    trees: Mapping[str, Iterable[Member]] = {},
) -> list[Sighting]:
    """Every generation of a service that the keeper's records (``children``), its exit files, the tags of processes or
    the recorded process trees show."""
    found: dict[tuple[str, int], _Found] = {}

    def at(key: tuple[str, int]) -> _Found:
        return found.setdefault(key, _Found())

    for key, child in [*_exit_files(run_dir), *_children(children)]:  # the keeper's answer is the newer one
        at(key).child = child
    table = procfs.scan()
    for pid, tag in _tagged(run_dir, run, table).items():
        tagged = _key(tag.replace("/", "."))
        if tagged is not None:
            at(tagged).procs[pid] = table[pid]
    for name, members in trees.items():
        remembered = _key(name)
        for pid, tick in members if remembered is not None else ():
            if pid in table and table[pid].tick == tick and not table[pid].zombie and remembered is not None:
                at(remembered).procs[pid] = table[pid]
    return [sighting for key, what in found.items() if (sighting := _sighting(key, what, table)) is not None]


def _sighting(key: tuple[str, int], what: _Found, table: Mapping[int, Proc]) -> Sighting | None:
    child, procs = what.child, dict(what.procs)
    if child is not None:
        leader = table.get(child.pid)
        if child.exit is None and leader is not None and leader.tick == child.tick and not leader.zombie:
            procs[child.pid] = leader
        members = frozenset((proc.pid, proc.tick) for proc in procs.values())
        return Sighting(*key, child.pid, child.tick, members, True, True, child.exit, _intent(child.about))
    if not procs:
        return None
    oldest = min(procs.values(), key=lambda proc: (proc.tick, proc.pid))
    members = frozenset((proc.pid, proc.tick) for proc in procs.values())
    return Sighting(*key, oldest.pid, oldest.tick, members, led=oldest.session == oldest.pid, sure=False)


def _key(text: str) -> tuple[str, int] | None:
    """``service.generation`` as a pair; None if it is no such text."""
    service, _, number = text.rpartition(".")
    if not service or not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    return service, int(number)


def _children(children: Iterable[Mapping[str, Any]]) -> Iterable[tuple[tuple[str, int], _Child]]:
    for record in children:
        try:
            child = msgspec.convert(record, _Child)
        except msgspec.ValidationError:
            continue
        key = _key(child.token)
        if key is not None:
            yield key, child


def _exit_files(run_dir: Path) -> Iterable[tuple[tuple[str, int], _Child]]:
    folder = run_dir / "exits"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        key = _key(name.removesuffix(".json"))
        try:
            if key is not None:
                yield key, decode_json(read_regular(folder / name, 1 << 20), type=_Child)
        except (OSError, ValueError, RecursionError):
            continue


def _intent(about: Any) -> Intent | None:
    try:
        return msgspec.convert(about, Intent)
    except msgspec.ValidationError:
        return None


def _tagged(run_dir: Path, run: str, table: Mapping[int, Proc] | None = None) -> dict[int, str]:
    """The living processes of the run's services that show its tag: pid -> ``service/generation``."""
    found = {}
    for pid, proc in (procfs.scan() if table is None else table).items():
        if proc.zombie:
            continue
        tag = procfs.environment_tag(pid)
        if tag is None or not tag.startswith(f"{run}/"):
            continue
        what = tag[len(run) + 1 :]
        if what.partition("/")[0] in _OTHERS:
            continue
        if procfs.environment_tag(pid, b"LIVERL_RUN_DIR") == str(run_dir):
            found[pid] = what
    return found


def anything_alive(run_dir: Path, run: str, history: RunHistory) -> bool:
    """Whether any process of a service still runs on this host: by the journal, by the last scan of the process
    trees, by the tag in its environment, or as a child of the keeper. The backend, the keeper and clients do not
    count."""
    if history.era == procfs.pid_era():
        past = [p for generations in history.generations.values() for p in generations.values()]
        if any(p.pid is not None and procfs.alive(p.pid, p.tick) for p in past):
            return True
        if any(procfs.alive(*member) for members in history.members.values() for member in members):
            return True
    if _tagged(run_dir, run):
        return True
    keepers = {proc.pid for proc in procfs.tagged(f"{run}/keeper/0", run_dir)}
    table = procfs.scan().values()
    return any(proc.ppid in keepers and proc.pid not in keepers and not proc.zombie for proc in table)


def log_of(attempt: int, past: ServiceHistory) -> str:
    """The log of a generation, relative to the run directory, by the rule for the names of logs."""
    return f"attempt_{attempt:03d}/logs/{LogName(past.service, past.generation)}"


def inferred_intent(spec: ServiceSpec, past: ServiceHistory, attempt: int) -> Intent:
    """The ports, GPUs, log and start of a living process of which nobody has recorded them."""
    assert past.pid is not None
    listening = sorted(procfs.listening(past.pid))
    ports = {port.name: port.number for port in spec.ports if port.number}
    unnumbered = [port.name for port in spec.ports if not port.number]
    others = [number for number in listening if number not in ports.values()]
    if len(unnumbered) == 1 and len(others) == 1:
        ports[unnumbered[0]] = others[0]
    visible = procfs.environment_tag(past.pid, b"CUDA_VISIBLE_DEVICES") if spec.gpus else None
    gpus = tuple(filter(None, (visible or "").split(",")))
    return Intent(past.role, ports, gpus, log_of(attempt, past), at=_started_at(past.tick))


def _started_at(tick: int | None) -> float:
    """The Unix time of a start tick; now if it is not known."""
    if not tick:
        return time.time()
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - max(0.0, since_boot - tick / os.sysconf("SC_CLK_TCK"))


def with_inferred_intent(spec: ServiceSpec, past: ServiceHistory, attempt: int) -> ServiceHistory:
    """``past`` with an intent that says its log, ports and GPUs, whether they were recorded or not."""
    if past.pid is None or (past.intent is not None and past.intent.log):
        return past
    return replace(past, intent=inferred_intent(spec, past, attempt))
