"""The starts, sleeps and wake-ups of several replicas that write into one trainer's log.

verl's replicas are Ray actors: Ray copies what each prints into the driver's output, with a prefix per line. Who
is who is told apart by the actor's pid; which rank a pid serves, Ray's own actor list tells.
"""

from __future__ import annotations

import codecs
import os
import re
import time
from collections.abc import Collection
from datetime import datetime
from typing import Literal

import msgspec

from liverl.engines.vllm.boot import BOOT, SERVER_STAGE
from liverl.logs.follow import Follower
from liverl.logs.prefixes import colourless
from liverl.logs.ray_prefixes import LogProcess, PrefixedLine, said
from liverl.observe.boot.facts import BootFacts, TrainerFacts, trainer_facts
from liverl.observe.boot.stages import Stage, StageParser

READ = 4 << 20  # bytes of the trainer's log per poll: a flood is skipped down to its end
_LONGEST = 256 << 10  # characters of an unfinished line that are kept; configuration dumps have long ones
# Actor classes that serve: vLLMHttpServer, SGLangHttpServer and their kin, TRTLLMHttpServer.
_SERVER = re.compile(r"HttpServer")

EventKind = Literal["drained", "slept", "woke", "updated", "cache_reset"]
_EVENTS: tuple[tuple[EventKind, re.Pattern[str]], ...] = (
    ("drained", re.compile(r"requests have been drained")),
    ("slept", re.compile(r"It took (?P<s>[\d.]+) seconds to fall asleep")),
    ("woke", re.compile(r"It took (?P<s>[\d.]+) seconds to wake up tags (?P<tags>[^\r\n]*)")),
    # LiveRL's own CPU engine; vLLM does not tell of the weights that verl gives it
    ("updated", re.compile(r"Loading weights took (?P<s>[\d.]+) seconds \(from the trainer\)")),
    ("cache_reset", re.compile(r"Successfully reset prefix cache")),
)
_STEMS = ("drained", "It took ", "reset prefix cache", "Sleep mode freed", "(from the trainer)")
_FREED = re.compile(r"Sleep mode freed ([\d.]+) GiB memory, ([\d.]+) GiB memory is still in use")
_TAG = re.compile(r"['\"](\w+)['\"]")
_STAMP = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) \[")


class EngineEvent(msgspec.Struct, frozen=True):
    """Something an engine did for the trainer. Without ``tags`` all of the engine woke up."""

    pid: int  # of the actor
    kind: EventKind
    at: float  # Unix time: the line's own stamp (whole seconds) where it has one, else when it was read
    seconds: float | None = None  # how long it took
    tags: tuple[str, ...] = ()  # weights, kv_cache
    freed_gib: float | None = None  # by falling asleep, over its GPUs
    repeated: int = 0  # like lines that Ray folded into this one, of this replica or of others


class ReplicaBoot(msgspec.Struct, frozen=True):
    """How far one replica's start is. ``stage`` is in words, ``rank`` counts the stages and only grows."""

    pid: int  # of the actor, as Ray prints and lists it
    name: str  # class of the actor
    ip: str
    stage: str
    progress: float | None  # 0..1 within the stage
    rank: int
    up: bool  # its HTTP server answers
    facts: BootFacts
    processes: tuple[LogProcess, ...]  # the engine's own: EngineCore, Worker


class _Replica:
    def __init__(self, actor: LogProcess) -> None:
        self.actor = actor
        self.parser = StageParser(BOOT.name)
        self.parser.reach(0)
        self.processes: dict[int, LogProcess] = {}
        self.freed: list[float] = []

    @property
    def boot(self) -> ReplicaBoot:
        stage: Stage = self.parser.stage or ("process", None)
        return ReplicaBoot(
            pid=self.actor.pid,
            name=self.actor.name,
            ip=self.actor.ip,
            stage=stage[0],
            progress=stage[1],
            rank=self.parser.rank,
            up=self.parser.done,
            facts=self.parser.facts,
            processes=tuple(self.processes.values()),
        )

    def serves(self) -> None:
        self.parser.reach(SERVER_STAGE + 1)


class ReplicaStages:
    """Fed with the trainer's log, tells the replicas in it apart. ``trainer`` is what the trainer itself said."""

    def __init__(self) -> None:
        self.trainer = TrainerFacts()
        self._replicas: dict[int, _Replica] = {}
        self._watched: set[int] = set()
        self._events: list[EngineEvent] = []
        self._rest = ""

    @property
    def boots(self) -> dict[int, ReplicaBoot]:
        """By the actor's pid, in the order of their first lines."""
        return {pid: replica.boot for pid, replica in self._replicas.items()}

    def watch(self, pids: Collection[int]) -> None:
        """Actors that are known to be replicas, whatever their class is called."""
        self._watched.update(pids)

    def feed(self, text: str, now: float | None = None) -> dict[int, ReplicaBoot]:
        """Take in a piece of the log, torn anywhere. ``now``: Unix time it was read at."""
        now = time.time() if now is None else now
        *lines, rest = colourless(self._rest + text).split("\n")
        self._rest = rest[-_LONGEST:]
        mine: dict[int, list[str]] = {}
        others: list[str] = []
        for line in lines:
            told = said(line)
            actor = told.processes[0] if told.processes else None
            if actor is None or not self._serves(actor):
                others.append(told.text)
                continue
            replica = self._replica(actor)
            for process in told.processes[1:]:
                replica.processes.setdefault(process.pid, process)
            mine.setdefault(actor.pid, []).append(told.text)
            self._note(replica, told, now)
        if rest:
            # A bar grows within its line: only its stage is looked at before the line ends.
            told = said(rest)
            if told.processes and self._serves(told.processes[0]):
                self._replica(told.processes[0])
                mine.setdefault(told.processes[0].pid, []).append(told.text)
        for pid, texts in mine.items():
            self._replicas[pid].parser.feed("\n".join(texts))
        self._hear(others)
        return self.boots

    def forget_line(self) -> None:
        """What comes next does not go on where the last piece ended."""
        self._rest = ""

    def take_events(self) -> list[EngineEvent]:
        """Those since the last call, in the order of the log: Ray may deliver one actor's lines late."""
        events, self._events = self._events, []
        return events

    def _serves(self, actor: LogProcess) -> bool:
        return actor.pid in self._watched or _SERVER.search(actor.name) is not None

    def _replica(self, actor: LogProcess) -> _Replica:
        known = self._replicas.get(actor.pid)
        if known is None:
            known = self._replicas[actor.pid] = _Replica(actor)
        elif actor.name and not known.actor.name:
            known.actor = actor  # before its constructor ran Ray had only the pid
        return known

    def _note(self, replica: _Replica, told: PrefixedLine, now: float) -> None:
        text = told.text
        if not any(stem in text for stem in _STEMS):
            return
        freed = _FREED.search(text)
        if freed is not None:
            replica.freed.append(float(freed.group(1)))
            return
        for kind, pattern in _EVENTS:
            match = pattern.search(text)
            if match is None:
                continue
            groups = match.groupdict()
            event = EngineEvent(
                pid=replica.actor.pid,
                kind=kind,
                at=_time_of(text, now),
                seconds=float(groups["s"]) if "s" in groups else None,
                tags=tuple(sorted(_TAG.findall(groups["tags"]))) if "tags" in groups else (),
                freed_gib=sum(replica.freed) if kind == "slept" and replica.freed else None,
                repeated=told.repeated,
            )
            if kind == "slept":
                replica.freed.clear()
            self._events.append(event)
            replica.serves()  # the trainer talks to it
            return

    def _hear(self, lines: list[str]) -> None:
        before = self.trainer.addresses
        self.trainer = trainer_facts(self.trainer, lines)
        # Printed when every replica of the run serves; Ray may still hold back their own last lines.
        if self.trainer.addresses != before and len(self.trainer.addresses) == len(self._replicas):
            for replica in self._replicas.values():
                replica.serves()


class TrainerLog:
    """Follows the log of verl's trainer for what it tells of the replicas."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.replicas = ReplicaStages()
        self._follower = Follower(path)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def facts(self) -> TrainerFacts:
        return self.replicas.trainer

    def poll(self, now: float | None = None) -> None:
        """Take in what was appended since the last call. Raises OSError but "not there"."""
        before = self._follower.offset
        data = self._follower.poll(READ, newest=True)
        if not data:
            return
        if self._follower.offset - len(data) != before:  # a flood was skipped, or the file is another one
            data = data[data.find(b"\n") + 1 :]
            self._decoder.reset()
            self.replicas.forget_line()
        self.replicas.feed(self._decoder.decode(data), now)


def _time_of(text: str, now: float) -> float:
    """Unix time of a vLLM line, which has no year and is in the machine's own time zone."""
    match = _STAMP.search(text)
    if match is None:
        return now
    month, day, hour, minute, second = (int(part) for part in match.groups())
    year = time.localtime(now).tm_year
    found = []
    for guess in (year - 1, year, year + 1):
        try:
            found.append(datetime(guess, month, day, hour, minute, second).timestamp())
        except ValueError:  # that year has no such day
            continue
    return min(found, key=lambda at: abs(at - now), default=now)
