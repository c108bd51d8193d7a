"""Reads the logs of one run: their records for the catalogue of causes, the progress of the training, how they end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from liverl.causes.finding import Evidence, Explanation, LogRecords
from liverl.causes.reading import read_log
from liverl.causes.words import short
from liverl.offline.doctor.early_ends import early_ends
from liverl.offline.doctor.ends import log_stops
from liverl.offline.doctor.going_on import of_trials
from liverl.offline.doctor.inputs import UNREADABLE
from liverl.offline.doctor.kinds import TRANSCRIPT
from liverl.offline.doctor.logs import Log
from liverl.offline.doctor.silence import Tail, engine_stuck, hang, tail_of
from liverl.offline.doctor.training import Training, joined, training_of

# What goes on by itself, whatever the training does
_BESIDE = re.compile(r"Ray's (?:raylet|GCS)|a Ray service|kernel log")
MOST = 2 << 30  # bytes of one log that are read, its last ones


class Reading(msgspec.Struct, frozen=True):
    """``records``: of each log that could be read; ``training``: what all say of it; ``tails``: how each log ends;
    ``remarks``: of a log, by its path, what is to be said of how it was read; ``unread``: of one that could not be,
    why.
    """

    records: tuple[LogRecords, ...] = ()
    training: Training = Training()
    tails: tuple[tuple[Log, Tail], ...] = ()
    remarks: dict[str, str] = {}
    unread: dict[str, str] = {}

    def silent_ends(self, now: float) -> tuple[Explanation, ...]:
        """What is wrong with a run whose logs show no error: it hangs, it ended too early, or its log just stops."""
        early = early_ends((), [log.path for log, _ in self.tails])
        hangs = hang(self.tails, self.training, now)
        stuck = [one for log, tail in self.tails if (one := engine_stuck(log, tail)) is not None]
        stops = None
        if not early and hangs is None:
            stops = self._stops(now)
        return tuple(one for one in (hangs, *early[:1], *stuck[:1], stops) if one is not None)

    def _stops(self, now: float) -> Explanation | None:
        trainers = [(log, tail) for log, tail in self.tails if log.trains]
        if not trainers:
            return None
        log, tail = max(trainers, key=lambda one: one[0].over)
        line = Evidence(short(tail.line), log.path, tail.offset) if tail.line else Evidence("", log.path)
        newest = max(one.over for one, _ in self.tails)  # its servers may still write
        return log_stops(self.training, max(log.over, newest), line, now)


def read_logs(logs: Sequence[Log], progress: Callable[[str], None], *, foreign: bool) -> Reading:
    """Read the logs. ``foreign``: they are of no run of this program, whose backend knows how it went."""
    records: list[LogRecords] = []
    parts: list[tuple[float, Training]] = []
    tails: list[tuple[Log, Tail]] = []
    remarks: dict[str, str] = {}
    unread: dict[str, str] = {}
    for number, log in enumerate(logs, 1):
        size = log.input.size or 0
        what = f"reading {number} of {len(logs)} logs"
        progress(f"{what}, {_mib(size)}: {log.path}")
        start = max(0, size - MOST)
        so_far = partial(_so_far, progress, what, size - start, log.path)
        try:
            found = read_log(Path(log.path), log.path, start, log.zone, so_far)
            is_transcript = log.input.what == TRANSCRIPT
            if foreign and not is_transcript and not _BESIDE.search(log.input.what):
                parts.append((log.over, training_of(log.path, start)))
                tails.append((log, tail_of(log)))
        except OSError as error:
            unread[log.path] = f"{UNREADABLE}: {error.strerror}"
            continue
        records.append(of_trials(found) if is_transcript else found)
        remark = f"; the last {_mib(MOST)} of {_mib(size)} were read" if start else ""
        if found.left_out:
            remark += f"; of its warnings and errors {found.left_out} in the middle were left out"
        remarks[log.path] = remark
    training = joined([part for _, part in sorted(parts, key=lambda one: one[0])])
    return Reading(tuple(records), training, tuple(tails), remarks, unread)


def _so_far(progress: Callable[[str], None], what: str, size: int, path: str, done: int) -> None:
    progress(f"{what}, {done / (1 << 20):.1f} of {_mib(size)}: {path}")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
