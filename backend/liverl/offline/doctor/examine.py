"""Examines files and gives a verdict, with the line and the byte of each piece of evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from liverl.causes.finding import Evidence, Explanation, Verdict
from liverl.causes.inputs.found import judge_found
from liverl.causes.inputs.places import located
from liverl.causes.inputs.stated import as_stated
from liverl.causes.verdict.guesses import GPU, RAY
from liverl.causes.verdict.plain_keys import for_others
from liverl.diagnose.catalogue.agents import calls_are_read
from liverl.model import TrialsStatus
from liverl.offline.checkpoints import plan_of
from liverl.offline.doctor.early_ends import early_ends
from liverl.offline.doctor.ended_anyhow import ends_untold, only_of_ray
from liverl.offline.doctor.ends import end_of_metrics_not_told, end_of_trials_not_told
from liverl.offline.doctor.inputs import Input, collect, exit_of, removed_of
from liverl.offline.doctor.interrupted import of_a_start
from liverl.offline.doctor.kinds import PACKED
from liverl.offline.doctor.moments import When, moments
from liverl.offline.doctor.named_errors import errors_named
from liverl.offline.doctor.passed_errors import errors_passed
from liverl.offline.doctor.reading import Reading, read_logs
from liverl.offline.doctor.recovered import (
    Recovery,
    over_before,
    recovered_note,
    recoveries,
    with_recovered,
)
from liverl.offline.doctor.rules import Judged, is_events, judged_files, judged_run, steps_of
from liverl.offline.doctor.scope import as_files, scope
from liverl.offline.doctor.stacks import of_stacks
from liverl.offline.doctor.trial_folders import TrialFolder
from liverl.offline.doctor.trials import SCAN_S, TrialsRead, failures, read_trials
from liverl.offline.doctor.unserved import unserved
from liverl.offline.doctor.up_output import end_untold, with_output
from liverl.offline.doctor.verdicts import evidence_of, joined, row_of, with_left_out, with_removed
from liverl.offline.run_rules import catalogue_of
from liverl.util.plural import quantity
from liverl.util.regular_file import open_binary

COUNTED = 4 << 30  # bytes in which lines are counted
SHOWN = 3  # paths that are named of those that cannot be read
_CHUNK = 1 << 20


class Examination(msgspec.Struct, frozen=True):
    """``files``: what was judged and what was only looked at; ``notes``: worth knowing, but no faults;
    ``left_out``: why there is more that was not looked at, empty if all was; ``lines``: of (log, offset), the number of
    its line, from 1; ``times``: when it was written; ``at``: the Unix time of this examination."""

    verdict: Verdict
    files: tuple[Input, ...]
    lines: dict[tuple[str, int], int] = {}
    times: dict[tuple[str, int], When] = {}
    notes: tuple[Explanation, ...] = ()
    left_out: str = ""
    at: float = 0.0

    @property
    def read(self) -> bool:
        """Whether anything could be searched."""
        return any(one.read for one in self.files)

    @property
    def found(self) -> bool:
        """Whether anything is wrong."""
        return self.verdict.cause is not None or bool(self.verdict.symptoms)


def examine(
    paths: list[Path],
    progress: Callable[[str], None] = lambda _: None,
    rules: Sequence[str] = (),
    unpacked: Collection[str] = (),
) -> Examination:
    """Read what is at ``paths`` and judge it: logs, metrics, trials, and what a run of this program says of itself.
    ``progress`` is told what is about to be read. ``rules``: files with rules of a site, beside those of the run.
    ``unpacked``: packed files of which ``paths`` have the content.

    Raises:
        RowsError: these cannot be used.
    """
    now = time.time()
    inputs = collect(paths, progress, unpacked)
    run = inputs.runs[0] if inputs.runs else None
    matcher, problems = catalogue_of(run, rules)
    found = scope(inputs, frozenset(str(path) for path in paths), now)
    reading = read_logs(found.logs, progress, matcher, foreign=run is None)
    words: dict[str, str] = {}
    again: tuple[Recovery, ...] = ()
    if run is not None:
        progress(f"applying the rules of a live run: {run.path}")
        of_run, trials = judged_run(run)
        judged = [of_run]
        again = recoveries(of_run.run, partial(exit_of, run)) if of_run.run is not None else ()
    else:
        trials, words = _trials(found.trials, progress)
        judged = [_by_rules(reading, found.metrics, trials, now)]
    progress("judging what the logs say")
    over = over_before(again, inputs.exits, [log.log for log in reading.records])
    verdict = as_stated(judge_found(reading.records, inputs.exits, matcher, over), inputs.stated)
    verdict = of_a_start(verdict, reading.records, bool(reading.training.told.made), found.logs)
    unlooked: list[str] = []
    failed = [one for read in trials for one in failures(read, progress, unlooked.append, matcher)]
    silent = reading.silent_ends(now) if run is None else early_ends([run.path], ())
    files = as_files(inputs, found, reading.remarks | words, reading.unread)
    hung, unread = of_stacks(files)
    unruled = [f"the run's own rules, which cannot be used ({why})" for why in problems]
    missed = [
        *unruled,
        *reading.left_out,
        *(words for one in judged for words in one.missed),
        *unread,
        *unlooked,
    ]
    left_out = _left_out(inputs.left_out, files, trials, missed)
    calls_read = any(calls_are_read(read.status.newest) for read in trials)
    verdict = located(joined(verdict, judged, failed, silent, matcher, calls_read=calls_read))
    ended = None if run is not None or verdict.explanations else unserved(reading.records)
    if ended is not None:
        verdict = msgspec.structs.replace(verdict, symptoms=(ended,))
    if hung is not None:
        verdict = msgspec.structs.replace(verdict, symptoms=(*verdict.symptoms, hung))
    verdict = with_left_out(verdict, left_out)
    verdict = with_removed(verdict, removed_of(run) if run is not None else ())
    if run is None:
        verdict = _for_others(verdict)
        if reading.outputs:
            verdict = with_output(verdict, reading.outputs[-1][1])
    elif (plan := plan_of(run.path)) is not None:
        never = (*(() if plan.may_use_ray else (RAY.id,)), *((GPU.id,) if plan.cpus else ()))
        guesses = tuple(one for one in verdict.guesses if one.id not in never)
        verdict = Verdict(verdict.cause, guesses, verdict.symptoms)
    logs = {log.path: log for log in found.logs}
    times = moments(evidence_of(verdict), logs)
    verdict = with_recovered(verdict, again, partial(_written, times), matcher)
    told = {row_of(one.id) for one in verdict.explanations}
    passed = errors_passed(reading.records, verdict, matcher)
    untold = ends_untold(reading.records, verdict, matcher)
    named = errors_named(reading.records, verdict)
    newest = reading.outputs[-1] if reading.outputs else None
    open_end = end_untold(newest[1], newest[0].path) if newest is not None and not newest[1].state else None
    quoted = [one for one in (passed, untold, named, open_end) if one is not None]
    of_ray = (
        None if run is not None or verdict.explanations else only_of_ray(log.log for log in reading.records)
    )
    return Examination(
        verdict,
        files,
        dict(_lines([*verdict.explanations, *quoted])),
        times,
        (
            *(note for one in judged for note in one.notes),
            *(one.explanation for one in failed if one.is_usual and one.explanation.id not in told),
            *(reading.notes(now) if verdict.cause is None and not silent else ()),
            *([recovered] if (recovered := recovered_note(again, verdict)) is not None else []),
            *quoted,
            *([of_ray] if of_ray is not None else []),
        ),
        left_out,
        now,
    )


def _written(times: Mapping[tuple[str, int], When], line: Evidence) -> float | None:
    """When a line was written; of a log that states the time of the day only, the last time before its end at which it
    was that hour. None: that is not known."""
    when = times.get((line.log or "", -1 if line.offset is None else line.offset))
    return None if when is None else when.line if when.line is not None else when.latest


def _for_others(verdict: Verdict) -> Verdict:
    """``verdict`` on logs that are of no run of ours: no sentence names a key of our configuration."""
    return Verdict(
        None if verdict.cause is None else for_others(verdict.cause),
        tuple(map(for_others, verdict.guesses)),
        tuple(map(for_others, verdict.symptoms)),
    )


def _some(paths: Sequence[str]) -> str:
    return ", ".join([*paths[:SHOWN], *(["..."] if len(paths) > SHOWN else [])])


def _left_out(limit: str, files: Sequence[Input], trials: Sequence[TrialsRead], missed: Sequence[str]) -> str:
    """What there is that was not looked at, empty if that is nothing, or if nothing at all could be read. ``limit``:
    the one that was met; ``missed``: parts of files, in words."""
    older = sum(one.unread for one in trials)
    packed = [one.path for one in files if one.missed and one.what.startswith(PACKED)]
    unread = [one.path for one in files if one.missed and not one.what.startswith(PACKED)]
    if not any(one.read for one in files):
        return limit
    parts = (
        limit,
        f"{quantity(older, 'trial')} of the oldest steps, which would have taken too long" if older else "",
        f"{quantity(len(unread), 'path')} that cannot be read ({_some(unread)})" if unread else "",
        f"{quantity(len(packed), PACKED + ' file')}, read only if named ({_some(packed)})" if packed else "",
        *missed,
    )
    return "; ".join(filter(None, parts))


def _trials(
    folders: Sequence[TrialFolder], progress: Callable[[str], None]
) -> tuple[list[TrialsRead], dict[str, str]]:
    """The trials of folders that are no run's, and what is to be said of each folder."""
    read, words = [], {}
    until = time.monotonic() + SCAN_S
    for folder in sorted(folders, key=lambda one: -one.modified):
        progress(f"reading {folder.words}: {folder.path}")
        one = read_trials(folder, max(1.0, until - time.monotonic()))
        read.append(one)
        if one.unread:
            words[str(folder.path)] = f"; {one.unread} of the oldest ones were not read"
    return read, words


