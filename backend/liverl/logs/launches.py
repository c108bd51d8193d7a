"""Divides the logs of a folder into those of its newest launch and those of earlier launches, so that an old failure
is not the verdict on today's run. Pure.

All times here are Unix seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence

import msgspec

# An estimate: seconds between the last lines of two logs of one launch, one of which may be buffered.
TOGETHER_S = 120.0
# An estimate: seconds before a launch in which its own servers may have ended: two clocks, a restart.
SLACK_S = 300.0
# "launch_20261127_101010.log", "exp.2026-11-27T10-10-10.log"; "slurm-48211.out" has no time
_NAMED = re.compile(r"(20\d\d)-?(\d\d)-?(\d\d)[T_.-]?(\d\d)[-_:h]?(\d\d)(?:[-_:m]?(\d\d))?(?!\d)")


class Written(msgspec.Struct, frozen=True):
    """A log. ``begin``: when it was begun, by its stamps, None if they do not tell; ``over``: when it was last written
    to; ``trains``: a trainer wrote it, so that it may tell of a launch of its own."""

    path: str
    over: float
    begin: float | None = None
    trains: bool = False


class Division(msgspec.Struct, frozen=True):
    """``began``: when the newest launch began, None if there is no earlier one, as far as that is known; ``earlier``:
    paths of the logs of launches before it."""

    began: float | None = None
    earlier: frozenset[str] = frozenset()


def begun(log: Written) -> float | None:
    """When a log was begun, by its stamps or by its name; None if neither tells. A name may also be that of something
    later than its last line: of a copy."""
    if log.begin is not None:
        return log.begin
    named = _NAMED.search(log.path.rpartition("/")[2])
    if named is None:
        return None
    parts = [int(part or 0) for part in named.groups()]
    try:
        at = time.mktime((*parts, 0, 0, -1))  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    return at if at <= log.over else None


def divide(
    logs: Sequence[Written],
    since: float | None = None,
    *,
    trainer: bool = True,
    kept: Collection[str] = (),
    longest: float | None = None,
) -> Division:
    """Find the logs of earlier launches.

    ``since``: when the processes of the newest launch were started, None if none is visible; ``trainer``: a trainer is
    one of them (servers alone may outlive many launches). ``kept``: paths that are of the newest launch in any case.
    ``longest``: seconds for which a log was written at most that does not tell when it was begun; None: it was begun
    after the log of the launch before it.

    A launch has a trainer's log. Without visible processes, what was over before the newest trainer began is of an
    earlier launch, if that had a trainer, too: the log of a server that died before, or of a job that waited, is of the
    newest one otherwise.
    """
    if since is not None and trainer:
        return Division(since, _over(logs, since, kept))
    trainers = [log for log in logs if log.trains]
    newest = max(trainers, key=lambda log: (log.over, begun(log) or 0.0), default=None)
    began = None if newest is None else _began(newest, trainers, longest)
    if since is not None:
        began = since if began is None else max(since, began)
        return Division(began, _over(logs, began, kept))
    before = [log.over for log in trainers if began is not None and log.over < began]
    if began is None or not before:
        return Division()
    limit = max(before) + SLACK_S
    return Division(
        began,
        frozenset(
            log.path
            for log in logs
            if log.path not in kept
            and (log.over < began if log.trains else log.over < began - SLACK_S and log.over <= limit)
        ),
    )


def _over(logs: Sequence[Written], at: float, kept: Collection[str]) -> frozenset[str]:
    return frozenset(log.path for log in logs if log.over < at and log.path not in kept)


def _began(newest: Written, trainers: Sequence[Written], longest: float | None) -> float | None:
    """When the newest of several trainers began; None if it is the only one."""
    if len(trainers) < 2:
        return None
    told = begun(newest)
    if told is not None:
        return told
    if longest is not None:
        return newest.over - longest
    before = [log.over for log in trainers if newest.over - log.over > TOGETHER_S]
    return max(before) + TOGETHER_S if before else None
