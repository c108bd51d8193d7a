"""What a replica does now, and how long its sleeps and weight updates take.

A hybrid replica under verl sleeps between rollouts: it answers HTTP, but has no weights. To wake up it loads its old
weights, receives the trainer's and then allocates its KV cache. None of this is a fault, though its GPUs look idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from liverl.model import EngineFacts
from liverl.observe.boot.replica_stages import EngineEvent
from liverl.util.plural import plural, quantity

What = Literal["booting", "asleep", "waking", "updating", "serving", "idle", "unknown"]
KEPT = 256  # maximum finished cycles kept per replica
FRESH = 15.0  # seconds for which an engine's last answer counts: five scrapes of at most 3 s


class ActivityState(msgspec.Struct, frozen=True):
    """What one replica does. ``ready``: it is awake and, if hybrid, has received weights from the trainer."""

    what: What
    since: float  # Unix time
    why: str
    ready: bool = False


class ActivitySigns(msgspec.Struct, frozen=True):
    """What is observed of a replica at one moment. ``facts``: None if it did not answer this time."""

    at: float  # Unix time
    up: bool  # its actor is alive, its address known and its health check passed
    facts: EngineFacts | None = None
    hybrid: bool = True  # it starts with dummy weights, and sleeps while the trainer trains
    trainer_phase: str = ""  # rollout, update (of the policy), sync (of weights to replicas); "" if unknown
    policy_version: int | None = None  # the trainer's; None if unknown


class Cycle(msgspec.Struct, frozen=True):
    """One sleep with the weight update that ends it. Times are Unix times, as precise as the log's time stamps."""

    slept_at: float
    sleep_seconds: float | None = None  # duration of falling asleep
    freed_gib: float | None = None
    woke_at: float | None = None  # the old weights are loaded again
    serving_at: float | None = None  # the new weights and the KV cache are there
    wake_seconds: float | None = None  # duration of waking up, all parts
    # Duration of receiving the new weights; None if the engine does not log it
    update_seconds: float | None = None

    @property
    def asleep_for(self) -> float | None:
        """Seconds from falling asleep to the first part awake; None while asleep."""
        return None if self.woke_at is None else self.woke_at - self.slept_at

    @property
    def update_for(self) -> float | None:
        """Seconds from the first part awake to the last, with the weight transfer between; None until then."""
        if self.woke_at is None or self.serving_at is None:
            return None
        return self.serving_at - self.woke_at


