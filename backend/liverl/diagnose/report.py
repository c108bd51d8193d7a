"""The report of an attempt that has ended: one page of Markdown for a reader who was not there. Pure."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec

from liverl.causes.shown import words_of
from liverl.model import Cause, Event, Result, ServiceStatus, Snapshot, Symptom

MOST_ALERTS = 20  # of an attempt; the earliest ones
MOST_EVIDENCE = 3  # lines per alert
_LONGEST = 300  # characters of a line that is quoted


class PastAlert(msgspec.Struct):
    """One alert of an attempt. ``ended``: Unix time at which it was resolved, None if it never was."""

    id: str
    text: str
    began: float
    ended: float | None = None


def past_alerts(events: Iterable[Event], since: float) -> list[PastAlert]:
    """The alerts that the events from Unix time ``since`` on tell of, the earliest first."""
    found: list[PastAlert] = []
    for event in events:
        if event.kind != "symptom" or event.at < since:
            continue
        name, what = str(event.data.get("id", "")), event.data.get("what")
        current = next((a for a in reversed(found) if a.id == name and a.ended is None), None)
        if what == "cleared":
            if current is not None:
                current.ended = event.at
        elif current is None:
            found.append(PastAlert(name, event.text, event.at))
        else:
            current.text = event.text
    return found


def files(attempt: int) -> dict[str, str]:
    """What may be worth a look after attempt number ``attempt``: path relative to the run directory -> what it is."""
    own = f"attempt_{attempt:03d}"
    return {
        "config.yaml": "the configuration as it was used",
        f"{own}/logs": "what each service printed",
        "events.jsonl": "what happened, a line each",
        "metrics.jsonl": "the trainer's metrics, a line per step",
        "trials": "trajectories and rewards",
        f"{own}/litellm.yaml": "the proxy's last configuration with replicas",
    }


def report(snapshot: Snapshot, result: Result, alerts: Sequence[PastAlert], present: Container[str]) -> str:
    """The page. ``snapshot``: the last state; ``alerts``: of this attempt; ``present``: which of ``files`` exist."""
    lines = [
        f"# {snapshot.run}, attempt {result.attempt}: {result.summary}",
        "",
        *_what_ran(snapshot, result),
        "",
        *_why(snapshot, result),
        *_alerts(snapshot, alerts),
        *_files(snapshot, result, present),
    ]
    return "\n".join(lines) + "\n"


def _what_ran(snapshot: Snapshot, result: Result) -> Iterator[str]:
    wanted = f" of {snapshot.total_steps}" if snapshot.total_steps else ""
    rewards, trials = snapshot.rewards, snapshot.trials
    yield f"- state: {result.state}, exit code {result.exit_code}"
    took = _took(result.ended_at - result.started_at)
    yield f"- time: {_clock(result.started_at)} to {_clock(result.ended_at)}, {took}"
    yield f"- steps: {result.steps}{wanted}"
    if rewards.first is not None and rewards.last is not None:
        yield f"- mean reward: {rewards.first:.3f} in the first steps, {rewards.last:.3f} in the last ones"
    if trials.total:
        without = f", {trials.zero_tool_calls} without a tool call" if trials.zero_tool_calls else ""
        yield f"- trials: {trials.total}, {trials.finished} of them finished{without}"
    replicas = snapshot.replicas
    yield f"- topology: {snapshot.topology}, {replicas.expected} replicas, host {snapshot.backend.host}"
    for change in snapshot.changes:
        if change.attempt == result.attempt:
            yield f"- changed for this attempt: {change.words}"
    if result.resume:
        yield f"- go on with: `{result.resume}`"


def _why(snapshot: Snapshot, result: Result) -> Iterator[str]:
    if result.cause is None and result.state != "failed":
        return
    yield "## Why it ended"
    yield ""
    if result.cause is None:
        yield "No cause was found."
    else:
        cause = result.cause
        yield _quoted(words_of(cause))
        if cause.log is not None:
            at = "" if cause.offset is None else f", byte {cause.offset}"
            yield ""
            yield f"It stands in `{cause.log}`{at}."
        yield from _explained(cause)
    failed = [s for s in snapshot.services if s.state in ("failed", "gave_up")]
    for service in sorted(failed, key=lambda s: s.since):
        yield f"- {service.name} {_state(service)} at {_clock(service.since)}"
    yield ""


def _explained(cause: Cause) -> Iterator[str]:
    """Why, the proof, what to do, and where the cause is unknown the checks that tell."""
    if cause.why or cause.fix:
        yield ""
    if cause.why:
        yield f"- why: {_quoted(cause.why)}"
    for one in cause.evidence[:MOST_EVIDENCE]:
        yield f"- seen: {_quoted(one.text)}"
    if cause.fix:
        yield f"- what to do: {_quoted(cause.fix)}"
    for key, value in cause.patch.items():
        yield f"- change: `{key}: {value}`"
    if cause.command:
        yield f"- run: `{cause.command}`"
    for guess in cause.guesses:
        yield f"- {guess.title}; check: `{guess.check}`"


def _state(service: ServiceStatus) -> str:
    return "failed" if service.state == "failed" else "failed too often"


def _alerts(snapshot: Snapshot, alerts: Sequence[PastAlert]) -> Iterator[str]:
    if not alerts:
        return
    yield "## Alerts"
    yield ""
    open_ones = {symptom.id: symptom for symptom in snapshot.symptoms}
    for alert in alerts[:MOST_ALERTS]:
        until = "" if alert.ended is None else f", resolved at {_clock(alert.ended)}"
        yield f"- {_clock(alert.began)}{until}: {_quoted(alert.text)}"
        symptom = open_ones.get(alert.id)
        if symptom is not None and alert.ended is None:
            yield from _help(symptom)
    if len(alerts) > MOST_ALERTS:
        yield f"- and {len(alerts) - MOST_ALERTS} more: `liverl-tui events --run {snapshot.run}`"
    yield ""


def _help(symptom: Symptom) -> Iterator[str]:
    yield f"  - what to do: {_quoted(symptom.fix)}"
    for key, value in symptom.patch.items():
        yield f"  - change: `{key}: {value}`"
    for one in symptom.evidence[:MOST_EVIDENCE]:
        yield f"  - seen: {_quoted(one.words)}"


def _files(snapshot: Snapshot, result: Result, present: Container[str]) -> Iterator[str]:
    yield "## Files"
    yield ""
    yield f"Below `{snapshot.run_dir}`:"
    yield ""
    for name, what in files(result.attempt).items():
        if name in present:
            yield f"- `{name}`: {what}"


def _quoted(text: str) -> str:
    """The text on one line, cut."""
    one = " ".join(text.split())
    return one if len(one) <= _LONGEST else one[: _LONGEST - 1] + "…"


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _took(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
