"""Selects the logs of the newest launch in a folder, so that an old failure is not the verdict on today's run. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from liverl.offline.doctor.logs import Log

UNKNOWN_S = 12 * 3600.0  # a log without a stamp at its beginning is not taken to be longer than this
SLACK = 300.0  # seconds before a launch in which its own servers may have ended: two clocks, a restart
# "launch_20261127_101010.log", "exp.2026-11-27T10-10-10.log", "slurm-48211.out" has none
_NAMED = re.compile(r"(20\d\d)-?(\d\d)-?(\d\d)[T_.-]?(\d\d)[-_:h]?(\d\d)(?:[-_:m]?(\d\d))?(?!\d)")


def begun(log: Log) -> float:
    """When a log was begun, as well as that is known: Unix seconds."""
    named = _NAMED.search(log.path.rpartition("/")[2])
    if log.begin is not None:
        return log.begin
    if named is not None:
        parts = [int(part or 0) for part in named.groups()]
        try:
            return time.mktime((*parts, 0, 0, -1))  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            pass
    return log.over - UNKNOWN_S


def newest_launch(logs: Sequence[Log], named: frozenset[str] = frozenset()) -> tuple[list[Log], list[Log]]:
    """The logs of the newest launch, and those of earlier ones. ``named``: paths that the user named himself; they are
    all of one run.

    A launch has a trainer's log. What was over before the newest trainer began is of an earlier launch, if that had a
    trainer, too: the log of a server that died before, or of a job that waited, is of the newest one otherwise.
    """
    trainers = [log for log in logs if log.trains and log.path not in named]
    if len(trainers) < 2:
        return list(logs), []
    newest = max(trainers, key=lambda log: (log.over, begun(log)))
    begin = begun(newest)
    earlier = [log for log in trainers if log.over < begin]
    if not earlier:
        return list(logs), []
    limit = max(log.over for log in earlier)
    own: list[Log] = []
    old: list[Log] = []
    for log in logs:
        over = log.over < begin - SLACK and log.over <= limit + SLACK
        is_old = log in earlier or (over and not log.trains)
        (old if is_old and log.path not in named else own).append(log)
    return own, old
