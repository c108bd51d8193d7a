"""Files to a verdict, with the line and the byte of each piece of evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from liverl.causes.finding import Exit, Explanation, LogRecords, Verdict
from liverl.causes.judge import SYMPTOMS
from liverl.causes.places import at_its_line
from liverl.causes.reading import read_log
from liverl.causes.shown import words_of
from liverl.causes.unexplained import OF_AN_ERROR, UNEXPLAINED
from liverl.model import Cause
from liverl.offline.doctor.going_on import judge_files, of_trials
from liverl.offline.doctor.inputs import GENERATION, Input, collect
from liverl.offline.doctor.kinds import TRANSCRIPT
from liverl.offline.doctor.stacks import with_stacks
from liverl.util.regular_file import open_binary

MOST = 2 << 30  # bytes of one log that are read, its last ones
COUNTED = 4 << 30  # bytes in which lines are counted
_CHUNK = 1 << 20


class Examination(msgspec.Struct, frozen=True):
    """``lines``: of (log, offset), the number of its line, from 1."""

    verdict: Verdict
    files: tuple[Input, ...]
    lines: dict[tuple[str, int], int] = {}

    @property
    def read(self) -> bool:
        """Whether anything could be searched."""
        return any(one.read for one in self.files)

    @property
    def found(self) -> bool:
        """Whether anything is wrong."""
        return self.verdict.cause is not None or bool(self.verdict.symptoms)


def examine(paths: list[Path], progress: Callable[[str], None] = lambda _: None) -> Examination:
    """Read what is at ``paths`` and judge it. ``progress`` is told what is about to be read."""
    inputs = collect(paths)
    logs: list[LogRecords] = []
    files = []
    readable = sum(one.read for one in inputs.files)
    for one in inputs.files:
        if not one.read:
            files.append(one)
            continue
        progress(f"reading {len(logs) + 1} of {readable} logs, {_mib(one.size or 0)}: {one.path}")
        start = max(0, (one.size or 0) - MOST)
        try:
            records = read_log(Path(one.path), one.path, start)
        except OSError as error:
            files.append(msgspec.structs.replace(one, what=f"cannot be read: {error.strerror}", read=False))
            continue
        logs.append(of_trials(records) if one.what == TRANSCRIPT else records)
        part = f"; the last {_mib(MOST)} of {_mib(one.size or 0)} were read" if start else ""
        if records.left_out:
            part += f"; of its warnings and errors {records.left_out} in the middle were left out"
        files.append(msgspec.structs.replace(one, what=one.what + part))
    verdict = _located(_as_stated(_of_last_processes(logs, inputs.exits), inputs.stated))
    verdict = with_stacks(verdict, files)
    return Examination(verdict, tuple(files), dict(_lines(verdict)))


def _of_last_processes(logs: Sequence[LogRecords], exits: Sequence[Exit]) -> Verdict:
    """The verdict of a run whose services may have been restarted. Why one failed for good stands in the log of its
    last process: why the processes before it failed is something else that is wrong."""
    ended = {Path(exit_.log): GENERATION.fullmatch(Path(exit_.log).name) for exit_ in exits if exit_.log}
    last = {path.with_name(found[1]): int(found[2]) for path, found in ended.items() if found is not None}

    def before(log: LogRecords) -> bool:
        path = Path(log.log)
        found = GENERATION.fullmatch(path.name)
        return found is not None and int(found[2]) < last.get(path.with_name(found[1]), 0)

    kept = [log for log in logs if not before(log)]
    verdict = judge_files(kept, exits)
    if len(kept) == len(logs):
        return verdict
    seen = {one.id for one in explanations(verdict)} | UNEXPLAINED
    more = [one for one in explanations(judge_files(logs, exits)) if one.id not in seen]
    return msgspec.structs.replace(verdict, symptoms=(*verdict.symptoms, *more)[:SYMPTOMS])


def _as_stated(verdict: Verdict, stated: Cause | None) -> Verdict:
    """``verdict``, with what the backend of the run said where its logs alone do not explain the end, or do not show
    the value that mends it: it also saw the trials, Ray's state, the preflight checks and the kernel's counters. Where
    neither explains it, both name the same error: that of the service whose failure ended the run."""
    found = verdict.cause
    if stated is None:
        return verdict
    if found is not None and found.id not in UNEXPLAINED:
        known = found if stated.id in UNEXPLAINED else _completed(found, stated)
        return msgspec.structs.replace(verdict, cause=known)
    if not stated.id and found is not None and found.id in OF_AN_ERROR:
        return verdict  # an error in a log tells more than a reason without one
    guesses = verdict.guesses if stated.id in UNEXPLAINED else ()
    cause = Explanation(
        stated.id or "run-failed",
        "critical",
        words_of(stated),
        stated.why,
        stated.fix,
        stated.command,
        stated.patch,
        stated.evidence,
        stated.guess,
    )
    return Verdict(cause, guesses, verdict.symptoms)


def _completed(found: Explanation, stated: Cause) -> Explanation:
    """A cause that the logs show, with what the backend knew besides them: who else held GPU memory, and by the trials
    the value that mends it."""
    if found.id != stated.id:
        return found
    if stated.patch:
        found = msgspec.structs.replace(
            found, fix=stated.fix, command=stated.command, patch=stated.patch, guess=stated.guess
        )
    elif not words_of(stated).endswith(found.title):  # of another record
        return found
    return msgspec.structs.replace(found, cause=stated.why)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def explanations(verdict: Verdict) -> tuple[Explanation, ...]:
    """The cause first, then what else is wrong."""
    return (*(() if verdict.cause is None else (verdict.cause,)), *verdict.symptoms)


# --- the line of a piece of evidence --------------------------------------------------------------------


def _located(verdict: Verdict) -> Verdict:
    return Verdict(
        None if verdict.cause is None else _with_lines(verdict.cause),
        verdict.guesses,
        tuple(_with_lines(one) for one in verdict.symptoms),
    )


def _with_lines(explanation: Explanation) -> Explanation:
    evidence = tuple(at_its_line(one, Path(one.log)) if one.log else one for one in explanation.evidence)
    return msgspec.structs.replace(explanation, evidence=evidence)


def _lines(verdict: Verdict) -> Iterator[tuple[tuple[str, int], int]]:
    by_log: dict[str, set[int]] = {}
    for explanation in explanations(verdict):
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
