"""Trainings that ended without an error before their last step, by the logs of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from liverl.causes.finding import Explanation
from liverl.causes.quiet.end import quiet_end
from liverl.causes.quiet.reasons import JOB_FAILED, QUIET
from liverl.causes.quiet.told import Told, joined, read_told
from liverl.offline.doctor.training import end_of
from liverl.rundir.layout import RunDir


def early_ends(runs: Sequence[Path], logs: Sequence[str]) -> tuple[Explanation, ...]:
    """What is said of each training that is known to have ended too early. ``runs``: directories of runs of this
    program, whose backends have judged them; ``logs``: other logs. A log that only stops may be of a training that goes
    on: its end counts only where it tells of it."""
    return (*_judged(runs), *_told(logs))


def _judged(runs: Sequence[Path]) -> Iterator[Explanation]:
    for path in runs:
        result = RunDir(path).read_result()
        cause = result.cause if result is not None else None
        if result is None or cause is None or cause.id not in QUIET | {JOB_FAILED}:
            continue
        proof = tuple(replace(one, log=str(path / one.log)) if one.log else one for one in cause.evidence)
        yield Explanation(
            cause.id,
            "warning",
            _title(cause.text),
            cause.why,
            cause.fix,
            cause.command,
            cause.patch,
            proof,
            cause.guess,
        )


def _told(logs: Sequence[str]) -> Iterator[Explanation]:
    for _, folder in groupby(sorted(logs, key=_folder), key=_folder):
        found = []
        for log in folder:
            try:
                told = read_told(log)
                found.append(replace(told, closed=told.closed or end_of(log)))
            except OSError:
                continue  # it was removed meanwhile
        trainings = [one for one in found if one.total or one.has_bar or one.step]
        others = [one for one in found if one not in trainings]
        if len(trainings) > 1:  # of several runs: what is told beside them belongs to none
            others = []
        for one in trainings or [Told()]:
            yield from _of(joined([one, *others]), [one, *others])


def _of(told: Told, parts: Sequence[Told]) -> Iterator[Explanation]:
    ended = bool(told.closed) or any(job.end for one in parts for job in one.jobs)
    only_submitted = bool(told.jobs) and not told.trains and not any(job.end for job in told.jobs)
    if not (ended or only_submitted):
        return
    end = quiet_end(told, None, 0)
    if end.cause is not None:
        yield replace(end.cause, title=_title(end.cause.title), severity="warning")


def _title(text: str) -> str:
    return text if text.startswith(("its ", "the ")) else f"training {text}"


def _folder(log: str) -> str:
    return str(Path(log).parent)
