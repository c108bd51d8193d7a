"""A trial of one of verl's own agent loops, as far as its row in verl's dump shows it: input, output and reward."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from liverl.logs.follow import MAX_LINE
from liverl.observe.trials.dumps import DUMPS, TASK, parse_row
from liverl.observe.trials.message_parts import Part, loads
from liverl.observe.trials.records import numeric_rewards
from liverl.observe.trials.trajectory import Trajectory, TrajectoryReader
from liverl.observe.trials.turns import Turn
from liverl.observe.trials.verifier import row_report
from liverl.util.bad_json import BAD_JSON
from liverl.util.regular_file import open_binary

_FILE = re.compile(r"\d{1,9}\.jsonl")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)
_NO_PARTS = ("score", "reward", "step", "gts", "pred")  # numbers of a row that are no part of the reward
LONGEST = 256 << 10  # characters shown of an input or output
_NOTE = (
    "known from {file} only: one of verl's own agent loops ran this trial, and neither the proxy nor a session saw it. "
    "Input and output are verl's text of their tokens; turns, tool calls, tokens and times are not known"
)


class Reader(Protocol):
    """Reads one trial repeatedly."""

    def read(self) -> Trajectory:
        """The trial in its present state; the same object while nothing changes.

        Raises:
            OSError: the storage failed.
        """

    def raw_record(self, turn: Turn, most: int = ...) -> str:
        """The record of a turn, at most ``most`` bytes of it.

        Raises:
            OSError: the file was removed.
        """


def reader_of(path: str | os.PathLike[str]) -> Reader:
    """The reader of a trial: ``.../trials/.../NAME``, or ``.../rollouts/STEP.jsonl/UID_SESSION`` for one in a dump."""
    found = Path(path)
    parts = found.parts  # a key may have slashes
    for place, (folder, name) in enumerate(pairwise(parts), 2):
        if folder == DUMPS and _FILE.fullmatch(name):
            return DumpedTrialReader(Path(*parts[:place]), "/".join(parts[place:]))
    return TrajectoryReader(found)


class DumpedTrialReader:
    """Reads the rows of one trial from a dump, line by line. Implements ``Reader``."""

    def __init__(self, dump: Path, trial: str) -> None:
        """``trial``: ``DumpRow.trial``."""
        self.dump, self.trial = dump, trial
        self._identity: tuple[int, int, int] | None = None
        self._last: Trajectory | None = None

    def read(self) -> Trajectory:
        """See ``Reader.read``."""
        try:
            stat = os.stat(self.dump)
        except (FileNotFoundError, NotADirectoryError):
            return self._keep(self._trajectory((), None, "its dump was removed"))
        identity = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._last is None or identity != self._identity:
            with open_binary(self.dump) as file:
                found = self._search(file)
            self._identity = identity
            return self._keep(found)
        return self._last

    def raw_record(self, turn: Turn, most: int = 4 << 20) -> str:
        """See ``Reader.raw_record``."""
        with open_binary(self.dump) as file:
            file.seek(turn.offset)
            data = file.read(min(turn.size, most))
        try:
            return msgspec.json.format(data, indent=2).decode("utf-8", "replace")
        except BAD_JSON:
            return data.decode("utf-8", "replace")

    def _keep(self, trajectory: Trajectory) -> Trajectory:
        if trajectory != self._last:
            self._last = trajectory
        return self._last or trajectory

    def _search(self, file: BinaryIO) -> Trajectory:
        # JSON may write other characters in several ways.
        needle, offset = self.trial.encode() if _PLAIN.fullmatch(self.trial) else b"", 0
        turns: list[Turn] = []
        score: float | None = None
        last = b""
        while line := file.readline(MAX_LINE):
            row = parse_row(line) if needle in line else None
            if row is not None and row.trial == self.trial:
                turns.append(_turn(len(turns) + 1, line, offset))
                score, last = row.score, line
            offset += len(line)
        note = _NOTE.format(file=f"{DUMPS}/{self.dump.name}")
        if not turns:
            return self._trajectory((), None, "its row is no longer in the dump")
        return self._trajectory(tuple(turns), score, note, last)

    def _trajectory(
        self, turns: tuple[Turn, ...], score: float | None, note: str, row: bytes = b"null"
    ) -> Trajectory:
        """``row``: the line of its last row, which has the score."""
        value = loads(row)
        fields = value if isinstance(value, dict) else {}
        accuracy = fields.get("acc")
        step = self.dump.stem
        return Trajectory(
            name=self.trial,
            path=f"{self.dump}/{self.trial}",
            task=TASK,
            step=int(step) if step.isdecimal() else None,
            running=False,
            turns=turns,
            rewards={} if score is None else {"reward": score, **_parts_of(fields)},
            note=note,
            dumped=True,
            verifier=row_report(fields, bool(accuracy) if isinstance(accuracy, int | float) else None),
        )


def _parts_of(row: dict[str, Any]) -> dict[str, float]:
    """The numbers that verl's reward function gave beside the score, by name, as far as verl writes them."""
    return {name: value for name, value in numeric_rewards(row).items() if name not in _NO_PARTS}


def _turn(number: int, line: bytes, offset: int) -> Turn:
    """What a row shows, as one turn: input and output of all the turns that the agent may have had."""
    value = loads(line)
    fields = value if isinstance(value, dict) else {}
    given, written = (_shown(fields.get(name)) for name in ("input", "output"))
    return Turn(
        number=number,
        before=(Part("user", given),) if number == 1 and given else (),
        answer=(Part("text", written),) if written else (),
        judged=False,
        offset=offset,
        size=len(line),
    )


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return (
        text
        if len(text) <= LONGEST
        else f"{text[:LONGEST]}\n… the first {LONGEST:,} of {len(text):,} characters"
    )
