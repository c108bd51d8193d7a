"""Reads the logs of one run: their records for the catalogue of causes, the progress of the training, how they end."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from liverl.causes.finding import Evidence, Explanation, LogRecords
from liverl.causes.inputs.found import of_trials
from liverl.causes.match import Matcher
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.words import short
from liverl.offline.doctor.closing import LogRead, end_of, own_end
from liverl.offline.doctor.early_ends import ends_of
from liverl.offline.doctor.ends import end_not_told, exit_without_error, log_stops
from liverl.offline.doctor.inputs import Input, unreadable
from liverl.offline.doctor.kinds import TRANSCRIPT
from liverl.offline.doctor.logs import Log
from liverl.offline.doctor.silence import engine_stuck, hang, tail_of
from liverl.offline.doctor.training import Training, TrainingReader, joined
from liverl.offline.doctor.up_output import KIND, Told, apart, told
from liverl.util.regular_file import open_binary

GROWS_S = 60.0  # seconds for which a log must not have grown
# What goes on by itself, whatever the training does
_BESIDE = re.compile(r"Ray's (?:raylet|GCS)|a Ray service|kernel log")
MOST = 2 << 30  # bytes of one log that are read, its last ones,
HEAD = 4 << 20  # and of its beginning for what it tells of the training
MOST_OUTPUT = 64 << 20  # bytes of an output of `liverl-tui up`, its last ones; a step takes 300


class Reading(msgspec.Struct, frozen=True):
    """``records``: of each log that could be read; ``logs``: what those say that may be of the training; ``remarks``:
    of a log, by its path, what is to be said of how it was read; ``unread``: of one that could not be, why;
    ``left_out``: what was not read of the others, in words; ``outputs``: what outputs of `liverl-tui up` say of their
    runs, the newest, which alone is judged, last.
    """

    records: tuple[LogRecords, ...] = ()
    logs: tuple[LogRead, ...] = ()
    remarks: dict[str, str] = {}
    unread: dict[str, Input] = {}
    left_out: tuple[str, ...] = ()
    outputs: tuple[tuple[Log, Told], ...] = ()

    @property
    def training(self) -> Training:
        """What all logs together say."""
        order = sorted(self.logs, key=lambda one: one.log.over)
        return joined([one.training for one in order], self._ended())

    def _ended(self) -> str:
        """The line by which the training has ended, as the log with its last work says, or a script which may have
        waited for it; empty without one."""
        trainers = [one for one in self.logs if one.told.has_training or one.log.trains]
        if not trainers:
            return next((line for one in self.logs if (line := own_end(one.told))), "")
        newest = max(trainers, key=lambda one: (one.told.has_training, one.tail.at or one.log.over))
        if newest.told.ends_failed:
            return newest.told.failed
        return end_of(newest, [one for one in self.logs if one is not newest])

    def silent_ends(self, now: float) -> tuple[Explanation, ...]:
        """What is wrong with a run whose logs show no error: it hangs, it ended too early, or its log just stops."""
        early = [*self._failures(now), *ends_of(self.logs)]
        training = self.training
        hangs = hang([(one.log, one.tail) for one in self.logs], training, now)
        stuck = [found for one in self.logs if (found := engine_stuck(one.log, one.tail)) is not None]
        stops = None
        if not early and hangs is None:
            stops = self._stops(training, now)
        return tuple(one for one in (hangs, *early[:1], *stuck[:1], stops) if one is not None)

    def _failures(self, now: float) -> Iterator[Explanation]:
        """Logs that end with an exit code other than 0. In one that grows, other lines may follow: a command of an
        agent has failed."""
        for one in self.logs:
            is_last = one.tail.line.endswith(one.told.failed)
            if one.told.ends_failed and (is_last or now - one.log.over >= GROWS_S):
                yield exit_without_error(one.training, one.told.proofs["failed"])

    def _stops(self, training: Training, now: float) -> Explanation | None:
        found = self._last_line()
        return None if found is None else log_stops(training, *found, now)

    def notes(self, now: float) -> tuple[Explanation, ...]:
        """What is worth to know of the end of the training, and no fault."""
        found = self._last_line()
        note = None if found is None else end_not_told(self.training, *found, now)
        return () if note is None else (note,)

    def _last_line(self) -> tuple[float, Evidence] | None:
        """When the trainer, or a server beside it, has written last, and the trainer's last line of work."""
        trainers = [one for one in self.logs if one.log.trains or one.told.has_training]
        if not trainers:
            return None
        last = max(trainers, key=lambda one: (one.told.has_training, one.log.over))
        log, tail = last.log, last.tail
        line = Evidence(short(tail.line), log.path, tail.offset) if tail.line else Evidence("", log.path)
        newest = max(one.log.over for one in self.logs)  # its servers may still write
        return max(log.over, newest), line


