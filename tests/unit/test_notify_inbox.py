"""Which events people are told of, when, and in how many messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from liverl.model import Event, Level
from liverl.notify.inbox import BURST, HOLD_S, REFILL_S, REPEAT_S, Batch, Inbox

ALL = ("failed", "stalled", "alert", "done", "stopped", "resumed")
_numbers = count(1)


def event(kind: str, text: str = "", level: Level = "info", **data: Any) -> Event:
    return Event(next(_numbers), 1000.0, kind, text or kind, level, None, data)


def symptom(name: str, what: str = "new", level: Level = "error", **data: Any) -> Event:
    return event("symptom", f"{name} is {what}", level, id=name, what=what, **data)


def ended(state: str) -> Event:
    return event("run_ended", state, state=state)


STOP = event("stop", "stop requested by a client")
AGAIN = event("run_started", "run x (attempt 2) started", attempt=2)


def told(events: Sequence[Event], wanted: Sequence[str] = ALL, level: str = "critical") -> list[str]:
    """The kinds of messages on these events, one minute after each other."""
    inbox, kinds, now = Inbox(wanted, level), [], 0.0
    for one in events:
        inbox.take(one, now)
        now += 60.0
        kinds += [batch.kind for batch in inbox.due(now)]
    return kinds + [batch.kind for batch in inbox.due(now, everything=True)]


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        ([event("run_failed")], ["failed"]),
        ([event("run_failed"), ended("failed")], ["failed"]),
        ([ended("failed")], ["failed"]),
        ([event("run_done"), ended("done")], ["done"]),
        ([STOP, ended("stopped")], ["stopped"]),
        ([ended("stopped")], ["failed"]),  # with steps left, and nobody had asked it to
        ([STOP, AGAIN, ended("stopped")], ["resumed", "failed"]),  # that request was of the attempt before
        ([AGAIN], ["resumed"]),
        ([event("run_started", attempt=1)], []),
        ([event("run_started")], []),  # of a version that did not write the number
        ([event("run_failed"), AGAIN, event("run_failed")], ["failed", "resumed", "failed"]),
        ([symptom("proxy_down")], ["alert"]),
        ([symptom("disk_low", level="warning")], []),
        ([symptom("disk_low", level="warning"), symptom("disk_low", "worse")], ["alert"]),
        ([symptom("proxy_down"), symptom("proxy_down", "cleared", "info")], ["alert"]),
        ([symptom("trainer_stalled:trainer")], ["stalled"]),
        ([symptom("trainer_stalled:trainer", level="warning")], ["stalled"]),
        (
            [symptom("trainer_stalled:trainer"), symptom("trainer_stalled:trainer", "cleared", "info")],
            ["stalled", "resumed"],
        ),
        (
            [
                symptom("trainer_stalled:trainer"),
                event("symptom", id="trainer_stalled:trainer", what="cleared", with_run=True),
            ],
            ["stalled"],  # the trainer was stopped: it makes no progress again
        ),
        ([symptom("notify_failing:1", level="error")], []),  # it would be about itself
        ([event("run_failed"), symptom("run_failed:trainer"), symptom("service_failed:trainer")], ["failed"]),
        ([event("step"), event("state", level="error"), event("command"), event("adopting")], []),
    ],
)
def test_what_people_are_told_of(events: list[Event], kinds: list[str]) -> None:
    assert told(events) == kinds


def test_only_the_wanted_events_are_told_and_what_another_would_have_said_is_not_lost() -> None:
    assert told([event("run_failed"), ended("failed")], ["done"]) == []
    assert told([symptom("trainer_stalled:t")], ["alert"]) == ["alert"], "a stall is an alert as well"
    assert told([event("run_failed"), symptom("run_failed:t")], ["alert"]) == ["alert"]
    assert told([symptom("disk_low", level="warning")], ALL, "warning") == ["alert"]
    assert told([symptom("disk_low", level="info")], ALL, "info") == ["alert"]


def batches(inbox: Inbox, now: float, **options: bool) -> list[Batch]:
    return inbox.due(now, **options)


def test_what_flaps_is_one_message_after_a_pause() -> None:
    inbox = Inbox(ALL, "critical")
    flaps = [symptom("x"), symptom("x", "cleared", "info"), symptom("x")]
    for at, one in enumerate(flaps):
        inbox.take(one, float(at))
    assert inbox.due(HOLD_S - 0.1) == [] and inbox.next_due == HOLD_S and inbox.oldest == flaps[0].seq
    (batch,) = inbox.due(HOLD_S)
    assert batch.events == flaps and batch.seqs == tuple(one.seq for one in flaps) and not batch.final
    assert inbox.due(1e6) == [] and inbox.next_due is None and inbox.oldest is None
    inbox.take(symptom("x"), 10.0)
    assert inbox.due(10.0 + HOLD_S) == [], "the same alert is not told again so soon"
    inbox.take(symptom("y"), 10.0)
    assert [b.events[0].data["id"] for b in inbox.due(10.0 + HOLD_S)] == ["y"]
    assert [b.events[0].data["id"] for b in inbox.due(HOLD_S + REPEAT_S)] == ["x"]


def test_a_stall_that_is_over_is_told_at_once_and_one_that_begins_again_is_a_stall() -> None:
    inbox, name = Inbox(ALL, "critical"), "trainer_stalled:t"
    inbox.take(symptom(name), 0.0)
    assert [b.kind for b in inbox.due(HOLD_S)] == ["stalled"]
    inbox.take(symptom(name, "cleared", "info"), 20.0)
    inbox.take(symptom(name), 21.0)
    assert [b.kind for b in inbox.due(20.0 + HOLD_S)] == ["stalled"]
    inbox.take(symptom(name, "cleared", "info"), 40.0)
    assert [b.kind for b in inbox.due(40.0 + HOLD_S)] == ["resumed"]


def test_a_failure_tells_the_alerts_that_say_the_same() -> None:
    inbox = Inbox(ALL, "critical")
    why, apart = symptom("service_failed:trainer", fix="do this"), symptom("disk_low")
    inbox.take(apart, 0.0)
    inbox.take(why, 3.0)
    inbox.take(event("run_failed"), 3.0)
    alert, failed = sorted(inbox.due(3.0 + HOLD_S), key=lambda b: b.kind)
    assert (alert.kind, failed.kind, failed.absorbed) == ("alert", "failed", [why])
    assert why.seq in failed.seqs and failed.final and not alert.final
    assert inbox.next_due is None


def test_more_alerts_than_people_can_read_are_told_together() -> None:
    inbox = Inbox(ALL, "critical")
    for number in range(BURST + 5):
        inbox.take(symptom(f"x{number}"), 0.0)
    (batch,) = inbox.due(HOLD_S)
    assert batch.many and len(batch.events) == BURST + 5
    singles = 0
    for number in range(BURST - 1):
        inbox.take(symptom(f"y{number}"), 10.0 + number)
        singles += sum(not b.many for b in inbox.due(10.0 + number + HOLD_S))
    assert singles == BURST - 1
    inbox.take(symptom("z1"), 30.0)
    inbox.take(symptom("z2"), 30.0)
    assert inbox.due(30.0 + HOLD_S) == [], "the limit is reached"
    later = inbox.next_due
    assert later is not None and HOLD_S + 30.0 < later <= HOLD_S + 30.0 + REFILL_S
    (batch,) = inbox.due(later)
    assert batch.many and len(batch.events) == 2
    inbox.take(event("run_failed"), 40.0)
    assert [b.kind for b in inbox.due(40.0 + HOLD_S)] == ["failed"], "an end is never held back"


def test_the_end_of_a_run_tells_what_waits() -> None:
    inbox = Inbox(ALL, "critical")
    for name in ("a", "b", "c", "d"):
        inbox.take(symptom(name), 0.0)
    inbox.take(ended("done"), 0.0)
    done, rest = inbox.due(0.0, everything=True)
    assert (done.kind, rest.many, len(rest.events)) == ("done", True, 4)
    assert inbox.due(1e9, everything=True) == []


def test_what_is_settled_is_only_remembered() -> None:
    inbox = Inbox(ALL, "critical")
    inbox.take(event("run_failed"), 0.0, settled=True)
    inbox.take(ended("failed"), 0.0)
    inbox.take(symptom("trainer_stalled:t"), 0.0, settled=True)
    inbox.take(symptom("trainer_stalled:t", "cleared", "info"), 0.0)
    assert [b.kind for b in inbox.due(1e9)] == ["resumed"]