def _by_rules(reading: Reading, metrics: Sequence[Path], trials: Sequence[TrialsRead], now: float) -> Judged:
    """What the rules for runs say of steps and trials."""
    training = reading.training
    recent, source = (
        training.recent,
        next((one.log.path for one in reversed(reading.logs) if one.log.trains), ""),
    )
    missed = []
    for path in metrics:
        steps = steps_of(path)
        missed += [steps.missed] if steps.missed else []
        of_file = steps.recent
        newest = recent.steps[-1].step if recent.steps else -1
        if of_file.steps and of_file.steps[-1].step >= newest + is_events(
            path
        ):  # those are rounded to 7 digits
            recent, source = of_file, str(path)
    if not recent.steps and not trials:
        return Judged(missed=tuple(missed))
    most = max(trials, key=lambda one: one.status.total, default=TrialsRead(TrialsStatus()))
    judged = judged_files(recent, source, most.status, most.unreadable, training.owed, now)
    alone = recent.steps and not any(one.log.trains or one.told.has_training for one in reading.logs)
    untold = [end_of_metrics_not_told(recent.steps[-1].step, source)] if alone else []
    if (
        not recent.steps and not reading.logs and most.status.steps
    ):  # a trial that was named is asked about itself
        untold.append(end_of_trials_not_told(most.status))
    return msgspec.structs.replace(judged, missed=tuple(missed), notes=(*judged.notes, *untold))


# --- the line of a piece of evidence --------------------------------------------------------------------


def _lines(explanations: Sequence[Explanation]) -> Iterator[tuple[tuple[str, int], int]]:
    by_log: dict[str, set[int]] = {}
    for explanation in explanations:
        for one in explanation.evidence:
            if one.log is not None and one.offset is not None:
                by_log.setdefault(one.log, set()).add(one.offset)
    for log, offsets in by_log.items():
        try:
            yield from (((log, offset), line) for offset, line in _numbers(log, sorted(offsets)))
        except OSError:
            continue


def _numbers(log: str, offsets: list[int]) -> Iterator[tuple[int, int]]:
    line, at = 1, 0
    with open_binary(log) as file:
        for offset in offsets:
            if offset > COUNTED:
                return
            while at < offset:
                data = file.read(min(_CHUNK, offset - at))
                if not data:
                    break
                line, at = line + data.count(b"\n"), at + len(data)
            yield offset, line
