"""verl's dumps of what it trains on, ``rollouts/<step>.jsonl``: one line per row, written when the step is over.

Of trials that verl's own agent loops run there is nothing else. A dump may have a gigabyte: lines are read one by one,
and of each row only its key, its score and a few words are kept.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from liverl.logs.follow import LineFollower
from liverl.model import TrialHead
from liverl.observe.trials.moments import number
from liverl.observe.trials.preview import short, text_preview
from liverl.observe.trials.records import parse_object
from liverl.observe.trials.tallies import Tally
from liverl.observe.trials.trial import FRESH
from liverl.util.bad_json import BAD_JSON
from liverl.util.clocks import age_of
from liverl.util.decode import JsonDecoder
from liverl.util.plural import quantity
from liverl.util.regular_file import RefusedFileError

DUMPS = "rollouts"
TASK = "verl-agent-loop"  # of these trials: a dump does not say of which task a row is
_FILE = re.compile(r"(\d{1,9})\.jsonl")
# verl fills up a batch with such rows (verl/trainer/ppo/padding_utils.py).
_PADDING = re.compile(r"pad[0-9a-f]{32}_")
_LIVE = 2  # newest dumps, looked at in every scan
_OLD_PER_SCAN = 4  # older ones looked at per scan
_KEPT = 8  # newest dumps whose rows are kept one by one; of older ones only their counts
_CHUNK = 4 << 20  # bytes read at a time
_WORDS = 4096  # characters of an output in which words for its preview are looked for


class DumpRow(msgspec.Struct, frozen=True):
    """A row: verl's key of it, ``<uid>_<session>_<number of its output>``, its reward and what was sampled."""

    uid: str
    score: float | None = None
    output: str = ""

    @property
    def trial(self) -> str:
        """``<uid>_<session>``: a session may have several rows."""
        return self.uid.rpartition("_")[0]

    @property
    def place(self) -> int:
        """The number of the row among those of its session."""
        number = self.uid.rpartition("_")[2]
        return int(number) if number.isdecimal() else 0

    @property
    def padding(self) -> bool:
        """Whether verl has made it up to fill a batch."""
        return _PADDING.match(self.uid) is not None


_row = JsonDecoder(DumpRow)


def parse_row(line: bytes) -> DumpRow | None:
    """A line of a dump; None if it is none."""
    try:
        return _row.decode(line)
    except BAD_JSON:
        found = parse_object(line) or {}  # Python writes NaN, which is no JSON
    uid, score, output = found.get("uid"), found.get("score"), found.get("output")
    if not isinstance(uid, str):
        return None
    return DumpRow(uid, number(score), output if isinstance(output, str) else "")


def dumped_steps(run_dir: str | os.PathLike[str]) -> list[int]:
    """The steps that have a dump, oldest first.

    Raises:
        OSError: the storage failed.
    """
    try:
        with os.scandir(os.path.join(run_dir, DUMPS)) as entries:
            return sorted(int(match[1]) for entry in entries if (match := _FILE.fullmatch(entry.name)))
    except (FileNotFoundError, NotADirectoryError):
        return []


@dataclass(slots=True)
class _Kept:
    """The last row of a trial."""

    place: int
    score: float | None
    preview: str


@dataclass(slots=True)
class Dump:
    """The rows of one step, without padding. ``whole``: read to its end; ``settled``: since then it was known which
    trials have directories; ``counts``: of an old dump, in place of its rows."""

    step: int
    lines: LineFollower
    rows: dict[str, _Kept] = field(default_factory=dict)
    resets: int = 0
    bad: int = 0  # lines that are no rows
    problem: str = ""  # why it was not read, or not all of it
    whole: bool = False
    settled: bool = False
    counts: Tally | None = None

    @property
    def at(self) -> float:
        """Unix seconds at which it was written."""
        return self.lines.follower.modified

    def read(self, until: float) -> bool:
        """Read what is new, until ``until`` on the monotonic clock; return whether there was anything.

        Raises:
            OSError: the storage failed.
        """
        news, self.whole = False, False
        while True:
            before, dropped = self.lines.follower.offset, self.lines.dropped
            lines = self.lines.poll(_CHUNK)
            if self.lines.resets != self.resets:  # written anew, by a trainer that was resumed
                self.resets = self.lines.resets
                self.rows, self.counts, self.settled, self.bad, news = {}, None, False, 0, True
                before = 0
            for line in lines:
                self._take(line)
            self.bad += self.lines.dropped - dropped
            if self.lines.follower.offset == before:
                self.whole = True
                return news
            news = True
            if time.monotonic() > until:
                return news

    def heads(self, known: Container[int]) -> list[TrialHead]:
        """Its trials, as in the lists, without those whose hashes are ``known``."""
        return [
            _head(self.step, trial, row, self.at)
            for trial, row in self.rows.items()
            if hash(trial) not in known
        ]

    def count(self, known: Container[int]) -> Tally:
        """The counts of its trials that are not among ``known``."""
        if self.counts is not None:
            return self.counts
        tally = Tally()
        for trial, row in self.rows.items():
            if hash(trial) not in known:
                tally.add_dumped(row.score)
        return tally

    def _take(self, line: bytes) -> None:
        row = parse_row(line)
        if row is None:
            self.bad += bool(line.strip())
        elif not row.padding:
            kept = self.rows.get(row.trial)
            if kept is None or row.place >= kept.place:
                self.rows[row.trial] = _Kept(row.place, row.score, text_preview(row.output[:_WORDS]))


