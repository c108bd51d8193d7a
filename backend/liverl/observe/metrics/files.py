"""Joins the metrics files of a run to one history by global step.

The embedded trainer writes one ``metrics.jsonl`` per run. verl's file logger overwrites its file, so each
start gets its own: ``attempt_NNN/metrics.verl.jsonl``, further starts within an attempt
``metrics.verl.2.jsonl`` and so on. For trainers that write neither, the logs are read; if those
have no steps, tensorboard's event files, to which ``attempt_NNN/metrics.events.N.tfevents`` link. A later file
supersedes earlier ones from its first step on, as a resumed trainer repeats these steps.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from liverl.logs.follow import LineFollower
from liverl.observe.metrics.event_files import EventFollower
from liverl.observe.metrics.step_lines import decode_record, decode_step_line, numbers_of, validation_only
from liverl.rundir.layout import SCRIPT_LOG, TRAIN_LOG
from liverl.util.regular_file import RefusedFileError, open_binary

CHUNK = 1 << 20  # bytes per poll, so that a long history does not block other work
_STEP_LIMIT = 1 << 62
_COARSE = 0.02  # seconds by which a file's time may be behind the clock: a tick of the kernel
_ATTEMPT = re.compile(r"attempt_(\d{3,9})")
_EVENTS = re.compile(r"metrics\.events\.(\d{1,18})\.tfevents")
_BEHIND = 1 << 20  # the place of event files among those of an attempt: behind all logs
_VERL = re.compile(r"metrics\.verl(?:\.(\d{1,9}))?\.jsonl")
# The trainer's log, and links to those that a launch script writes elsewhere.
_LOG = re.compile(rf"(?:trainer|{TRAIN_LOG}|{SCRIPT_LOG}.+)\.(\d{{1,9}})\.log")

Record = tuple[int, dict[str, float]]


class Batch(msgspec.Struct, frozen=True):
    """New records.

    ``fresh``: a file was replaced or truncated, and all records are sent again from the first. ``cut``:
    earlier records of this step and later ones are superseded. ``more``: another poll returns more at once.
    ``written``: the Unix times after which and by which they were written.
    """

    records: tuple[Record, ...] = ()
    fresh: bool = False
    more: bool = False
    bad_lines: int = 0
    cut: int | None = None
    written: tuple[float, float] = (0.0, 0.0)


class _File:
    """One file. ``place`` orders the files of a run."""

    def __init__(self, place: tuple[int, int], path: Path, *, log: bool = False) -> None:
        self.place = place
        self.path = path
        self.log = log
        self.lines = LineFollower(path)
        self.first: int | None = None  # supersedes earlier files from this step on
        self.written = (0.0, 0.0)  # Unix times between which the records of the last poll were written
        self._complete_at = 0.0  # when it was last read to its end

    @property
    def offset(self) -> int:
        """Bytes that were read."""
        return self.lines.follower.offset

    @property
    def damaged(self) -> str:
        """Why it is not read on; empty if it is."""
        return ""

    def poll(self, cap: int) -> tuple[list[Record], int, bool, int]:
        """Return (records, number of invalid lines, whether the file was replaced, bytes read)."""
        follower = self.lines.follower
        resets, before = self.lines.resets, follower.offset
        now = time.time()
        lines = self.lines.poll(cap)
        self.written = (self._complete_at, max(self._complete_at, follower.modified + _COARSE))
        reset = self.lines.resets != resets
        records: list[Record] = []
        bad = 0
        for line in lines:
            record = self._record(line)
            if record is not None and abs(record[0]) < _STEP_LIMIT:
                records.append(record)
            elif line.strip() and not self.log:
                bad += 1
        read = follower.offset - (0 if reset else before)
        if read < cap:
            self._complete_at = now
        return records, bad, reset, read

    def _record(self, line: bytes) -> Record | None:
        if self.log:
            return decode_step_line(line.decode("utf-8", "replace")) if b"step:" in line else None
        record = decode_record(line)
        return None if record is None else (record[0], numbers_of(record[1]))


class _EventFile(_File):
    """An event file of tensorboard."""

    def __init__(self, place: tuple[int, int], path: Path) -> None:
        super().__init__(place, path)
        self._events = EventFollower(path)

    @property
    def offset(self) -> int:
        return self._events.offset

    @property
    def damaged(self) -> str:
        return self._events.damaged

    def poll(self, cap: int) -> tuple[list[Record], int, bool, int]:
        before, now = self.offset, time.time()
        try:
            found = self._events.poll(cap)
        except FileNotFoundError:
            return [], 0, False, 0
        self.written = (0.0, now)
        records = [(step, values) for step, values in found.items() if abs(step) < _STEP_LIMIT]
        return records, 0, False, self.offset - before


class MetricFiles:
    """Reads metrics files as they grow. Blocking: call it off the event loop.

    With ``run_dir`` it reads the files of a run, otherwise the one at ``path``.
    """

    def __init__(self, path: str | os.PathLike[str], *, run_dir: bool = False) -> None:
        self.path = Path(path)
        self._run = run_dir
        self._files: list[_File] = [] if run_dir else [_File((0, 0), self.path)]
        self._at = 0  # index of the file to read next
        self._any_returned = False  # records were returned before
        self.unreadable: dict[Path, str] = {}  # files that are left out -> why
        self._fresh = False
        self._targets: dict[Path, str] = {}  # link -> where it leads
        self._told: dict[
            tuple[int, int, int], Path
        ] = {}  # attempt, step, values -> the log that had them first

    @property
    def offset(self) -> int:
        """Bytes read of the current files."""
        return sum(file.offset for file in self._files)

    def poll(self, cap: int = CHUNK) -> Batch:
        """Return the records completed by the next ``cap`` bytes, all of one file.

        A file that must not be read (a FIFO, one without permission) is left out and named in ``unreadable``.

        Raises:
            OSError: the storage failed.
        """
        if self._at == 0 and self._run:
            self._look_for_files()
        while self._at < len(self._files):
            file = self._files[self._at]
            try:
                records, bad, reset, read = file.poll(cap)
                self.unreadable.pop(file.path, None)
                if file.damaged:
                    self.unreadable[file.path] = file.damaged
            except (RefusedFileError, PermissionError) as error:
                self.unreadable[file.path] = error.strerror or str(error)
                self._at += 1
                continue
            except OSError as error:
                error.filename = error.filename or os.fspath(file.path)  # errors of read() lack the file name
                raise
            if reset and len(self._files) > 1:
                self._begin_again()
                continue
            records = self._without_copies(file, records)
            more_of_it = read >= cap
            if not more_of_it:
                self._at += 1
            if read or reset:
                more = more_of_it or self._at < len(self._files)
                self._at = self._at if more else 0
                return self._batch(file, records, reset, more, bad)
        self._at = 0
        return Batch()

    def _without_copies(self, file: _File, records: list[Record]) -> list[Record]:
        """``records`` without those that another log of the same attempt has, too: a script may write both."""
        if not file.log:
            return records
        news = []
        for step, values in records:
            told = self._told.setdefault((file.place[0], step, hash(repr(values))), file.path)
            if told == file.path:
                news.append((step, values))
        return news

    def _batch(self, file: _File, records: list[Record], reset: bool, more: bool, bad: int) -> Batch:
        fresh, self._fresh = self._fresh or reset, False
        if reset:
            file.first = None
        cut = None
        if records and file.first is None:
            step, values = records[0]
            file.first = step + 1 if validation_only(values) else step
            # A step repeated within one file only replaces its own values.
            cut = file.first if self._files.index(file) else None
        ends = [
            later.first for later in self._files[self._files.index(file) + 1 :] if later.first is not None
        ]
        if ends:  # a replaced trainer wrote further lines
            records = [record for record in records if record[0] < min(ends)]
        self._any_returned = self._any_returned or bool(records)
        return Batch(tuple(records), fresh, more, bad, cut, file.written)

    def _begin_again(self) -> None:
        self._files = [_made(file.place, file.path, file.log) for file in self._files]
        self._at = 0
        self._told.clear()
        self._fresh = self._fresh or self._any_returned

    def _look_for_files(self) -> None:
        listed = self._listing()
        read = {file.path for file in self._files}
        news = [_made(place, path, log) for path, (place, log) in listed.items() if path not in read]
        stale = [
            file
            for file in self._files
            if (file.log or isinstance(file, _EventFile)) and file.path not in listed
        ]
        if not news and not stale:
            return
        last = max((file.place for file in self._files), default=(-1, -1))
        kept = [file for file in self._files if file not in stale]
        self._files = sorted([*kept, *news], key=lambda file: file.place)
        if stale or any(file.place < last for file in news):
            self._begin_again()

    def _listing(self) -> dict[Path, tuple[tuple[int, int], bool]]:
        """The files of the run that may hold steps: path -> place, whether it is a log."""
        own = self.path / "metrics.jsonl"
        files = {own: ((0, 0), False)}
        # The embedded trainer is recognized by the files that only it writes.
        logs = not own.exists() and not (self.path / "trainer.json").exists()
        for number, attempt in sorted(_matches(self.path, _ATTEMPT)):
            written = _matches(attempt, _VERL)
            is_log = not written and logs
            if is_log:
                written = _matches(attempt / "logs", _LOG)
            files.update((path, ((number, start), is_log)) for start, path in self._once(written, files))
            if is_log and not any(
                f.log and f.place[0] == number and f.first is not None for f in self._files
            ):
                events = _matches(attempt, _EVENTS)
                files.update((path, ((number, _BEHIND + start), False)) for start, path in events)
        return files

    def _once(
        self, found: list[tuple[int, Path]], listed: Mapping[Path, object]
    ) -> Iterator[tuple[int, Path]]:
        """Those of ``found`` that are not the same file as one of ``listed``: a script's later attempts may append to
        one log."""
        known = {self._targets.get(path) for path in listed}
        for start, path in found:
            if path.is_symlink():
                target = self._targets.setdefault(path, os.path.realpath(path))
                if target in known:
                    continue
                known.add(target)
            yield start, path


def _made(place: tuple[int, int], path: Path, log: bool) -> _File:
    return _EventFile(place, path) if _EVENTS.fullmatch(path.name) else _File(place, path, log=log)


def has_steps(path: str | os.PathLike[str]) -> bool:
    """Whether the first line of a file is a record of a step, as verl's file logger writes it."""
    try:
        with open_binary(path) as file:
            line = file.readline(1 << 20)
    except OSError:
        return False
    return decode_record(line) is not None


def _matches(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Return (number, path) of the entries that match ``pattern``; a name without a number counts as 1."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(int(m[1] or 1), folder / name) for name in names if (m := pattern.fullmatch(name)) is not None]
