"""Rebuild the state of a run from its journal, for a backend that takes over. Pure functions of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from liverl.model import Exit
from liverl.procs.tree import Member
from liverl.supervise.services.state_machine import ENDED, MachineState
from liverl.util.decode import decode_json

Alive = Callable[[int, int | None], bool]  # whether the process with this pid and start tick runs
Role: TypeAlias = Literal["current", "incoming", "retiring"]
Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
Generation = Annotated[int, Meta(ge=0, lt=1 << 31)]
Pid = Annotated[int, Meta(ge=1, lt=1 << 31)]


# --- the records ----------------------------------------------------------------------------------------


class _Attempt(msgspec.Struct, tag_field="k", tag="attempt"):
    n: Annotated[int, Meta(ge=1, lt=1 << 31)]
    era: str
    at: float
    monotonic: float | None = None


class _Stop(msgspec.Struct, tag_field="k", tag="stop"):
    verdict: dict[str, Any]
    now: bool = False


class _Replicas(msgspec.Struct, tag_field="k", tag="replicas"):
    indices: tuple[Generation, ...]
    leaving: tuple[Generation, ...] = ()


class _End(msgspec.Struct, tag_field="k", tag="end"):
    pass


class Intent(msgspec.Struct, frozen=True):
    """What is written before a process is started: its log (relative to the run directory) and the byte offset at
    which it begins, its ports, GPUs (UUIDs), and the time (Unix seconds). Fields that are not known keep their
    defaults."""

    role: Role = "current"
    ports: dict[str, int] = {}
    gpus: tuple[str, ...] = ()
    log: str = ""
    log_start: Number = 0
    progress: str = ""
    at: float = 0.0


class _Intent(Intent, frozen=True, tag_field="k", tag="intent", kw_only=True):
    svc: str
    gen: Generation


class _Spawned(msgspec.Struct, tag_field="k", tag="spawned"):
    svc: str
    gen: Generation
    pid: Pid
    tick: Number | None = None


class _StatePart(msgspec.Struct):
    svc: str
    gen: Generation
    unit: dict[str, Any]
    role: Role = "current"


class _State(_StatePart, tag_field="k", tag="state"):
    pass


class _Exited(msgspec.Struct, tag_field="k", tag="exit"):
    svc: str
    gen: Generation
    exit: Exit


class _Promoted(msgspec.Struct, tag_field="k", tag="promoted"):
    records: tuple[_StatePart, ...]


_Record: TypeAlias = _Attempt | _Stop | _Replicas | _End | _Intent | _Spawned | _State | _Exited | _Promoted
_KINDS = ("attempt", "stop", "replicas", "end", "intent", "spawned", "state", "exit", "promoted")


class _Members(msgspec.Struct):
    attempt: int
    trees: dict[str, list[tuple[Pid, Number]]]


# --- the history ----------------------------------------------------------------------------------------


@dataclass
class ServiceHistory:
    """One generation of a service. Fields that were not journalled keep their defaults: ``intent`` is the record
    written before the process was started, ``tick`` the process's start tick. ``seen``: the process was found on this
    host since its last boot, whatever the journal says."""

    service: str
    generation: int
    role: Role = "current"
    machine: MachineState | None = None
    intent: Intent | None = None
    pid: int | None = None
    tick: int | None = None
    exit: Exit | None = None
    seen: bool = False

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
    rebuilt: bool = False  # the record of the newest attempt is missing; its number is from the directory
    skipped: list[int] = field(default_factory=list)  # positions of records with wrong or missing fields

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

    def generation(self, service: str, number: int) -> ServiceHistory:
        """This generation of a service, which is added if it is not known yet."""
        self.highest[service] = max(self.highest.get(service, 0), number)
        known = self.generations.setdefault(service, {})
        return known.setdefault(number, ServiceHistory(service, number))


def read_history(records: Iterable[Mapping[str, Any]], members: bytes | None = None) -> RunHistory:
    """Rebuild the history from the journal's records, oldest first. Unknown kinds of record (of a newer version) are
    skipped, and so are records with wrong fields. ``members``: the content of ``members.json``, the process trees of
    the last scan; ignored if it is damaged or of another attempt."""
    history = RunHistory()
    for position, record in enumerate(records):
        try:
            _apply(history, record)
        except msgspec.ValidationError:
            history.skipped.append(position)
    if members is not None:
        add_members(history, members)
    return history


def add_members(history: RunHistory, data: bytes) -> None:
    """Take over the process trees in the content of ``members.json``, unless they are of another attempt."""
    try:
        found = decode_json(data, type=_Members)
    except (ValueError, RecursionError):
        return
    if found.attempt == history.attempt or not history.attempt:
        history.members = {key: set(tree) for key, tree in found.trees.items()}


def _apply(history: RunHistory, record: Mapping[str, Any]) -> None:
    """Add one record, or nothing of it.

    Raises:
        msgspec.ValidationError: a field is missing or has a wrong type.
    """
    kind = record.get("k")
    if isinstance(kind, str) and kind not in _KINDS:
        return
    match msgspec.convert(record, type=_Record):
        case _Attempt(n=number, era=era, at=at, monotonic=monotonic):
            history.attempt = number
            history.era = era
            history.base = dict(history.highest)
            history.attempt_started_at = at
            history.attempt_monotonic = monotonic
            history.run_started_at = history.run_started_at or at
            history.ended = False
            history.stop = None
            history.generations = {}
            history.members = {}
            history.replicas = None
            history.leaving = ()
        case _Stop():
            history.stop = dict(record)
        case _Replicas(indices=indices, leaving=leaving):
            history.replicas, history.leaving = indices, leaving
        case _End():
            history.ended = True
        case _Intent() as intent:
            past = history.generation(intent.svc, intent.gen)
            past.intent, past.role = intent, intent.role
        case _Spawned() as spawned:
            past = history.generation(spawned.svc, spawned.gen)
            past.pid, past.tick = spawned.pid, spawned.tick
        case _State() as state:
            _apply_states(history, [state])
        case _Exited() as exited:
            history.generation(exited.svc, exited.gen).exit = exited.exit
        case _Promoted(records=parts):
            _apply_states(history, parts)


def _apply_states(history: RunHistory, parts: Iterable[_StatePart]) -> None:
    for part, machine in [(part, _machine(part)) for part in parts]:
        past = history.generation(part.svc, part.gen)
        past.machine, past.role = machine, part.role


def _machine(record: _StatePart) -> MachineState:
    """The state in a journal record. Older versions did not write ``ended_by_us``: there, ``last_failure`` is the exit
    in words if the service exited by itself, else the reason for the stop."""
    machine = replace(msgspec.convert(record.unit, MachineState), generation=record.gen)
    if "ended_by_us" in record.unit or machine.state not in ("stopping", "stopped"):
        return machine
    exited_by_itself = machine.exit is not None and machine.last_failure == machine.exit.words()
    return replace(machine, ended_by_us=not exited_by_itself)


# --- what nobody journalled -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Sighting:
    """A generation of a service as the keeper, an exit file or the tags of processes show it.

    ``pid`` and ``tick``: its leader, or if that is not known the oldest of its living processes. ``members``: its
    living processes. ``led``: that process seems to be its leader; ``sure``: the keeper has recorded that. ``intent``:
    None if it is not known.
    """

    service: str
    generation: int
    pid: int
    tick: int | None
    members: frozenset[Member] = frozenset()
    led: bool = True
    sure: bool = True
    exit: Exit | None = None
    intent: Intent | None = None

    @property
    def alive(self) -> bool:
        """Whether the process with ``pid`` lives."""
        return any(pid == self.pid for pid, _ in self.members)


def complete(history: RunHistory, sightings: Iterable[Sighting], alive: Alive) -> list[Sighting]:
    """Add what the journal does not say of the generations that were found, and give each living one the role in which
    it is adopted. Returns the living ones that the journal does not know, or not as processes.

    Nothing of an intact journal is changed. ``alive`` is asked for processes that only the journal names.
    """
    unknown = []
    found = sorted(sightings, key=lambda s: (s.service, s.generation))
    for sighting in found:
        if _add(history, sighting) and sighting.members:
            unknown.append(sighting)
    for service in {*history.generations}:
        _settle_roles(
            history, service, {s.generation for s in found if s.service == service and s.members}, alive
        )
    return unknown


def _add(history: RunHistory, sighting: Sighting) -> bool:
    """Add one generation; returns whether the journal lacked its process."""
    service, number = sighting.service, sighting.generation
    newest = max(history.generations.get(service, ()), default=0)
    known = number in history.generations.get(service, {})
    history.highest[service] = max(history.highest.get(service, 0), number)
    if not known and not sighting.members and number < max(newest, history.highest[service]):
        return False  # it has ended, and a later one was started
    past = history.generation(service, number)
    if past.over and not (sighting.alive and sighting.led):
        past.exit = past.exit or sighting.exit
        return False  # what lives of it, if anything, is ended with the run
    differs = (past.pid, past.tick) != (sighting.pid, sighting.tick)
    lacked = past.pid is None or (sighting.sure and sighting.alive and differs)
    if lacked:
        past.pid, past.tick = sighting.pid, sighting.tick
    past.seen = past.seen or bool(sighting.members)
    past.exit = past.exit or sighting.exit
    if past.intent is None:
        past.intent = sighting.intent or Intent(role=past.role)
        if past.machine is None and sighting.intent is not None:
            past.role = sighting.intent.role
    if past.machine is None:
        since = past.intent.at
        machine = MachineState("starting", number, why="found running", since=since, leader_gone=False)
        if not sighting.led:
            machine = replace(machine, state="stopping", why="its main process has exited", leader_gone=True)
        past.machine = machine
        if not known and sighting.intent is None:
            past.role = _unknown_role(history, service, number)
    return lacked


def _unknown_role(history: RunHistory, service: str, number: int) -> Role:
    """The role of a generation of which only the process is known: with another current one it is part of a swap."""
    others = [p for n, p in history.generations[service].items() if n != number and p.role == "current"]
    current = max(others, key=lambda p: p.generation, default=None)
    if current is None or not current.seen or current.generation > number:
        return "current"
    return "incoming"


def _settle_roles(history: RunHistory, service: str, living: set[int], alive: Alive) -> None:
    """Make exactly one generation the current one, and every other living one incoming or retiring."""
    generations = history.generations[service]
    living = living | {n for n, p in generations.items() if p.pid is not None and alive(p.pid, p.tick)}
    if not any(p.role == "current" for p in generations.values()):
        generations[max(living or generations)].role = "current"
    current, incoming = history.current(service), history.incoming(service)
    assert current is not None
    if incoming is not None and incoming.generation < current.generation:
        incoming.role = "retiring"  # the record of its promotion is missing
        incoming = None
    for number in living:
        past = generations[number]
        if past is not current and past is not incoming and past.role != "retiring":
            past.role = "retiring"
        if past.over and past is not current and past.machine is not None:
            past.machine = replace(past.machine, state="starting", leader_gone=False, exit=None)


def lineup(history: RunHistory, service: str) -> list[tuple[Role, ServiceHistory]]:
    """The generations of a service that are taken over, each with its role: the current one first."""
    current, incoming = history.current(service), history.incoming(service)
    found: list[tuple[Role, ServiceHistory]] = [("current", current)] if current is not None else []
    found += [("incoming", incoming)] if incoming is not None else []
    return found + [("retiring", past) for past in history.retiring(service)]


Follow: TypeAlias = Literal["nothing", "watch", "end", "exit"]


def takeover(past: ServiceHistory, floor: int, *, found: bool, alive: bool) -> tuple[MachineState, Follow]:
    """The state in which a generation is taken over, and what follows for its process.

    ``found``: its process is known; ``alive``: it runs. ``floor``: the highest generation number of the service.
    ``nothing``: it has no process, and the state machine goes on; ``watch``: its process is supervised; ``end``: its
    process should not run, and is ended; ``exit``: its process has exited while nobody looked.
    """
    machine = past.machine or MachineState(generation=past.generation)
    if not found:
        without_process = machine.state in (*ENDED, "waiting", "backing_off", "preparing")
        state = machine.state if without_process else "waiting"
        return replace(machine, state=state, floor=floor), "nothing"
    if machine.state in ("waiting", "backing_off") and not alive:
        return replace(machine, floor=floor), "nothing"  # it has ended, and the next one was about to start
    if machine.state in ("preparing", "waiting", "backing_off"):
        # The process was started, and the backend was killed before it could journal that.
        started = past.intent.at if past.intent is not None else machine.since
        why = "waiting until it is ready"
        machine = replace(machine, state="starting", why=why, leader_gone=False, ready_at=None, since=started)
        machine = replace(machine, exit=None)
    if machine.state in ENDED and alive:
        # The stop came while the process was being started, and the backend was killed before it could end it.
        return replace(machine, state="stopped"), "end"
    if machine.state in ENDED:
        return replace(machine, floor=floor), "nothing"
    return machine, "watch" if alive else "exit"
