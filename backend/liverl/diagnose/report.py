"""The report of an attempt, ended or still running: one page of Markdown for a reader who was not there. Pure."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from liverl.causes.inputs.shown import unchecked, words_of
from liverl.diagnose.failures import ids_for
from liverl.diagnose.titles import sentences
from liverl.diagnose.where.words import lines
from liverl.model import Cause, Event, Result, ServiceStatus, Snapshot, StepTime, Symptom
from liverl.observe.metrics.rewards import change, course_words, ends_trained_words, trained_words
from liverl.observe.trials.earlier import Earlier
from liverl.procs.stack_text import Saved, in_order, quoted
from liverl.rundir.commands import next_command, run_option
from liverl.util import redact
from liverl.util.ages import duration
from liverl.util.plural import quantity

MOST_ALERTS = 20  # of an attempt; the earliest ones
MOST_STACKS = 5  # processes of which the innermost frames are quoted
MOST_EVIDENCE = 3  # lines per alert
_LONGEST = 300  # characters of a line that is quoted


_RAN = {"model.model_path": "model", "run.engine": "engine", "trainer.kind": "trainer"}
RESUMES = "resumes"  # kind of the event that says from which step a further attempt trains
_ENDS = (
    "stop",
    "run_failed",
    "run_done",
    "run_unfinished",
)  # kinds of the event with which a run begins to end


class PastAlert(msgspec.Struct):
    """One alert of an attempt. ``text``: as it began; ``newest``: how it was told last, at Unix time ``newest_at``;
    ``ended``: Unix time at which it was resolved or over, None if it never was; ``fix``: what to do about it, as it was
    told; ``with_run``: it went because the run ended; ``fault``: it was told as a warning or an error at least once."""

    id: str
    text: str
    began: float
    ended: float | None = None
    fix: str = ""
    newest: str = ""
    newest_at: float = 0.0
    with_run: bool = False
    fault: bool = False


def resumed_words(events: Iterable[Event], attempt: int) -> str:
    """From which step a further attempt trained, as it was told at its beginning; "" if that was not known."""
    told = (event.text for event in events if event.kind == RESUMES and event.data.get("attempt") == attempt)
    return next(told, "")


def past_alerts(events: Iterable[Event], since: float) -> list[PastAlert]:
    """The alerts that the events from Unix time ``since`` on tell of, the earliest first. Those that go when the run
    begins to end were not resolved: nothing is left to watch then."""
    found: list[PastAlert] = []
    over = False
    for event in events:
        over = over or (event.at >= since and event.kind in _ENDS)
        if event.kind not in ("symptom", "symptom_muted") or event.at < since:
            continue
        name, what = str(event.data.get("id", "")), event.data.get("what")
        current = next((a for a in reversed(found) if a.id == name and a.ended is None), None)
        if what in ("cleared", "muted"):
            if current is not None and (over or event.data.get("with_run")):
                current.with_run = True
            elif current is not None:
                current.ended = event.at
        else:
            if current is None:
                current = PastAlert(name, event.text, event.at)
                found.append(current)
            current.newest, current.newest_at = event.text, event.at
            current.fault = current.fault or event.level != "info"
            current.fix = str(event.data.get("fix", ""))
    return found


def files(attempt: int) -> dict[str, str]:
    """What may be worth a look after attempt number ``attempt``: path relative to the run directory -> what it is."""
    own = f"attempt_{attempt:03d}"
    return {
        "config.yaml": "the configuration as it was used",
        f"{own}/logs": "what each service printed",
        f"{own}/stacks": "stacks of processes that hung, one file each",
        "events.jsonl": "what happened, a line each",
        "metrics.jsonl": "the trainer's metrics, a line per step",
        f"{own}/metrics.verl.1.jsonl": "the trainer's metrics, a line per step; of a further start .2, .3, ...",
        "trials": "trajectories and rewards",
        f"{own}/litellm.yaml": "the proxy's last configuration with replicas",
        "checkpoints": "what `--resume` goes on from",
    }


def report(
    snapshot: Snapshot,
    result: Result,
    alerts: Sequence[PastAlert],
    present: Container[str],
    settings: Mapping[str, str] | None = None,
    stacks: Sequence[Saved] = (),
    notes: Sequence[str] = (),
    *,
    serves: str = "",
    resumed: str = "",
    first: str = "",
) -> str:
    """The page, without secrets. ``snapshot``: the last state; ``alerts``: of this attempt; ``present``: which of
    ``files`` exist; ``settings``: the run's configuration, dotted key -> value; ``stacks``: of processes that hung, as
    they were saved; ``notes``: sentences for the first list; ``serves``: what the replicas are, in words, "" =
    ``run.engine``; ``resumed``: from which step a further attempt trained, "" = not known; ``first``: what its first
    step waited for, in words, "" = no step."""
    lines = [
        f"# {snapshot.run}, attempt {result.attempt}: {result.summary}",
        "",
        *_what_ran(snapshot, result, settings or {}, serves),
        *(f"- {note}" for note in (resumed, first) if note),
        *(f"- {note}" for note in notes),
        "",
        *_why(snapshot, result),
        *_alerts(snapshot, result.cause, alerts),
        *_hangs(stacks),
        *_files(snapshot, result.attempt, present),
    ]
    return redact.value("\n".join(lines) + "\n")


def running_report(
    snapshot: Snapshot,
    alerts: Sequence[PastAlert],
    present: Container[str],
    settings: Mapping[str, str] | None = None,
    stacks: Sequence[Saved] = (),
    *,
    serves: str = "",
    resumed: str = "",
    first: str = "",
    made: bool = True,
) -> str:
    """The page of an attempt that has not ended, as of its ``snapshot``, without secrets. See ``report``; ``made``:
    whether this attempt has finished a step."""
    lines = [
        f"# {snapshot.run}, attempt {snapshot.attempt}: {still_running(snapshot, made=made)}",
        "",
        f"- state: {snapshot.state}"
        + (f", {_quoted(snapshot.phase)}" if snapshot.phase not in ("", snapshot.state) else ""),
        f"- time: {_clock(snapshot.started_at)} to now, {duration(snapshot.at - snapshot.started_at)} so far; seen at "
        f"{_clock(snapshot.at)}",
        f"- steps: {_steps(snapshot, made=made)}",
        *_figures(snapshot, settings or {}, serves, snapshot.attempt),
        *(f"- {note}" for note in (resumed, first) if note),
        "",
        *_alerts(snapshot, None, alerts, "now"),
        *_hangs(stacks),
        *_files(snapshot, snapshot.attempt, present),
    ]
    return redact.value("\n".join(lines) + "\n")


def unclosed_report(
    snapshot: Snapshot,
    alerts: Sequence[PastAlert],
    present: Container[str],
    settings: Mapping[str, str] | None = None,
    stacks: Sequence[Saved] = (),
    *,
    how: str,
    until: float,
    missing: Sequence[str],
    serves: str = "",
    resumed: str = "",
    first: str = "",
    made: bool = True,
) -> str:
    """The page of an attempt that no backend closes and none speaks for, as its files tell it, without secrets. See
    ``running_report``; ``how``: it stands, in words; ``until``: Unix time of the last sign of its backend; ``missing``:
    sentences on what is not known, and what to do now."""
    step = f"step {_steps(snapshot, made=True)}" if made else "no step of this attempt"
    lines = [
        f"# {snapshot.run}, attempt {snapshot.attempt}: {_quoted(how)}, {step}",
        "",
        *(f"- {one}" for one in missing),
        f"- state: {snapshot.state}, {_quoted(snapshot.phase)}",
        f"- time: {_clock(snapshot.started_at)} to the last sign of its backend at {_clock(until)}, "
        f"{duration(until - snapshot.started_at)}",
        f"- steps: {_steps(snapshot, made=made)}",
        *_figures(snapshot, settings or {}, serves, snapshot.attempt),
        *(f"- {note}" for note in (resumed, first) if note),
        "",
        *_alerts(snapshot, None, alerts, "last"),
        *_hangs(stacks),
        *_files(snapshot, snapshot.attempt, present),
    ]
    return redact.value("\n".join(lines) + "\n")


def still_running(snapshot: Snapshot, *, made: bool) -> str:
    """``still running, as of 14:03:07, step 12 of 40``. ``made``: whether this attempt has finished a step."""
    step = f"step {_steps(snapshot, made=True)}" if made else "no step of this attempt yet"
    return f"still running, as of {time.strftime('%H:%M:%S', time.localtime(snapshot.at))}, {step}"


def _steps(snapshot: Snapshot, *, made: bool) -> str:
    of = f" of {snapshot.total_steps}" if snapshot.total_steps else ""
    if made:
        return f"{snapshot.step or 0}{of}"
    before = f"; step {snapshot.step} was the last one before it" if snapshot.step else ""
    return f"0{of} in this attempt{before}"


def _what_ran(snapshot: Snapshot, result: Result, settings: Mapping[str, str], serves: str) -> Iterator[str]:
    total = result.total_steps or snapshot.total_steps
    wanted = f" of {total}" + (f" (from {result.steps_by})" if result.steps_by else "") if total else ""
    yield f"- state: {result.state}, exit code {result.exit_code}"
    took = duration(result.ended_at - result.started_at)
    yield f"- time: {_clock(result.started_at)} to {_clock(result.ended_at)}, {took}"
    yield f"- steps: {result.steps}{wanted}"
    yield from _figures(snapshot, settings, serves, result.attempt)
    if (command := next_command(result)) is not None:
        yield f"- go on with: `{command}`"


def _figures(snapshot: Snapshot, settings: Mapping[str, str], serves: str, attempt: int) -> Iterator[str]:
    """What was measured and what ran, ended or not."""
    rewards, trials = snapshot.rewards, snapshot.trials
    if (ends := change(rewards)) is not None:
        course = course_words(rewards.course)
        of = f" ({said})" if (said := ends_trained_words(rewards.first_of, rewards.last_of)) else ""
        verdict = f": {course}" if course else ""
        yield f"- mean reward: {ends[0]:.3f} in the first three steps, {ends[1]:.3f} in the last three{of}{verdict}"
    elif rewards.last is not None:
        of = f" ({said})" if (said := trained_words(rewards.last_of)) else ""
        yield f"- mean reward of {quantity(rewards.steps, 'step')}: {rewards.last:.3f}{of}"
    if trials.total:
        gone = trials.earlier
        silent, missing = trials.zero_tool_calls - gone.zero_tool_calls, trials.unrecorded - gone.unrecorded
        without = f", {silent} without a tool call" if silent else ""
        unknown = f", {missing} whose answers are not recorded" if missing else ""
        total, finished = trials.total - gone.total, trials.finished - gone.finished
        more = f"; {gone.total} more of an earlier attempt are not counted" if gone.total else ""
        more += f"; {Earlier(0, gone.repeated).words} are not counted" if gone.repeated else ""
        yield f"- trials: {total}, {finished} of them finished{without}{unknown}{more}"
    if settings:
        shown = {**settings, **({"run.engine": serves} if serves else {})}
        yield "- " + ", ".join(f"{word}: {shown.get(key, '?')}" for key, word in _RAN.items())
    replicas = snapshot.replicas
    yield f"- topology: {snapshot.topology}, {quantity(replicas.expected, 'replica')}, host {snapshot.backend.host}"
    if snapshot.step_time is not None:
        yield from step_time_lines(snapshot.step_time)
    for name, where in snapshot.trackers.items():
        yield f"- {name}: {where}"
    for changed in snapshot.changes:
        if changed.attempt == attempt:
            yield f"- changed for this attempt: {changed.words}"


def step_time_lines(time: StepTime) -> list[str]:
    """Where the time of a step goes, as the report says it: its shares, its bottleneck, what is slower."""
    return [f"- {_line(line)}" for line in lines(time)]


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
            yield ""
            yield f"Log: `{cause.log}`" + ("" if cause.offset is None else f", at byte {cause.offset}")
    failed = [s for s in snapshot.services if s.state in ("failed", "gave_up")]
    points = [
        f"- {service.name} {_state(service)} at {_clock(service.since)}"
        for service in sorted(failed, key=lambda s: s.since)
    ]
    if result.cause is not None:
        points += _explained(result.cause)
    yield from ["", *points, ""] if points else [""]


def _explained(cause: Cause) -> Iterator[str]:
    """Why, the proof, what to do, and where the cause is unknown the checks that tell."""
    if cause.why:
        yield f"- why: {_quoted(cause.why)}"
    for one in cause.evidence[:MOST_EVIDENCE]:
        yield f"- seen: {_quoted(one.text)}"
    if cause.fix:
        yield f"- what to do: {_line(cause.fix)}"
    for key, value in cause.patch.items():
        yield f"- change: `{key}: {value}`"
    if cause.command:
        yield f"- run: `{cause.command}`"
    for guess in unchecked(cause):
        yield f"- possible: {guess.title}; check: `{guess.check}`"


def _state(service: ServiceStatus) -> str:
    return "failed" if service.state == "failed" else "failed too often"


def _alerts(
    snapshot: Snapshot, cause: Cause | None, alerts: Sequence[PastAlert], last: str = "at the end"
) -> Iterator[str]:
    """``last``: when the snapshot is of, in words."""
    if not alerts:
        return
    yield "## Alerts"
    yield ""
    open_ones = {symptom.id: symptom for symptom in snapshot.symptoms}
    for alert in alerts[:MOST_ALERTS]:
        symptom = open_ones.get(alert.id) if alert.ended is None else None
        until = (
            ""
            if alert.ended is None
            else f", {'resolved' if alert.fault else 'over'} at {_clock(alert.ended)}"
        )
        if alert.with_run and alert.id not in open_ones:
            until = ", ended with the run"
        when = f"- {_clock(alert.began)}{until}: "
        if symptom is None:
            yield f"{when}{_quoted(alert.text)}"
            yield from _later(alert, alert.newest, f"at {_clock(alert.newest_at)}")
            if alert.ended is None and alert.fix:
                yield f"  - what to do: {_line(alert.fix)}"
        elif alert.id in ids_for(cause):
            yield f"{when}{_quoted(symptom.title)}, as told above"
        else:
            yield f"{when}{_quoted(alert.text)}"
            yield from _later(alert, sentences(symptom.title, symptom.cause), last)
            yield from _help(symptom)
    if len(alerts) > MOST_ALERTS:
        yield f"- and {len(alerts) - MOST_ALERTS} more: `liverl-tui events{run_option(snapshot.run_dir)}`"
    yield ""


def _later(alert: PastAlert, words: str, when: str) -> Iterator[str]:
    """What an alert said later than at its begin, and when, if that is something else."""
    if _quoted(words) != _quoted(alert.text):
        yield f"  - {when}: {_quoted(words)}"


def _help(symptom: Symptom) -> Iterator[str]:
    yield f"  - what to do: {_line(symptom.fix)}"
    for key, value in symptom.patch.items():
        yield f"  - change: `{key}: {value}`"
    for one in symptom.evidence[:MOST_EVIDENCE]:
        yield f"  - seen: {_quoted(one.words)}"


def _hangs(stacks: Sequence[Saved]) -> Iterator[str]:
    if not stacks:
        return
    yield "## Where it hung"
    yield ""
    for one in in_order(stacks)[:MOST_STACKS]:
        why = f", {one.why}" if one.why else ""
        yield f"- {one.name} (pid {one.pid}) at {_clock(one.at)}{why}: {_quoted(one.title)}"
        yield ""
        yield from (f"      {line}" for line in quoted(one))
        yield ""
    if len(stacks) > MOST_STACKS:
        yield f"and {quantity(len(stacks) - MOST_STACKS, 'more process', 'more processes')}"
        yield ""


def _files(snapshot: Snapshot, attempt: int, present: Container[str]) -> Iterator[str]:
    yield "## Files"
    yield ""
    yield f"Below `{snapshot.run_dir}`:"
    yield ""
    for name, what in files(attempt).items():
        if name in present:
            yield f"- `{name}`: {what}"


def _line(text: str) -> str:
    """The text on one line, whole: an advice may end in the command that tells what to do."""
    return " ".join(text.split())


def _quoted(text: str) -> str:
    """The text on one line, cut between two words: half a path is none."""
    one = _line(text)
    if len(one) <= _LONGEST:
        return one
    kept = one[: _LONGEST - 1]
    whole = kept if one[_LONGEST - 1] == " " else kept.rpartition(" ")[0]
    return f"{(whole or kept).rstrip()} …"


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
