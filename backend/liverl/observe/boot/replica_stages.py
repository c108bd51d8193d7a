"""The starts, sleeps and wake-ups of several replicas that write into one trainer's log.

verl's replicas are Ray actors: Ray copies what each prints into the driver's output, with a prefix per line that
holds the actor's pid. The rank of a pid is not in the log; it comes from Ray's list of actors.
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
from liverl.logs.ray_prefixes import LogProcess, PrefixedLine, parse_prefixes
from liverl.observe.boot.facts import BootFacts, TrainerFacts, trainer_facts
from liverl.observe.boot.stages import Stage, StageParser
from liverl.util.late_pattern import late_pattern

READ = 4 << 20  # maximum bytes of the trainer's log read per poll; if it grew by more, the newest
_LONGEST = 256 << 10  # characters of an unfinished line that are kept; configuration dumps have long ones
# Actor classes that serve: vLLMHttpServer, SGLangHttpServer, TRTLLMHttpServer and their subclasses.
_SERVER = late_pattern(r"HttpServer")

EventKind = Literal["drained", "slept", "woke", "updated", "cache_reset"]
_EVENTS: tuple[tuple[EventKind, re.Pattern[str]], ...] = (
    ("drained", late_pattern(r"requests have been drained")),
    ("slept", late_pattern(r"It took (?P<s>[\d.]+) seconds to fall asleep")),
    ("woke", late_pattern(r"It took (?P<s>[\d.]+) seconds to wake up tags (?P<tags>[^\r\n]*)")),
    # printed by LiveRL's own CPU engine; vLLM does not log weights that it gets from verl
    ("updated", late_pattern(r"Loading weights took (?P<s>[\d.]+) seconds \(from the trainer\)")),
    ("cache_reset", late_pattern(r"Successfully reset prefix cache")),
)
_STEMS = ("drained", "It took ", "reset prefix cache", "Sleep mode freed", "(from the trainer)")
_FREED = late_pattern(r"Sleep mode freed ([\d.]+) GiB memory, ([\d.]+) GiB memory is still in use")
_TAG = late_pattern(r"['\"](\w+)['\"]")
_STAMP = late_pattern(r"(?:DEBUG|INFO|WARNING|ERROR) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) \[")


class EngineEvent(msgspec.Struct, frozen=True):
    """A step of the sleep cycle of an engine. ``woke`` without ``tags``: the whole engine woke up."""

    pid: int  # of the actor
    kind: EventKind
    at: float  # Unix time: the line's own time stamp (whole seconds); without one, when it was read
    seconds: float | None = None  # duration
    tags: tuple[str, ...] = ()  # weights, kv_cache
    freed_gib: float | None = None  # GiB freed by falling asleep, summed over its GPUs
    repeated: int = 0  # equal lines that Ray merged into this one, of this replica or of others


class ReplicaBoot(msgspec.Struct, frozen=True):
    """How far one replica's start is. ``stage``: in words. ``rank``: index of the stage; it never decreases."""

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
    """Parses the trainer's log into the starts and events of each replica. ``trainer``: the trainer's own figures."""

    def __init__(self) -> None:
        self.trainer = TrainerFacts()
        self._replicas: dict[int, _Replica] = {}
        self._watched: set[int] = set()
        self._events: list[EngineEvent] = []
        self._rest = ""

    @property
    def boots(self) -> dict[int, ReplicaBoot]:
        """The starts of the replicas by the actor's pid, in the order of their first lines."""
        return {pid: replica.boot for pid, replica in self._replicas.items()}

    def watch(self, pids: Collection[int]) -> None:
        """Treat the actors with these pids as replicas, whatever their class is called."""
        self._watched.update(pids)

    def feed(self, text: str, now: float | None = None) -> dict[int, ReplicaBoot]:
        """Parse the next piece of the log, split anywhere, and return ``boots``.

        ``now``: Unix time at which it was read; default: now."""
        now = time.time() if now is None else now
        *lines, rest = colourless(self._rest + text).split("\n")
        self._rest = rest[-_LONGEST:]
        by_pid: dict[int, list[str]] = {}
        others: list[str] = []
        for line in lines:
            parsed = parse_prefixes(line)
            actor = parsed.processes[0] if parsed.processes else None
            if actor is None or not self._serves(actor):
                # At which process a breakpoint waits, its prefix says.
                others.append(line if "RemotePdb" in line else parsed.text)
                continue
            replica = self._replica(actor)
            for process in parsed.processes[1:]:
                replica.processes.setdefault(process.pid, process)
            by_pid.setdefault(actor.pid, []).append(parsed.text)
            self._note(replica, parsed, now)
        if rest:
            # A progress bar grows within its line: an unfinished line counts for the stage, not for events.
            parsed = parse_prefixes(rest)
            if parsed.processes and self._serves(parsed.processes[0]):
                self._replica(parsed.processes[0])
                by_pid.setdefault(parsed.processes[0].pid, []).append(parsed.text)
        for pid, texts in by_pid.items():
            self._replicas[pid].parser.feed("\n".join(texts))
        self._feed_trainer(others)
        return self.boots

    def forget_line(self) -> None:
        """Drop an unfinished line: the next piece does not continue the last one."""
        self._rest = ""

    def take_events(self) -> list[EngineEvent]:
        """Return the events since the last call in the order of the log, where Ray may deliver lines late."""
        events, self._events = self._events, []
        return events

    def _serves(self, actor: LogProcess) -> bool:
        return actor.pid in self._watched or _SERVER.search(actor.name) is not None

    def _replica(self, actor: LogProcess) -> _Replica:
        replica = self._replicas.get(actor.pid)
        if replica is None:
            replica = self._replicas[actor.pid] = _Replica(actor)
        elif actor.name and not replica.actor.name:
            replica.actor = actor  # until its constructor has run, Ray prints the pid only
        return replica

    def _note(self, replica: _Replica, line: PrefixedLine, now: float) -> None:
        """Record the event that ``line`` of ``replica`` reports, if any."""
        text = line.text
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
                repeated=line.repeated,
            )
            if kind == "slept":
                replica.freed.clear()
            self._events.append(event)
            replica.serves()  # only a replica that serves gets such commands from the trainer
            return

    def _feed_trainer(self, lines: list[str]) -> None:
        before = self.trainer.addresses
        self.trainer = trainer_facts(self.trainer, lines)
        # The trainer prints the addresses once all replicas serve; Ray may deliver their own last lines later.
        if self.trainer.addresses != before and len(self.trainer.addresses) == len(self._replicas):
            for replica in self._replicas.values():
                replica.serves()


