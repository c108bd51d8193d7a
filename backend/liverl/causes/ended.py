"""Why a process ended, from its logs and its exit: the one sentence, with its proof, that is shown everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from signal import SIGKILL

import msgspec

from liverl import model
from liverl.causes.catalogue import SIGNATURES
from liverl.causes.finding import Exit, Explanation, LogRecords, Verdict
from liverl.causes.judge import judge
from liverl.causes.places import at_its_line
from liverl.causes.reading import read_log
from liverl.causes.unexplained import UNEXPLAINED

MOST = 128 << 20  # bytes of one log that are read, its last ones: about 3 s


# What a process complains of, and goes on: no reason why it ended.
_GOES_ON = frozenset(one.id for one in SIGNATURES if one.request)


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


def why_ended(ended: Ended, others: Sequence[Ended] = (), below: Sequence[Path] = ()) -> Why | None:
    """Why a process ended; None if neither its logs nor its exit tell. ``others``: of the same run, also ended;
    ``below``: logs of what they run on, such as Ray's. Both are looked at where its own logs do not explain it.

    Logs that were written elsewhere, and those of others, may be missing.

    Raises:
        OSError: its log exists and cannot be read.
    """
    own = [*_read(ended.log, ended.start), *_read_all(ended.also)]
    exits = [*map(_exit, _told(ended))]
    oom = ended.oom if ended.waits else ""  # else it is in its exit
    verdict = judge(own, exits, failed_anyway=ended.waits, oom=oom)
    if (others or below) and (verdict.cause is None or verdict.cause.id in UNEXPLAINED):
        more = [log for other in others for log in _read_all((other.log, *other.also), other.start)]
        more += _read_all(below)
        exits += [_exit(o) for o in others if _told(o)]
        joint = judge([*own, *more], exits, failed_anyway=ended.waits, oom=oom)
        if joint.cause is not None and joint.cause.id not in UNEXPLAINED:
            verdict = joint
    if verdict.cause is None or verdict.cause.id in _GOES_ON:
        return None
    return _located(verdict, [ended, *others])


def error_behind_success(ended: Ended, *, unfinished: bool) -> Why | None:
    """The error that the log of a process ends with although its exit code is 0: a shell script returns that of a
    pipe's last command, and verl's asynchronous trainer returns 0 after a sample has raised. None without one.

    ``unfinished``: it is known that work was left, so that an error line which a signature explains counts too; else
    only an uncaught exception does, as the last record of the log.

    Raises:
        OSError: its log exists and cannot be read.
    """
    logs = [*_read(ended.log, ended.start), *_read_all(ended.also)]
    verdict = judge(logs)
    cause = verdict.cause
    if cause is None or cause.id in _GOES_ON or cause.id == "interrupted":
        return None
    proof = cause.evidence[0]
    log = next(one for one in logs if one.log == proof.log)
    record = next(one for one in log.records if one.offset == proof.offset)
    raised = record.kind == "traceback"
    if not raised and (cause.id == "unknown" or not unfinished):
        return None
    if not unfinished and (log.last is None or log.last.offset != record.offset):
        return None
    return _located(verdict, [ended])


def _told(ended: Ended) -> list[Ended]:
    """The process, if it is known how it ended."""
    return [ended] if ended.exit is not None and ended.exit.known else []


def _exit(ended: Ended) -> Exit:
    how = ended.exit or model.Exit()
    killed = int(bool(ended.oom) and how.signal == SIGKILL)
    return Exit(ended.name, str(ended.log), how.code, how.signal, how.at, killed, ended.oom, unasked=True)


def _read(log: Path, start: int) -> list[LogRecords]:
    try:
        size = os.stat(log).st_size
        return [read_log(log, str(log), max(start, size - MOST))]
    except FileNotFoundError:
        return []


def _read_all(logs: Sequence[Path], start: int = 0) -> Iterator[LogRecords]:
    for place, log in enumerate(logs):
        try:
            yield from _read(log, start if place == 0 else 0)
        except OSError:
            continue  # of the log that the process itself wrote this is reported


def _located(verdict: Verdict, ended: Sequence[Ended]) -> Why:
    assert verdict.cause is not None
    proof = tuple(at_its_line(one, Path(one.log)) if one.log else one for one in verdict.cause.evidence)
    log = next((one.log for one in proof if one.offset is not None), None)
    owners = (e.name for e in ended if log in [str(path) for path in (e.log, *e.also)])
    cause = msgspec.structs.replace(verdict.cause, evidence=proof)
    return Why(next(owners, ended[0].name), cause, verdict.guesses)
