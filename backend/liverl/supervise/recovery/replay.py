"""What the journal tells a backend that takes over: a pure reading of its records."""

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
    """One generation of a service, as far as it was journalled."""

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
        """Nothing of it can still run, by the journal."""
        return self.machine is not None and self.machine.state in ENDED


@dataclass
class RunHistory:
    attempt: int = 0
    era: str = ""  # see procfs.pid_era
    run_started_at: float | None = None
    attempt_started_at: float | None = None
    ended: bool = False
    stop: dict[str, Any] | None = None  # the request that the run end, if any
    replicas: tuple[int, ...] | None = None  # indices that are wanted, if it was ever changed
    leaving: tuple[int, ...] = ()
    generations: dict[str, dict[int, ServiceHistory]] = field(default_factory=dict)
    base: dict[str, int] = field(default_factory=dict)  # highest generation numbers before this attempt
    highest: dict[str, int] = field(default_factory=dict)  # generation numbers used, all attempts
    members: dict[str, set[Member]] = field(default_factory=dict)

    def current(self, service: str) -> ServiceHistory | None:
        """The generation that speaks for a service."""
        found = [p for p in self.generations.get(service, {}).values() if p.role == "current"]
        return max(found, key=lambda p: p.generation, default=None)

    def incoming(self, service: str) -> ServiceHistory | None:
        """A generation that was to replace the current one, and had not failed yet."""
        found = [p for p in self.generations.get(service, {}).values() if p.role == "incoming" and not p.over]
        return max(found, key=lambda p: p.generation, default=None)

    def retiring(self, service: str) -> list[ServiceHistory]:
        found = self.generations.get(service, {}).values()
        return [p for p in found if p.role == "retiring" and not p.over]


def read_history(
    records: Iterable[Mapping[str, Any]], members: Mapping[str, Any] | None = None
) -> RunHistory:
    """Fold the records; unknown kinds (of a newer version) are passed over. ``members``: the content of
    ``members.json``, which holds the trees as they were last seen."""
    history = RunHistory()
    for record in records:
        _apply(history, record)
    if members is not None and members.get("attempt") == history.attempt:
        history.members = {key: {(p, t) for p, t in found} for key, found in members["trees"].items()}
    return history


def _apply(history: RunHistory, record: Mapping[str, Any]) -> None:
    kind = record.get("k")
    if kind == "attempt":
        history.attempt = record["n"]
        history.era = record["era"]
        history.base = dict(history.highest)
        history.attempt_started_at = record["at"]
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
    """A journalled state. Versions that did not write ``ended_by_us`` gave an end of its own the exit's words as
    ``last_failure``, and any other end the reason for our stop."""
    machine = msgspec.convert(record, MachineState)
    if "ended_by_us" in record or machine.state not in ("stopping", "stopped"):
        return machine
    by_itself = machine.exit is not None and machine.last_failure == machine.exit.words()
    return replace(machine, ended_by_us=not by_itself)


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