def read_logs(
    logs: Sequence[Log],
    progress: Callable[[str], None],
    matcher: Matcher | None = None,
    *,
    foreign: bool,
) -> Reading:
    """Read the logs, each once. ``foreign``: they are of no run of this program, whose backend knows how it went.
    ``matcher``: of another catalogue than ours."""
    records: list[LogRecords] = []
    read: list[LogRead] = []
    remarks: dict[str, str] = {}
    unread: dict[str, Input] = {}
    left_out: list[str] = []
    outputs: list[tuple[Log, Told]] = []
    for number, log in enumerate(logs, 1):
        size = log.input.size or 0
        what = f"reading {number} of {len(logs)} logs"
        progress(f"{what}, {_mib(size)}: {log.path}")
        start = max(0, size - MOST)
        is_transcript = log.input.what == TRANSCRIPT
        listens = foreign and not is_transcript and not _BESIDE.search(log.input.what)
        if log.input.what == KIND:
            start = max(0, size - MOST_OUTPUT)
            try:
                found, said = _read_output(log, start, matcher)
            except OSError as error:
                unread[log.path] = unreadable(Path(log.path), error, named=True)
                continue
            records.append(found)
            outputs.append((log, said))
            if said.folder:
                remarks[log.path] = f"; its run is in {said.folder}, which tells more if it is there"
            if start:
                left_out.append(f"{_mib(start)} at the beginning of {log.path}")
            continue
        reader = TrainingReader(log.path)
        so_far = partial(_so_far, progress, what, size - start, log.path)
        try:
            if listens and start:
                _hear_head(log.path, reader)
            hear = reader.hear if listens else None
            found = read_log(Path(log.path), log.path, start, log.zone, hear, so_far, matcher=matcher)
            if listens:
                read.append(LogRead(log, reader.training, tail_of(log)))
        except OSError as error:
            unread[log.path] = unreadable(Path(log.path), error, named=True)
            continue
        records.append(of_trials(found, matcher) if is_transcript else found)
        remark = f"; the last {_mib(MOST)} of {_mib(size)} were read" if start else ""
        if start:
            left_out.append(f"{_mib(start)} at the beginning of {log.path}")
        if found.left_out:
            remark += f"; of its warnings and errors {found.left_out} in the middle were left out"
        remarks[log.path] = remark
    outputs.sort(key=lambda one: one[0].over)
    older = {log.path for log, _ in outputs[:-1]}
    remarks |= {path: f"{remarks.get(path, '')}; of an earlier run, not judged" for path in older}
    judged = tuple(one for one in records if one.log not in older)
    return Reading(judged, tuple(read), remarks, unread, tuple(left_out), tuple(outputs))


def _read_output(log: Log, start: int, matcher: Matcher | None) -> tuple[LogRecords, Told]:
    """What others have written into an output of `liverl-tui up`, and what that says itself.

    Raises:
        OSError: it cannot be read.
    """
    with open_binary(log.path) as file:
        file.seek(start)
        left, own = apart(file.read(MOST_OUTPUT))
    with tempfile.NamedTemporaryFile(prefix="liverl-doctor-") as others:
        others.seek(start)
        others.write(left)
        others.flush()
        os.utime(others.name, (log.modified, log.modified))
        return read_log(others.name, log.path, start, log.zone, matcher=matcher), told(own, log.path)


def _hear_head(path: str, reader: TrainingReader) -> None:
    """The beginning of a log of which only the end is read: totals stand there."""
    with open_binary(path) as file:
        data = file.read(HEAD)
    reader.hear(data[: data.rfind(b"\n") + 1], 0)


def _so_far(progress: Callable[[str], None], what: str, size: int, path: str, done: int) -> None:
    progress(f"{what}, {done / (1 << 20):.1f} of {_mib(size)}: {path}")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
