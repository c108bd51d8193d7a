"""The message to a target, made of one or several events of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from liverl.diagnose.titles import capital, point
from liverl.model import SCHEMA, Event
from liverl.util import redact
from liverl.util.visible import visible

Kind = Literal["failed", "stalled", "alert", "done", "stopped", "resumed", "test"]
Severity = Literal["info", "warning", "critical"]
RANK: dict[str, int] = {"info": 0, "warning": 1, "critical": 2}
TITLE_MOST, TEXT_MOST, HINT_MOST = 120, 2000, 600  # characters
_SHOWN = 8  # of several alerts in one message
_SEVERITY: dict[str, Severity] = {"error": "critical", "warning": "warning"}


class Message(msgspec.Struct, frozen=True):
    """The JSON body that a target gets; docs/notifications.md describes it. ``id`` is the same whenever the message is
    sent again; ``time``: of the first event, in UTC; ``count``: how many events were joined; ``text``: says all of it,
    with run and hint, for services that show a text only."""

    id: str
    run: str
    attempt: int
    state: str
    event: Kind
    level: Severity
    title: str
    text: str
    hint: str
    host: str
    time: str
    count: int = 1
    schema: int = SCHEMA


class About(msgspec.Struct, frozen=True):
    """Facts that are the same in all messages of an attempt. ``attach`` and ``resume``: commands."""

    run: str
    attempt: int
    host: str
    attach: str
    resume: str


def severity(event: Event) -> Severity:
    """The severity of the alert that an event of the kind ``symptom`` tells of."""
    return _SEVERITY.get(event.level, "info")


def of_events(
    about: About, kind: Kind, events: Sequence[Event], state: str, absorbed: Sequence[Event] = ()
) -> Message:
    """The message on events of one alert: what happened last, and how often. ``absorbed``: alerts with the reason; the
    last one with a fix gives the hint."""
    last = _newest_cause(events)
    over = kind in ("alert", "stalled") and events[-1].data.get("what") == "cleared"
    title, said = point(last.text), last.text
    if kind == "resumed" and last.kind == "symptom":
        title = "the trainer makes progress again after a stall"
    elif kind == "resumed":
        title = said = f"attempt {last.data.get('attempt', about.attempt)} has begun"
    fix = next((str(e.data["fix"]) for e in (last, *reversed(absorbed)) if e.data.get("fix")), "")
    hint = {
        "failed": f"{fix}. " * bool(fix) + f"To see it: {about.attach}. To go on: {about.resume}",
        "stopped": f"To go on: {about.resume}",
        "done": f"To see it: {about.attach}",
        "resumed": "",
    }.get(kind, fix)
    ended = "; it ended with the run" if events[-1].data.get("with_run") else "; it is over already"
    told = said + (ended if over else "")
    level: Severity = (
        "critical" if kind == "failed" else "info" if kind in ("done", "resumed") else severity(last)
    )
    if kind == "stopped":
        level = "warning"
    return _message(about, events[0], kind, level, title, told, hint, state, _raised(events))


def of_many(about: About, events: Sequence[Event], state: str) -> Message:
    """One message on several different alerts, for bursts."""
    raised = [event for event in events if event.data.get("what") != "cleared"]
    level: Severity = max(map(severity, raised), key=lambda one: RANK[one], default="info")
    texts = list(dict.fromkeys(event.text for event in raised))
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    told = "; ".join([*texts[:_SHOWN], *more])
    title = f"{len(texts)} alerts"
    return _message(
        about,
        events[0],
        "alert",
        level,
        title,
        f"{title}: {told}",
        f"To see them: {about.attach}",
        state,
        len(raised),
    )


def trial_message(about: About, at: float) -> Message:
    """The message of ``notify --test``. ``at``: Unix seconds."""
    event = Event(0, at, "test", "this is a test of the notifications; nothing has happened")
    return _message(
        about,
        event,
        "test",
        "info",
        "a test of the notifications",
        event.text,
        "No action is needed",
        "",
        1,
    )


def _newest_cause(events: Sequence[Event]) -> Event:
    """The newest event that says what is wrong; one that only says that it is over, if there is no other."""
    return next((event for event in reversed(events) if event.data.get("what") != "cleared"), events[-1])


def _raised(events: Sequence[Event]) -> int:
    return max(1, len([event for event in events if event.data.get("what") != "cleared"]))


def _message(
    about: About,
    first: Event,
    kind: Kind,
    level: Severity,
    title: str,
    told: str,
    hint: str,
    state: str,
    count: int,
) -> Message:
    title, told, hint = _clean(title, TITLE_MOST), _clean(told, TEXT_MOST), _clean(hint, HINT_MOST)
    often = f" ({count} times)" if count > 1 and not title.endswith(" alerts") else ""
    stop = "" if told.endswith((".", "!", "?")) else "."
    text = f"Run {about.run} on {about.host}: {told}{often}{stop}" + (f" {capital(hint)}" if hint else "")
    moment = datetime.fromtimestamp(first.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Message(
        id=f"{about.run}#{first.seq}",
        run=about.run,
        attempt=about.attempt,
        state=state,
        event=kind,
        level=level,
        title=title,
        text=text,
        hint=hint,
        host=about.host,
        time=moment,
        count=count,
    )


def _clean(text: str, most: int) -> str:
    """One printable line without what looks like a key, of at most ``most`` characters: the text leaves this host."""
    line = visible(redact.value(" ".join(text.split())))
    return line if len(line) <= most else f"{line[: most - 1]}…"
