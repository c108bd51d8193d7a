"""The report of a run as a command prints it: of an attempt that has ended the file that it has left, of one that still
runs the same page as of now; and in both what of the run was not looked at. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterator

from liverl.control.history import read_events
from liverl.control.messages import ControlError
from liverl.daemon.next_attempt import present_values
from liverl.diagnose import first_step
from liverl.diagnose.report import (
    files,
    past_alerts,
    resumed_words,
    running_report,
    step_time_lines,
    still_running,
)
from liverl.model import Snapshot
from liverl.observe.hung_stacks import saved_in
from liverl.offline.checkpoints import plan_of
from liverl.offline.present import present
from liverl.offline.recorded import recorded
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
        now = self.running
        if now is not None and attempt in (None, now.attempt):
            return _running(self.run, now)
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
        raise NoReport(f"{which} has no report")

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
        return *present(run), ""
    except ControlError as error:
        return recorded(run), False, str(error)


def _running(run: RunDir, state: Snapshot) -> str:
    plan = plan_of(run.path)
    events = list(read_events(run.path))
    there = {name for name in files(state.attempt) if (run.path / name).exists()}
    return running_report(
        state,
        past_alerts(events, state.started_at),
        there,
        present_values(run),
        saved_in(run.stacks(state.attempt)),
        serves=plan.serves if plan is not None else "",
        resumed=resumed_words(events, state.attempt),
        first=first_step.words(events, state.started_at),
        made=bool(first_step.parts(events, state.started_at)),
    )


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
