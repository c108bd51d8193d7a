"""Rebuild the state of a run from its journal, for a backend that takes over. Pure functions of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from liverl.model import Exit
from liverl.procs.tree import Member
from liverl.supervise.services.state_machine import ENDED, MachineState


@dataclass
class ServiceHistory:
    """One generation of a service. Fields that were not journalled keep their defaults: ``intent`` is the record
    written before the process was started, ``tick`` the process's start tick."""

    service: str
    generation: int
    role: str = "current"
    machine: MachineState | None = None
    intent: dict[str, Any] | None = None
    pid: int | None = None
    tick: int | None = None
    exit: Exit | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended: according to the journal none of its processes can still run."""
        return self.machine is not None and self.machine.state in ENDED


@dataclass
class RunHistory:
    """The newest attempt of a run. ``attempt`` is 0 if the journal holds none; times are Unix seconds."""

    attempt: int = 0
    era: str = ""  # see procfs.pid_era
    run_started_at: float | None = None
    attempt_started_at: float | None = None
    attempt_monotonic: float | None = None  # the monotonic clock at that time; of the boot of ``era``
    ended: bool = False  # the result was written
    stop: dict[str, Any] | None = None  # the newest stop record: verdict, and whether to kill at once
    replicas: tuple[int, ...] | None = None  # wanted indices; None if the run was never scaled
    leaving: tuple[int, ...] = ()  # indices of replicas that drain
    generations: dict[str, dict[int, ServiceHistory]] = field(default_factory=dict)  # by service and number
    base: dict[str, int] = field(default_factory=dict)  # highest generation number before this attempt
    highest: dict[str, int] = field(default_factory=dict)  # highest generation number of all attempts
    members: dict[str, set[Member]] = field(default_factory=dict)  # by ``service.generation``

    def current(self, service: str) -> ServiceHistory | None:
        """The newest generation with the role ``current``; None if there is none."""
        candidates = [p for p in self.generations.get(service, {}).values() if p.role == "current"]
        return max(candidates, key=lambda p: p.generation, default=None)

    def incoming(self, service: str) -> ServiceHistory | None:
        """The generation that was starting to replace the current one; None if there is none or it has ended."""
        candidates = [
            p for p in self.generations.get(service, {}).values() if p.role == "incoming" and not p.over
        ]
        return max(candidates, key=lambda p: p.generation, default=None)

    def retiring(self, service: str) -> list[ServiceHistory]:
        """The replaced generations that have not ended."""
        generations = self.generations.get(service, {}).values()
        return [p for p in generations if p.role == "retiring" and not p.over]


def read_history(
    records: Iterable[Mapping[str, Any]], members: Mapping[str, Any] | None = None
) -> RunHistory:
    """Rebuild the history from the journal's records, oldest first. Unknown kinds of record (of a newer version) are
    skipped. ``members``: the content of ``members.json``, the process trees of the last scan; ignored if it is of
    another attempt."""
    history = RunHistory()
    for record in records:
        _apply(history, record)
    if members is not None and members.get("attempt") == history.attempt:
        history.members = {key: {(p, t) for p, t in tree} for key, tree in members["trees"].items()}
    return history


def _apply(history: RunHistory, record: Mapping[str, Any]) -> None:
    kind = record.get("k")
    if kind == "attempt":
        history.attempt = record["n"]
        history.era = record["era"]
        history.base = dict(history.highest)
        history.attempt_started_at = record["at"]
        history.attempt_monotonic = record.get("monotonic")
        history.run_started_at = history.run_started_at or record["at"]
        history.ended = False
        history.stop = None
        history.generations = {}
        history.members = {}
        history.replicas = None
        history.leaving = ()
    elif kind == "stop":
        history.stop = dict(record)
    elif kind == "replicas":
        history.replicas = tuple(record["indices"])
        history.leaving = tuple(record.get("leaving", ()))
    elif kind == "end":
        history.ended = True
    elif kind in ("intent", "spawned", "state", "exit"):
        _apply_service(history, kind, record)
    elif kind == "promoted":
        for part in record["records"]:
            _apply_service(history, "state", part)


def _machine(record: Mapping[str, Any]) -> MachineState:
    """The state in a journal record. Older versions did not write ``ended_by_us``: there, ``last_failure`` is the exit
    in words if the service exited by itself, else the reason for the stop."""
    machine = msgspec.convert(record, MachineState)
    if "ended_by_us" in record or machine.state not in ("stopping", "stopped"):
        return machine
    exited_by_itself = machine.exit is not None and machine.last_failure == machine.exit.words()
    return replace(machine, ended_by_us=not exited_by_itself)


def _apply_service(history: RunHistory, kind: str, record: Mapping[str, Any]) -> None:
    service, generation = record["svc"], record["gen"]
    history.highest[service] = max(history.highest.get(service, 0), generation)
    past = history.generations.setdefault(service, {}).setdefault(
        generation, ServiceHistory(service, generation)
    )
    if kind == "intent":
        past.intent = dict(record)
        past.role = record["role"]
    elif kind == "spawned":
        past.pid, past.tick = record["pid"], record["tick"]
    elif kind == "state":
        past.machine = _machine(record["unit"])
        past.role = record["role"]
    elif kind == "exit":
        past.exit = msgspec.convert(record["exit"], Exit)