class TrainerLog:
    """Follows the log of verl's trainer for the starts and events of the replicas."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.replicas = ReplicaStages()
        self._follower = Follower(path)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def facts(self) -> TrainerFacts:
        """Figures that the trainer itself has printed so far."""
        return self.replicas.trainer

    def poll(self, now: float | None = None) -> None:
        """Parse what was appended since the last call, at most its newest ``READ`` bytes.

        ``now``: Unix time of the read; default: now.

        Raises:
            OSError: the log cannot be read (a missing log is not an error).
        """
        before = self._follower.offset
        data = self._follower.poll(READ, newest=True)
        if not data:
            return
        if self._follower.offset - len(data) != before:  # bytes were skipped, or the file was replaced
            data = data[data.find(b"\n") + 1 :]
            self._decoder.reset()
            self.replicas.forget_line()
        self.replicas.feed(self._decoder.decode(data), now)


def _time_of(text: str, now: float) -> float:
    """Return the Unix time of a vLLM line: of the years around ``now`` the nearest, in the local time zone.

    Without a time stamp: ``now``."""
    match = _STAMP.search(text)
    if match is None:
        return now
    month, day, hour, minute, second = (int(part) for part in match.groups())
    year = time.localtime(now).tm_year
    candidates = []
    for guess in (year - 1, year, year + 1):
        try:
            candidates.append(datetime(guess, month, day, hour, minute, second).timestamp())
        except ValueError:  # that year has no such day
            continue
    return min(candidates, key=lambda at: abs(at - now), default=now)
