"""Decides which events become messages, and when: joins events of the same alert, and limits bursts. Pure.

The caller passes the time: ``now`` is in seconds of a monotonic clock. After an adoption, the same events give the same
messages, because all decisions follow from the events and their order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from liverl.diagnose.catalogue.notifying import NOT_TOLD
from liverl.diagnose.failures import is_end, is_failure
from liverl.model import Event
from liverl.notify.message import RANK, Kind, severity

HOLD_S = 5.0  # an event waits so long for others of the same alert: flapping gives one message
REPEAT_S = 300.0  # between two messages on the same alert; events in between are joined
# A burst of messages, and the seconds after which there may be another one: more alerts than that are joined.
BURST, REFILL_S = 10, 60.0
FEW = 3  # alerts that the end of a run still tells one by one
STALLED = "trainer_stalled"  # the rule whose alert is a stall
_FINAL: tuple[Kind, ...] = ("failed", "done", "stopped")


@dataclass
class Batch:
    """Events that become one message. ``many``: they are different alerts. ``absorbed``: further alerts in the
    message."""

    kind: Kind
    events: list[Event]
    many: bool = False
    absorbed: list[Event] = field(default_factory=list)

    @property
    def final(self) -> bool:
        """Whether it says how the run has ended."""
        return self.kind in _FINAL

    @property
    def seqs(self) -> tuple[int, ...]:
        """The numbers of all events in the message."""
        return tuple(sorted(event.seq for event in (*self.events, *self.absorbed)))


@dataclass
class _Pending:
    kind: Kind
    key: str
    due: float
    events: list[Event]


class Inbox:
    """``wanted``: the kinds of events for which messages are sent; ``min_level``: the least severity of alerts."""

    def __init__(self, wanted: Collection[str], min_level: str) -> None:
        self._wanted = frozenset(wanted)
        self._least = RANK[min_level]
        self._pending: dict[str, _Pending] = {}
        self._told_at: dict[str, float] = {}  # by key
        self._tokens, self._filled = float(BURST), 0.0
        self._begin()

    def _begin(self) -> None:
        """Forget what is only of one attempt."""
        self._failed = self._asked = False  # it has failed; somebody asked it to stop
        self._stalls: set[str] = set()  # alerts of stalls that are not over

    @property
    def oldest(self) -> int | None:
        """The number of the oldest event that waits; None if none does."""
        return min((event.seq for one in self._pending.values() for event in one.events), default=None)

    @property
    def next_due(self) -> float | None:
        """When ``due`` may next return something; None if nothing waits."""
        return min((one.due for one in self._pending.values()), default=None)

    def take(self, event: Event, now: float, *, settled: bool = False) -> None:
        """Note an event. ``settled``: people know of it already, or are not to be told."""
        kind = self._kind(event)
        if kind is None or settled or kind not in self._wanted:
            return
        key = str(event.data.get("id", "")) if event.kind == "symptom" else kind
        pending = self._pending.get(key)
        if pending is None:
            again = self._told_at.get(key)
            due = now + HOLD_S
            if again is not None and kind != "resumed":
                due = max(due, again + REPEAT_S)
            self._pending[key] = _Pending(kind, key, due, [event])
        else:
            pending.events.append(event)
            if kind == "stalled":
                pending.kind = kind  # it had gone on, and stalls again

    def _kind(self, event: Event) -> Kind | None:
        """What an event is for people; None if it is nothing that they are told of."""
        match event.kind:
            case "run_started":
                self._begin()
                return "resumed" if event.data.get("attempt", 1) != 1 else None
            case "stop":
                self._asked = True
            case "run_failed":
                first, self._failed = not self._failed, True
                return "failed" if first else None
            case "run_ended":
                return self._of_end(str(event.data.get("state", "")))
            case "symptom":
                return self._of_alert(event)
        return None

    def _of_end(self, state: str) -> Kind | None:
        if state == "done":
            return "done"
        if state == "stopped" and self._asked:
            return "stopped"
        first, self._failed = (
            not self._failed,
            True,
        )  # also: it ended with steps left, and nobody had asked it to
        return "failed" if first else None

    def _of_alert(self, event: Event) -> Kind | None:
        name, what = str(event.data.get("id", "")), event.data.get("what")
        stall = name.partition(":")[0] == STALLED
        if what == "cleared":
            waits = self._pending.get(name)
            if name in self._stalls:
                self._stalls.discard(name)
                if event.data.get("with_run"):  # a trainer that is stopped makes no progress
                    return waits.kind if waits is not None else None
                return waits.kind if waits is not None else "resumed"
            return waits.kind if waits is not None else None
        if name.startswith(NOT_TOLD):
            return None
        if stall and "stalled" in self._wanted:
            self._stalls.add(name)
            return "stalled"
        if self._failed and "failed" in self._wanted and (is_failure(name) or is_end(name)):
            return None  # the message on the failure says it
        return "alert" if RANK[severity(event)] >= self._least else None

    def due(self, now: float, *, everything: bool = False) -> list[Batch]:
        """The batches that are to be told now; they no longer wait. ``everything``: the run ends."""
        ready = [one for one in self._pending.values() if everything or one.due <= now]
        finals = [Batch(one.kind, one.events) for one in ready if one.kind in _FINAL]
        failed = next((batch for batch in finals if batch.kind == "failed"), None)
        if failed is not None:
            for one in [*self._pending.values()]:
                if is_failure(one.key) or is_end(one.key):
                    failed.absorbed += one.events
                    self._forget(one, now, ready)
        others = [one for one in ready if one.kind not in _FINAL]
        batches = finals + self._limited(others, now, everything)
        told = {event.seq for batch in batches for event in batch.events}
        for one in [*ready]:
            if one.events[0].seq in told:
                self._forget(one, now, ready)
        return batches

    def _forget(self, one: _Pending, now: float, ready: list[_Pending]) -> None:
        self._pending.pop(one.key, None)
        self._told_at[one.key] = now
        if one in ready:
            ready.remove(one)

    def _limited(self, ready: list[_Pending], now: float, everything: bool) -> list[Batch]:
        """As many messages as the limit allows; with fewer than alerts, one for all of them."""
        if not ready:
            return []
        self._tokens = min(float(BURST), self._tokens + (now - self._filled) / REFILL_S)
        self._filled = now
        single = len(ready) <= (FEW if everything else self._tokens)
        if not single and self._tokens < 1 and not everything:
            for one in ready:
                one.due = now + (1 - self._tokens) * REFILL_S
            return []
        if single or len(ready) == 1:
            self._tokens = max(0.0, self._tokens - len(ready))
            return [Batch(one.kind, one.events) for one in ready]
        self._tokens = max(0.0, self._tokens - 1)
        apart = [one for one in ready if one.kind != "alert"]  # a stall is told as such
        alerts = sorted(
            (event for one in ready if one.kind == "alert" for event in one.events), key=lambda e: e.seq
        )
        return [
            *(Batch(one.kind, one.events) for one in apart),
            *([Batch("alert", alerts, many=True)] if alerts else []),
        ]
