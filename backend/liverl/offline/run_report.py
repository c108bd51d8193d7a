"""The report of a run as a command prints it: of an attempt that has ended the file that it has left, of one that still
runs the same page as of now; and in both what of the run was not looked at. Blocking."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from liverl.control.history import read_events
from liverl.control.messages import ControlError
from liverl.daemon.next_attempt import present_values
from liverl.diagnose import first_step
from liverl.diagnose.report import (
    files,
    past_alerts,
    report,
    resumed_words,
    running_report,
    step_time_lines,
    still_running,
    unclosed_report,
)
from liverl.model import Event, Snapshot
from liverl.observe.hung_stacks import saved_in
from liverl.offline.checkpoints import plan_of
from liverl.offline.left import standing
from liverl.offline.present import present_or_recorded
from liverl.offline.recorded import LAST_LOOK, recorded
from liverl.rundir.cleaned import read_cleaned
from liverl.rundir.copied import as_here, made_in
from liverl.rundir.layout import RunDir
from liverl.util.plural import quantity
from liverl.util.regular_file import read_text

MOST_UNREAD = 20  # files that are named


class NoReport(Exception):
    """There is none, or it cannot be read; the message says why."""


class RunReport:
    """The report of one attempt of a run. ``attempt`` None: the running attempt, else the newest with a report.
    ``state``: of the run, None if it is not known."""

    def __init__(self, run: RunDir, attempt: int | None) -> None:
        """
        Raises:
            NoReport: see there.
        """
        self.run, self.state, self.live, self.silent = run, *_present(run)
        running = self.live and self.state is not None and self.state.result is None
        self.running = self.state if running else None
        self.text = self._text(attempt)

    def _text(self, attempt: int | None) -> str:
        now = self.state
        if now is not None and now.attempt and attempt in (None, now.attempt):
            if self.running is not None:
                return _running(self.run, now)
            if not os.path.lexists(self.run.report(now.attempt)):
                return _unreported(self.run, now, self.silent)
        numbers = [attempt] if attempt is not None else sorted(self.run.attempts(), reverse=True)
        for number in numbers:
            try:
                text = read_text(self.run.report(number))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise NoReport(f"{self.run.report(number)}: {error.strerror or error}") from None
            if (recorded := made_in(self.run.path)) is not None:
                text = as_here(text, self.run.path, recorded)
            if self.state is not None and self.state.attempt == number:
                text = _as_now_worded(text, self.state)
            return _below_the_title(text, list(self._later(number)))
        which = f"attempt {attempt} of run {self.run.name}" if attempt is not None else f"run {self.run.name}"
        known = [number for number in self.run.attempts() if number != attempt]
        if attempt is not None and attempt not in self.run.attempts():
            there = ", ".join(map(str, known)) or "none"
            raise NoReport(f"{which} has no report: there is no such attempt (there are: {there})")
        why = self.run.never_started() and attempt is None
        raise NoReport(f"{which} has no report" + (": it was never started" if why else ""))

    def _later(self, number: int) -> Iterator[str]:
        """What has come after the attempt whose report this is."""
        if self.running is not None and self.running.attempt > number:
            made = bool(first_step.parts(read_events(self.run.path), self.running.started_at))
            yield f"attempt {self.running.attempt} of this run is {still_running(self.running, made=made)}"
            return
        if newer := [one for one in self.run.attempts() if one > number]:
            newest = max(newer)
            if self.run.report(newest).exists():
                yield f"a newer attempt of this run has ended since: attempt {newest}"
            else:
                yield f"attempt {newest} of this run began later and has left no report"
        if self.silent:
            yield f"whether an attempt runs now is not known: {self.silent}"

    def not_looked_at(self) -> list[str]:
        """What of the run's files this report could not take into account, and why."""
        return list(self._not_looked_at())

    def _not_looked_at(self) -> Iterator[str]:
        cleaned = read_cleaned(self.run.path)
        yield from (one.words for one in cleaned)
        state = self.state
        if state is None:
            yield "the state of the run is not recorded: no trial was counted"
            return
        if not self.live and not any(one.what == "trials" for one in cleaned):
            yield from self._gone(state)
        for one in state.unreadable[:MOST_UNREAD]:
            yield f"{one.path}: {one.why}"
        if (more := len(state.unreadable) - MOST_UNREAD) > 0:
            yield f"{quantity(more, 'more file')} could not be read"
        if state.trials.unrecorded:
            yield f"the answers of {quantity(state.trials.unrecorded, 'trial')}: they are not recorded"

    def _gone(self, state: Snapshot) -> Iterator[str]:
        """Trials that the run had counted at its end, and that are not there any more. Of a large run only the newest
        ones are looked for."""
        counted = self.run.read_snapshot()
        if counted is None:
            return
        total = counted.trials.total
        paths = [self.run.path / head.path for head in counted.trials.newest if head.path and not head.dumped]
        gone = max(total - state.trials.total, sum(not os.path.lexists(path) for path in paths))
        if gone > 0:
            yield f"at least {gone} of {quantity(total, 'trial')} that the run had at its end: their files are gone"