def dump_of(run_dir: str | os.PathLike[str], step: int) -> Dump:
    """The dump of a step, from its beginning; it may not exist."""
    return Dump(step, LineFollower(Path(run_dir) / DUMPS / f"{step}.jsonl"))


def _head(step: int, trial: str, row: _Kept, at: float) -> TrialHead:
    return TrialHead(
        name=trial,
        step=step,
        task=TASK,
        state="finished",
        turns=0,
        tool_calls=0,
        reward=row.score,
        finish_reason=None,
        completion_tokens=0,
        replica=None,
        started_at=None,
        updated_at=at,
        path=f"{DUMPS}/{step}.jsonl/{trial}",
        group=short(trial.rpartition("_")[0]),
        preview=row.preview,
        dumped=True,
    )


class Dumps:
    """The dumps of one run directory, read incrementally."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._run_dir = run_dir
        self._dumps: dict[int, Dump] = {}
        self._turn = 0
        self._changed = -1  # modification time of the folder when it was last listed, in nanoseconds
        self._known: set[int] = set()  # hashes: of a long run there are many

    def problems(self) -> Iterator[tuple[str, str]]:
        """(path below the run's directory, what could not be read) of each dump with a fault."""
        for step, dump in sorted(self._dumps.items()):
            if dump.problem:
                yield f"{DUMPS}/{step}.jsonl", dump.problem

    def know(self, trial: str) -> None:
        """Note that a trial has a directory, so that its rows are not counted. ``trial``: ``DumpRow.trial``."""
        self._known.add(hash(trial))

    def poll(self, until: float) -> bool:
        """Read what is new, until ``until`` on the monotonic clock; return whether anything was.

        Raises:
            OSError: the storage failed.
        """
        self._list()
        newest = sorted(self._dumps, reverse=True)
        old = newest[_LIVE:]
        turn = [old[(self._turn + i) % len(old)] for i in range(min(_OLD_PER_SCAN, len(old)))]
        self._turn = (self._turn + len(turn)) % len(old) if old else 0
        news = False
        for place, step in enumerate(newest):
            dump = self._dumps[step]
            if place < _LIVE or step in turn or not dump.whole:
                news |= self._read(dump, until)
                if time.monotonic() > until:
                    break
        return news

    def _list(self) -> None:
        """Find new dumps, if the folder has changed since it was listed."""
        try:
            changed = os.stat(os.path.join(self._run_dir, DUMPS)).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return
        if changed == self._changed and age_of(changed / 1e9, time.time()) > FRESH:
            return
        self._changed = changed
        for step in dumped_steps(self._run_dir):
            if step not in self._dumps:
                self._dumps[step] = dump_of(self._run_dir, step)

    def _read(self, dump: Dump, until: float) -> bool:
        try:
            news = dump.read(until)
        except (RefusedFileError, PermissionError) as error:
            dump.problem, dump.whole = error.strerror or str(error), True
            return False
        dump.problem = _bad_lines(dump.bad) if dump.bad else ""
        return news

    def settle(self) -> bool:
        """Count the rows of dumps that were read, as it is known now which trials have directories; return whether
        there were any."""
        news = False
        for place, step in enumerate(sorted(self._dumps, reverse=True)):
            dump = self._dumps[step]
            if dump.whole and not dump.settled:
                dump.settled = news = True
            if place >= _KEPT and dump.settled and dump.counts is None:
                dump.counts, dump.rows = dump.count(self._known), {}
        return news

    def counts(self) -> list[tuple[Dump, Tally]]:
        """Each dump that has trials without directories, with their counts."""
        every = [(dump, dump.count(self._known)) for dump in self._dumps.values() if dump.settled]
        return [(dump, tally) for dump, tally in every if tally.total]

    def newest(self, most: int) -> list[TrialHead]:
        """The newest trials without directories."""
        found: list[TrialHead] = []
        for step in sorted(self._dumps, reverse=True):
            dump = self._dumps[step]
            if dump.settled:
                found += dump.heads(self._known)
            if len(found) >= most:
                break
        return found[:most]


def _bad_lines(number: int) -> str:
    if number == 1:
        return "1 line is not a row of verl"
    return f"{quantity(number, 'line')} are not rows of verl"
