"""What each of verl's replicas does: how far its boot is, whether it sleeps, takes weights or serves, and for how long.

Two witnesses: the trainer's log, into which Ray copies what the engines print, and each engine's own metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from liverl.observe.boot.replica_stages import EngineEvent, ReplicaBoot, TrainerLog
from liverl.observe.engine.activity import Activity, ActivitySigns, ActivityState, Cycle


class ReplicaActivity:
    """One trainer's replicas. ``read`` may block; the rest does not."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._log: TrainerLog | None = None
        self._activities: dict[str, Activity] = {}
        self._heard: dict[str, int] = {}  # replica -> its finished cycles
        self._told = 0  # cycles that all replicas had finished when they were last told

    def read(self, path: Path, now: float) -> tuple[EngineEvent, ...]:
        """What was appended to the trainer's log. Raises OSError but "not there"."""
        if path != self._path or self._log is None:
            self._path, self._log = path, TrainerLog(path)
        self._log.poll(now)
        return tuple(self._log.replicas.take_events())

    @property
    def printed(self) -> dict[int, str]:
        """Addresses (``ip:port``) by rank that the trainer has printed; it does once all of its replicas are up."""
        return dict(enumerate(self._log.facts.addresses)) if self._log is not None else {}

    @property
    def total_steps(self) -> int | None:
        """As the trainer has printed it."""
        return self._log.facts.total_steps if self._log is not None else None

    def boot(self, pid: int | None) -> ReplicaBoot | None:
        """How far the start of the actor with this pid is, if its log has told."""
        if self._log is None or pid is None:
            return None
        return self._log.replicas.boots.get(pid)

    def hear(self, events: Iterable[EngineEvent], names: Mapping[int, str]) -> None:
        """``names``: actor's pid -> replica."""
        by_name: dict[str, list[EngineEvent]] = {}
        for event in events:
            if event.pid in names:
                by_name.setdefault(names[event.pid], []).append(event)
        for name, own in by_name.items():
            activity = self._of(name)
            before = activity.cycles[-1] if activity.cycles else None
            activity.hear(own)
            after = activity.cycles[-1] if activity.cycles else None
            if after is not None and after is not before:
                self._heard[name] = self._heard.get(name, 0) + 1

    def look(self, name: str, signs: ActivitySigns) -> ActivityState:
        """What a replica does now."""
        return self._of(name).look(signs)

    def forget(self, name: str) -> None:
        """Another process serves under this name."""
        self._activities.pop(name, None)
        self._heard.pop(name, None)

    def news(self, expected: int) -> str | None:
        """In words, once all ``expected`` replicas have slept and taken weights again since the last news."""
        common = min(self._heard.values(), default=0) if len(self._heard) >= expected else 0
        if common <= self._told:
            return None
        self._told = common
        return cycle_words([a.cycles[-1] for a in self._activities.values() if a.cycles])

    def _of(self, name: str) -> Activity:
        return self._activities.setdefault(name, Activity())


def cycle_words(cycles: Iterable[Cycle]) -> str:
    """``2 replicas slept 21 s, took new weights in 1 s, fell asleep in 0.01 s``; the longest of each."""
    cycles = list(cycles)

    def longest(values: Iterable[float | None], form: str) -> str:
        known = [value for value in values if value is not None]
        return form.format(max(known)) if known else ""

    parts = (
        longest((c.asleep_for for c in cycles), "slept for {:.0f} s"),
        longest((c.update_for for c in cycles), "received new weights within {:.0f} s"),
        longest((c.sleep_seconds for c in cycles), "entering sleep took {:.2f} s"),
        longest((c.wake_seconds for c in cycles), "waking up {:.2f} s"),
        longest((c.freed_gib for c in cycles), "freed {:.1f} GiB"),
    )
    count = f"{len(cycles)} replica{'s' * (len(cycles) != 1)}"
    return f"{count} {', '.join(part for part in parts if part)}"