def _present(run: RunDir) -> tuple[Snapshot | None, bool, str]:
    try:
        return present_or_recorded(run)
    except ControlError as error:
        return recorded(run), False, str(error)


def _running(run: RunDir, state: Snapshot) -> str:
    page = _page(run, state, list(read_events(run.path)))
    return running_report(state, **page)


def _page(run: RunDir, state: Snapshot, events: Sequence[Event]) -> dict[str, Any]:
    """What a page says beside the state, as keywords of those that make one."""
    plan = plan_of(run.path)
    return {
        "alerts": past_alerts(events, state.started_at),
        "present": {name for name in files(state.attempt) if (run.path / name).exists()},
        "settings": present_values(run),
        "stacks": saved_in(run.stacks(state.attempt)),
        "serves": plan.serves if plan is not None else "",
        "resumed": resumed_words(events, state.attempt),
        "first": first_step.words(events, state.started_at),
        "made": bool(first_step.parts(events, state.started_at)),
    }


def _unreported(run: RunDir, state: Snapshot, silent: str) -> str:
    """The page of the newest attempt, which has left none: its backend died, does not answer, or could not write it.
    ``silent``: why that does not answer, "" without one."""
    events = list(read_events(run.path))
    page = _page(run, state, events)
    if (result := state.result) is not None and result.attempt == state.attempt:
        del page["made"]
        note = f"{run.report(state.attempt)} is missing: this is made from what else the run has left"
        return report(state, result, notes=(note,), **page)
    last = run.read_snapshot()
    signs = [*(event.at for event in events[-1:]), *([] if last is None else [last.at])]
    until = max(signs, default=state.at)
    if silent:
        how = "whether it still runs is not known"
        missing = [f"its backend tells nothing: {silent}", "what follows is the last that its backend wrote"]
    else:
        how, stand = state.phase or state.state, standing(run.path, state)
        dead = "it has no result. If its backend said why it ended, `backend.log` has it"
        doctor = f"what its logs say: `liverl-tui doctor {shlex.quote(str(run.path))}`"
        missing = [*([] if stand.left == "held" else [dead]), stand.sentence, doctor]
    found = (replace(one, cause=one.cause.removesuffix(f" ({LAST_LOOK})")) for one in state.symptoms)
    state = replace(state, symptoms=tuple(found))  # all that follows is of that time
    return unclosed_report(state, how=how, until=until, missing=missing, **page)


def _as_now_worded(text: str, state: Snapshot) -> str:
    """The report with the sentence of the step's bottleneck as every screen says it now: an earlier version may have
    written another one of the same figures. Of other figures the report keeps what it says."""
    if state.step_time is None:
        return text
    shares, bottleneck, *_ = step_time_lines(state.step_time)
    written = text.splitlines()
    for index, line in enumerate(written[:-1]):
        if line == shares and written[index + 1].startswith("- "):
            written[index + 1] = bottleneck
            return "\n".join(written) + "\n"
    return text


def _below_the_title(text: str, notes: list[str]) -> str:
    title, _, rest = text.partition("\n")
    return "\n".join([title, "", *(f"- {note}" for note in notes), rest.lstrip("\n")]) if notes else text
