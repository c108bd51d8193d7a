"""Trainings that ended without an error before their last step, by the logs of a diagnosis."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from liverl.causes.finding import Explanation
from liverl.causes.quiet.end import quiet_end
from liverl.causes.quiet.reasons import JOB_FAILED, QUIET
from liverl.causes.quiet.told import Told, joined, read_told
from liverl.offline.doctor.closing import LogRead, end_of, own_end
from liverl.offline.doctor.inputs import look
from liverl.offline.doctor.logs import dated
from liverl.offline.doctor.silence import tail_of
from liverl.offline.doctor.training import Training
from liverl.rundir.layout import RunDir


def early_ends(runs: Sequence[Path], logs: Sequence[str]) -> tuple[Explanation, ...]:
    """What is said of each training that is known to have ended too early. ``runs``: directories of runs of this
    program, whose backends have judged them; ``logs``: other logs, whose reader tells which of them cannot be read."""
    read = []
    for log in dated(look(Path(path), named=True) for path in logs):
        with contextlib.suppress(OSError):
            read.append(LogRead(log, Training(told=read_told(log.path)), tail_of(log)))
    return (*(one for run in runs for one in _judged(run)), *ends_of(read))


def _judged(run: Path) -> Iterator[Explanation]:
    result = RunDir(run).read_result()
    cause = result.cause if result is not None else None
    if cause is None or cause.id not in QUIET | {JOB_FAILED}:
        return
    proof = tuple(replace(one, log=str(run / one.log)) if one.log else one for one in cause.evidence)
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


def ends_of(logs: Sequence[LogRead]) -> Iterator[Explanation]:
    """The same by logs that were read. A log that only stops may be of a training that goes on: its end counts only
    where it tells of it, or where its script does."""
    for _, group in groupby(sorted(logs, key=_folder), key=_folder):
        folder = list(group)
        folder = [one for one in folder if not one.told.ends_failed]
        trainings = [one for one in folder if one.told.has_training]
        others = [one for one in folder if one not in trainings]
        if len(trainings) > 1:  # of several runs: what is told beside them belongs to none
            others = []
        for one in trainings:
            yield from _of([one.told, *(other.told for other in others)], end_of(one, others))
        if not trainings:
            ends = (own_end(other.told) for other in others)
            yield from _of([other.told for other in others], next(filter(None, ends), ""))


def _of(parts: Sequence[Told], closed: str) -> Iterator[Explanation]:
    told = replace(joined(parts), closed=closed)
    ended = bool(closed) or any(job.end for one in parts for job in one.jobs)
    only_submitted = bool(told.jobs) and not told.trains and not any(job.end for job in told.jobs)
    if not (ended or only_submitted):
        return
    end = quiet_end(told, None, 0)
    if end.cause is not None:
        yield replace(end.cause, title=_title(end.cause.title), severity="warning")


def _title(text: str) -> str:
    return text if text.startswith(("its ", "the ")) else f"training {text}"


def _folder(one: LogRead) -> str:
    return str(Path(one.log.path).parent)
