"""What each of verl's replicas does: the stage of its start, whether it sleeps, receives weights or serves, since when.

There are two sources: the trainer's log, into which Ray copies what the engines print, and each engine's metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from liverl.observe.boot.replica_stages import EngineEvent, ReplicaBoot, TrainerLog
from liverl.observe.engine.activity import Activity, ActivitySigns, ActivityState, Cycle
from liverl.util.plural import quantity


class ReplicaActivity:
    """The activity of one trainer's replicas. ``read`` blocks on the disk; nothing else here does."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._log: TrainerLog | None = None
        self._activities: dict[str, Activity] = {}
        self._finished: dict[str, int] = {}  # replica -> its finished cycles
        self._reported = 0  # cycles that all replicas had finished at the last news

    def read(self, path: Path, now: float) -> tuple[EngineEvent, ...]:
        """Engine events in what was appended to the trainer's log at ``path``; none while it does not exist.

        Raises OSError if the log cannot be read.
        """
        if path != self._path or self._log is None:
            self._path, self._log = path, TrainerLog(path)
        self._log.poll(now)
        return tuple(self._log.replicas.take_events())

    @property
    def printed(self) -> dict[int, str]:
        """Addresses (``ip:port``) by rank from the trainer's log; empty until all of its replicas are up."""
        return dict(enumerate(self._log.facts.addresses)) if self._log is not None else {}

    @property
    def total_steps(self) -> int | None:
        """Of the training, from the trainer's log; None before it is printed."""
        return self._log.facts.total_steps if self._log is not None else None

    @property
    def trackers(self) -> dict[str, str]:
        """Where the trainer logs its metrics besides, see ``TrainerFacts``."""
        return self._log.facts.trackers if self._log is not None else {}

    @property
    def breakpoints(self) -> dict[str, str]:
        """Breakpoints that wait, see ``TrainerFacts``."""
        return self._log.facts.breakpoints if self._log is not None else {}

    def boot(self, pid: int | None) -> ReplicaBoot | None:
        """The stage of the start of the actor with this pid; None if its log does not say."""
        if self._log is None or pid is None:
            return None
        return self._log.replicas.boots.get(pid)

    def hear(self, events: Iterable[EngineEvent], names: Mapping[int, str]) -> None:
        """Add ``events`` to the replicas that they belong to. ``names``: actor's pid -> replica; others are dropped."""
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
                self._finished[name] = self._finished.get(name, 0) + 1

    def look(self, name: str, signs: ActivitySigns) -> ActivityState:
        """What the replica does now, from its events and ``signs``."""
        return self._of(name).look(signs)

    def forget(self, name: str) -> None:
        """Drop the history of a replica, as another process serves under its name."""
        self._activities.pop(name, None)
        self._finished.pop(name, None)

    def news(self, expected: int) -> str | None:
        """One line once all ``expected`` replicas have finished another cycle of sleep and new weights; else None."""
        common = min(self._finished.values(), default=0) if len(self._finished) >= expected else 0
        if common <= self._reported:
            return None
        self._reported = common
        return cycle_words([a.cycles[-1] for a in self._activities.values() if a.cycles])

    def _of(self, name: str) -> Activity:
        return self._activities.setdefault(name, Activity())


def cycle_words(cycles: Iterable[Cycle]) -> str:
    """``2 replicas slept for 21 s, received new weights within 1 s``; each number is the largest of all cycles."""
    cycles = list(cycles)

    def longest(values: Iterable[float | None], form: str, below: str = "") -> str:
        numbers = [value for value in values if value is not None]
        return (below if below and max(numbers) < 0.5 else form.format(max(numbers))) if numbers else ""

    parts = (
        longest((c.asleep_for for c in cycles), "slept for {:.0f} s", "slept for less than a second"),
        longest(
            (c.update_for for c in cycles),
            "received new weights within {:.0f} s",
            "received new weights in under a second",
        ),
        longest((c.sleep_seconds for c in cycles), "took {:.2f} s to enter sleep"),
        longest((c.wake_seconds for c in cycles), "took {:.2f} s to wake up"),
        longest((c.freed_gib for c in cycles), "freed {:.1f} GiB"),
    )
    return f"{quantity(len(cycles), 'replica')} {', '.join(part for part in parts if part)}"
