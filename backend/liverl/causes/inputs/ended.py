"""Why a process ended, from its logs and its exit: the one sentence, with its proof, that is shown everywhere."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL

import msgspec

from liverl import model
from liverl.causes.finding import Exit, Explanation, LogRecords, Verdict
from liverl.causes.inputs.places import at_its_line
from liverl.causes.match import Matcher, whole
from liverl.causes.quiet.told import Told, read_told
from liverl.causes.read.last_words import LAST_WORDS
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.causes.verdict.uncaught import UNCAUGHT
from liverl.causes.verdict.unexplained import (
    KNOWN_CONSEQUENCE,
    OF_AN_ERROR,
    SAYS_NOTHING,
    UNEXPLAINED,
    is_doubtful,
)
from liverl.logs.prefixes import colourless, without_prefix
from liverl.logs.record import Record
from liverl.util.regular_file import open_binary

MOST = 128 << 20  # bytes of one log that are read, its last ones: about 3 s
GONE = "its log is gone and was not read"  # in place of that it says nothing
# Lines that a script may print behind the error for which its trainer ended, besides those of ``LAST_WORDS``: of
# verl's other workers some ten, of a copy of results some dozens. What says more has gone on with something else.
EPILOGUE = 60
BEHIND = 1 << 20  # bytes behind an error that are looked at


class Ended(msgspec.Struct, frozen=True):
    """A process that has ended, or that waits for one. ``log``: its output, read from byte ``start`` on; ``also``:
    further logs that it wrote; ``exit``: how it ended, None or unknown if it was ended by its supervisor; ``oom``: what
    shows that the kernel's OOM killer ended a process lately, empty if nothing does. ``waits``: it goes on itself, and
    waits for what has failed."""

    name: str
    log: Path
    start: int = 0
    also: tuple[Path, ...] = ()
    exit: model.Exit | None = None
    oom: str = ""
    waits: bool = False


class Why(msgspec.Struct, frozen=True):
    """``of``: the process whose log holds the proof; ``guesses``: where the cause is unknown, likeliest first."""

    of: str
    explanation: Explanation
    guesses: tuple[Explanation, ...] = ()


def why_ended(
    ended: Ended,
    others: Sequence[Ended] = (),
    below: Sequence[Path] = (),
    matcher: Matcher | None = None,
) -> Why | None:
    """Why a process ended; None if neither its logs nor its exit tell. ``others``: of the same run, also ended;
    ``below``: logs of what they run on, such as Ray's. Both are looked at where its own logs do not explain it.
    ``matcher``: of another catalogue than ours.

    Logs that were written elsewhere, and those of others, may be missing.

    Raises:
        OSError: its log exists and cannot be read.
    """
    own = [*_read(ended.log, ended.start, matcher), *_read_all(ended.also, matcher=matcher)]
    exits = [*map(_exit, _told(ended))]
    oom = ended.oom if ended.waits else ""  # else it is in its exit
    verdict = judge(own, exits, matcher, failed_anyway=ended.waits, oom=oom)
    if (others or below) and (verdict.cause is None or verdict.cause.id in UNEXPLAINED):
        more = [log for other in others for log in _read_all((other.log, *other.also), other.start, matcher)]
        more += _read_all(below, matcher=matcher)
        exits += [_exit(o) for o in others if _told(o)]
        joint = judge([*own, *more], exits, matcher, failed_anyway=ended.waits, oom=oom)
        if joint.cause is not None and joint.cause.id not in UNEXPLAINED:
            verdict = joint if _concerns(joint.cause, {ended.log, *ended.also, *below}) else verdict
    if verdict.cause is None or _goes_on(verdict.cause.id, matcher):
        return None
    return _as_read(_located(verdict, [ended, *others]), ended)


def error_behind_success(ended: Ended, *, unfinished: bool, matcher: Matcher | None = None) -> Why | None:
    """The error for which a process ended although its exit code is 0: a shell script returns that of a pipe's last
    command, and verl's asynchronous trainer returns 0 after a sample has raised. None without one.

    What stands before the last progress of a training ended nothing. Behind the error may stand its consequences, as
    when an actor's exception is raised again by the driver, and what a shell or a logger prints last. ``unfinished``:
    it is known that work was left; else there may be no more than ``EPILOGUE`` other lines behind the error.
    ``matcher``: of another catalogue than ours.

    Raises:
        OSError: its log, or another one that it wrote, exists and cannot be read: no error may be missed.
    """
    logs = [
        *_read(ended.log, ended.start, matcher),
        *(log for path in ended.also for log in _read(path, 0, matcher)),
    ]
    signs = {log.log: read_told(log.log, ended.start if log.log == str(ended.log) else 0) for log in logs}
    logs = [_behind(log, signs[log.log].progress_at) for log in logs]
    verdict = judge(logs, matcher=matcher)
    cause = verdict.cause
    if (
        cause is not None
        and is_doubtful(cause.id, matcher)
        and _record_of(cause, logs).end <= _signs(cause, signs)
    ):
        # A trainer that went on to tell its steps did not end by an error that programs catch.
        logs = [_behind(log, signs[log.log].signs_at) for log in logs]
        verdict = judge(logs, matcher=matcher)
        cause = verdict.cause
    if cause is None or _goes_on(cause.id, matcher) or cause.id == "interrupted":
        return None
    record = _record_of(cause, logs)
    told = cause.title.startswith(KNOWN_CONSEQUENCE)
    if record.kind not in ("traceback", "shell") and cause.id in OF_AN_ERROR and not told:
        return None
    if not unfinished and _lines_behind(record, Path(cause.evidence[0].log or ""), matcher) > EPILOGUE:
        return None
    return _located(verdict, [ended])


def _concerns(cause: Explanation, logs: Collection[Path]) -> bool:
    """Whether a cause that was found in the logs of several processes can be that of the one which wrote ``logs``. The
    exception of which another one died says why that one ended."""
    return cause.id != UNCAUGHT or cause.evidence[0].log in {str(log) for log in logs}


def _goes_on(cause: str, matcher: Matcher | None) -> bool:
    """Whether a cause (its id) is what a process complains of, and goes on: no reason why it ended."""
    row = (matcher or whole()).by_id.get(cause)
    return row is not None and row.fails == "request"


def _record_of(cause: Explanation, logs: Sequence[LogRecords]) -> Record:
    proof = cause.evidence[0]
    log = next(one for one in logs if one.log == proof.log)
    return next(one for one in log.records if one.offset == proof.offset)


def _signs(cause: Explanation, signs: Mapping[str, Told]) -> int:
    return signs[cause.evidence[0].log or ""].signs_at


def _behind(log: LogRecords, offset: int) -> LogRecords:
    """A log without the records that end before a byte."""
    return msgspec.structs.replace(log, records=tuple(r for r in log.records if r.end > offset))


def _lines_behind(record: Record, log: Path, matcher: Matcher | None) -> int:
    """How many lines stand behind a record, without further errors and what a shell or a logger prints last."""
    read = read_log(log, str(log), record.end, matcher=matcher)
    errors = [(one.offset, one.end) for one in read.records if one.level == "error" or one.kind != "line"]
    count = 0
    with open_binary(log) as file:
        file.seek(record.end)
        data = file.read(BEHIND)
        more = bool(file.read(1))
    begin = record.end
    for line in data.split(b"\n"):
        within = any(start <= begin < end for start, end in errors)
        text = without_prefix(colourless(line.decode("utf-8", "replace")).strip())[1]
        count += bool(text.strip()) and not within and LAST_WORDS.match(text) is None
        begin += len(line) + 1
    return EPILOGUE + 1 if more else count


def _told(ended: Ended) -> list[Ended]:
    """The process, if it is known how it ended."""
    return [ended] if ended.exit is not None and ended.exit.known else []


def _exit(ended: Ended) -> Exit:
    how = ended.exit or model.Exit()
    killed = int(bool(ended.oom) and how.signal == SIGKILL)
    return Exit(ended.name, str(ended.log), how.code, how.signal, how.at, killed, ended.oom, unasked=True)


def _read(log: Path, start: int, matcher: Matcher | None) -> list[LogRecords]:
    try:
        size = os.stat(log).st_size
        return [read_log(log, str(log), max(start, size - MOST), matcher=matcher)]
    except FileNotFoundError:
        return []


def _read_all(logs: Sequence[Path], start: int = 0, matcher: Matcher | None = None) -> Iterator[LogRecords]:
    for place, log in enumerate(logs):
        try:
            yield from _read(log, start if place == 0 else 0, matcher)
        except OSError:
            continue  # of the log that the process itself wrote this is reported


def _as_read(why: Why, ended: Ended) -> Why:
    """What does not explain the end, with how much of the log was looked at, if not all of it was, or none."""
    if SAYS_NOTHING in why.explanation.title and not os.path.exists(ended.log):
        found = msgspec.structs.replace(
            why.explanation,
            title=why.explanation.title.replace(SAYS_NOTHING, GONE),
            cause=f"{ended.log} does not exist, so that what it said is not known.",
            fix="See whether the run's directory was renamed, moved or removed meanwhile: liverl-tui doctor reads the "
            "log where it is now.",
        )
        return msgspec.structs.replace(why, explanation=found)
    logs = ((ended.log, ended.start), *((log, 0) for log in ended.also))
    if why.explanation.id not in UNEXPLAINED or not any(_size(log) - start > MOST for log, start in logs):
        return why
    part = f"the last {MOST >> 20} MiB of its log"
    found = msgspec.structs.replace(
        why.explanation,
        title=why.explanation.title.replace(SAYS_NOTHING, f"{part} say nothing about it"),
        cause=f"{why.explanation.cause} Only {part} were looked at; liverl-tui doctor reads all of it.",
    )
    return msgspec.structs.replace(why, explanation=found)


def _size(log: Path) -> int:
    try:
        return os.stat(log).st_size
    except OSError:
        return 0


def _located(verdict: Verdict, ended: Sequence[Ended]) -> Why:
    assert verdict.cause is not None
    proof = tuple(at_its_line(one, Path(one.log)) if one.log else one for one in verdict.cause.evidence)
    log = next((one.log for one in proof if one.offset is not None), None)
    owners = (e.name for e in ended if log in [str(path) for path in (e.log, *e.also)])
    cause = msgspec.structs.replace(verdict.cause, evidence=proof)
    return Why(next(owners, ended[0].name), cause, verdict.guesses)