class Activity:
    """Follows one replica: call ``hear`` with the events of its log, ``look`` with each scrape."""

    def __init__(self) -> None:
        self.doing: ActivityState | None = None
        self.cycle: Cycle | None = None  # the one in progress
        self.cycles: deque[Cycle] = deque(maxlen=KEPT)  # finished, oldest first
        self.updated = False  # whether it has received the trainer's weights at least once
        self._facts: EngineFacts | None = None
        self._answered = float("-inf")
        self._heard_at = float("-inf")
        self._metric_slept: float | None = None

    def hear(self, events: Iterable[EngineEvent]) -> None:
        """Update the sleep cycles by events of this replica, in the order of its log."""
        for event in events:
            self._heard_at = event.at
            if event.kind == "slept":
                if self.cycle is not None:
                    self._finish()  # its wake-up is not in the log: Ray merges equal lines of replicas
                self.cycle = Cycle(event.at, event.seconds, event.freed_gib)
            elif event.kind == "woke":
                self._wake(event)
            elif event.kind == "updated" and self.cycle is not None:
                self.cycle = msgspec.structs.replace(self.cycle, update_seconds=event.seconds)

    def look(self, signs: ActivitySigns) -> ActivityState:
        """Return what the replica does at ``signs.at``; ``since`` is kept while that does not change."""
        if signs.facts is not None:
            self._answered = signs.at
            self._by_metric(signs.facts, signs.at)
            self._facts = signs.facts
        facts = self._facts if signs.at - self._answered <= FRESH else None
        what, why = judge(signs, facts, self.cycle, self.updated)
        if what == "serving":
            self.updated = True
        ready = what in ("serving", "idle") and (self.updated or not signs.hybrid)
        before = self.doing
        since = signs.at if before is None or before.what != what else before.since
        if what == "asleep" and self.cycle is not None and before is not None and before.what != what:
            since = min(signs.at, max(self.cycle.slept_at, before.since))
        self.doing = ActivityState(what, since, why, ready)
        return self.doing

    def _wake(self, event: EngineEvent) -> None:
        cycle = self.cycle
        if cycle is None:
            return  # it fell asleep before this log began, or Ray merged that line
        took = (cycle.wake_seconds or 0.0) + (event.seconds or 0.0)
        cycle = msgspec.structs.replace(cycle, wake_seconds=took)
        if cycle.woke_at is None:
            cycle = msgspec.structs.replace(cycle, woke_at=event.at)
        self.cycle = cycle
        if not event.tags or "kv_cache" in event.tags:
            self.cycle = msgspec.structs.replace(cycle, serving_at=event.at)
            self.updated = True
            self._finish()

    def _finish(self) -> None:
        if self.cycle is not None:
            self.cycles.append(self.cycle)
            self.cycle = None

    def _by_metric(self, facts: EngineFacts, at: float) -> None:
        """Record a sleep that only ``/metrics`` shows: the log has no INFO lines, or Ray merged them."""
        asleep = _asleep(facts)
        if asleep is None:
            return
        if asleep and self._metric_slept is None:
            self._metric_slept = at
        elif not asleep and self._metric_slept is not None:
            if self.cycle is None and self._heard_at < self._metric_slept - FRESH:
                self.cycles.append(Cycle(self._metric_slept, woke_at=at))
            self._metric_slept = None
            self.updated = True


def judge(
    signs: ActivitySigns, facts: EngineFacts | None, cycle: Cycle | None, updated: bool
) -> tuple[What, str]:
    """Return (what a replica does, why in words).

    ``facts``: its last answer, None if that is older than ``FRESH``. ``cycle``: its sleep in progress by its log.
    ``updated``: it has received weights from the trainer before."""
    if not signs.up:
        return "booting", "it is not serving yet"
    if facts is None and cycle is None:
        return "unknown", "it has not reported its load"
    asleep = _asleep(facts) if facts is not None else None
    if facts is not None and facts.updates_in_flight:
        return "updating", "a weight update is in progress"
    if asleep is None and cycle is not None:
        asleep = cycle.woke_at is None
    if asleep:
        if facts is not None and facts.sleeps_in_flight:
            return "waking", "it is waking up"
        waiting = facts.waiting if facts is not None else None
        return (
            "asleep",
            f"{_requests(waiting)} waiting for it" if waiting else "the trainer is using its GPUs",
        )
    if cycle is not None and cycle.woke_at is not None:
        return "updating", "its weights are loaded, but its KV cache is not"
    if facts is not None and facts.running:
        return "serving", f"{_requests(facts.running)} running"
    if signs.trainer_phase == "sync":
        return "updating", "the trainer is sending weights"
    if facts is None:
        return "unknown", "it has not reported its load"
    if _behind(facts, signs):
        return (
            "updating",
            f"it has policy version {facts.policy_version}, the trainer has {signs.policy_version}",
        )
    if facts.waiting:
        return "serving", f"{_requests(facts.waiting)} waiting, none is running"
    if signs.hybrid and not updated:
        return "booting", "it has not received weights from the trainer yet"
    return "idle", "no requests"


def _asleep(facts: EngineFacts) -> bool | None:
    return None if facts.sleep_state is None else facts.sleep_state != "awake"


def _behind(facts: EngineFacts, signs: ActivitySigns) -> bool:
    """Whether the replica's weights are older than the trainer's. They may also be newer for a moment: the trainer
    sends weights before it reports the step."""
    if facts.policy_version is None or signs.policy_version is None:
        return False
    return facts.policy_version < signs.policy_version


def _requests(number: float) -> str:
    """``1 request is``, ``3 requests are``."""
    return f"{quantity(round(number), 'request')} {plural(round(number), 'is', 'are')}"
