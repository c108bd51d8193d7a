"""What is kept of sessions that have ended: one line each in one file, while their rows are in their trials.

The file keeps the newest sessions only; of all before them it has their number and the sum of their counters, in its
first line. It is written anew, by rename, when it has twice the lines that are kept.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from liverl.sessions.counters import Counters, together
from liverl.sessions.keys import same_key
from liverl.sessions.result import SessionResult
from liverl.sessions.segments import Kind, Row, Versions
from liverl.sessions.shares import ALL, Share
from liverl.sessions.trial_log import ROWS
from liverl.util.append import append_whole
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.clocks import Moment
from liverl.util.decode import JsonDecoder, decode_json
from liverl.util.regular_file import open_binary, read_regular

logger = logging.getLogger(__name__)

NAME = "finished.ndjson"  # not ``.jsonl``, as journals are
_OF_SEVERAL = "finished.*-of-*.ndjson"
_MOVING = "finished.moving.ndjson"  # while they are shared out anew: it has all of them, and counts alone
ROWS_SUFFIX = ".rows.json"  # of the rows of a session whose trial's directory is gone, beside the journals
MOST = 10_000  # ended sessions that are answered for: those of about 20 steps of 512 trials
KEPT_S = 24 * 3600.0  # seconds for which they are
LONGEST = 1 << 20  # bytes of a line
_TOGETHER = 512  # sessions that are forgotten at once


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session that has ended. ``trial_dir``: absolute path of the directory with its rows; ``rows_file``: of the file
    that has them instead; ``at``: Unix seconds of its end, 0.0 if it is not known; ``moment``: the same, None
    in lines of earlier versions."""

    id: str
    key: str
    trial_dir: str
    counters: Counters
    rows_file: str = ""
    at: float = 0.0
    moment: Moment | None = None

    @property
    def age(self) -> float:
        """Seconds since its end; 0.0 if it is not known."""
        moment = self.moment or (Moment(self.at) if self.at > 0 else None)
        return moment.passed() if moment is not None else 0.0

    def accepts(self, key: str) -> bool:
        """Whether ``key`` is the session's."""
        return same_key(key, self.key)

    def result(self) -> SessionResult:
        """What ``finish`` returned when it ended.

        Raises:
            OSError: the file with its rows cannot be read.
            msgspec.DecodeError: it has been changed.
        """
        path = Path(self.rows_file) if self.rows_file else Path(self.trial_dir) / ROWS
        # No link in its place, nor in that of the trial's directory: an agent may have made it.
        data = read_regular(path, inside=path.parent.parent)
        document = decode_json(data, type=_Document)
        return SessionResult(document.all_rows(), document.not_trained, self.counters)


class _Row(msgspec.Struct, frozen=True):
    """A row in ``proxy_trajectory.json``; what is None is on top of the document."""

    kind: Kind
    policy_versions: tuple[Versions, ...] = ()
    initial_prompt_token_len: int | None = None
    traj_acc_ids: list[int] | None = None
    traj_response_mask: list[int] | None = None
    traj_response_logprobs: list[float] | None = None


class _Document(msgspec.Struct, frozen=True):
    rows: list[_Row]
    not_trained: dict[str, int] = {}
    initial_prompt_token_len: int = 0
    traj_acc_ids: list[int] = []
    traj_response_mask: list[int] = []
    traj_response_logprobs: list[float] = []

    def all_rows(self) -> list[Row]:
        """The rows, each with all of its fields."""
        return [self._row(row) for row in self.rows]

    def _row(self, row: _Row) -> Row:
        of = self if row.traj_acc_ids is None else row
        return Row(
            kind=row.kind,
            initial_prompt_token_len=of.initial_prompt_token_len or 0,
            traj_acc_ids=of.traj_acc_ids or [],
            traj_response_mask=of.traj_response_mask or [],
            traj_response_logprobs=of.traj_response_logprobs or [],
            policy_versions=row.policy_versions,
        )


def keep_rows(directory: Path, session: str, document: bytes) -> Path:
    """Write the rows of a session whose trial's directory is gone beside the journals; return their file.
    ``directory``: of the journals; ``document``: see ``trial_log.rows_document``.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / f"{session}{ROWS_SUFFIX}"
    write_atomic(path, document, 0o600)
    return path


class _Earlier(msgspec.Struct, frozen=True):
    """The first line: the sessions of which the file has no line. ``earlier``: their number."""

    earlier: int
    counters: Counters


_ended = JsonDecoder(Ended).decode
_earlier = JsonDecoder(_Earlier).decode
_EARLIER = b'{"earlier":'
_NEWLINE = 0x0A


def name_of(share: Share) -> str:
    """The name of the file of a process."""
    return NAME if share.of == 1 else f"finished.{share.number + 1}-of-{share.of}.ndjson"


def finished_files(directory: Path) -> list[Path]:
    """The files that there are, of any number of processes."""
    moving = directory / _MOVING
    every = [directory / NAME, *directory.glob(_OF_SEVERAL), moving]
    return sorted(path for path in every if path.is_file())


def move_to(directory: Path, shares: Sequence[Share]) -> None:
    """Put all ended sessions into the files of these processes. Whenever it is interrupted, the next call does it.

    Raises:
        OSError: a file cannot be read or written.
    """
    moving, found = directory / _MOVING, finished_files(directory)
    if moving not in found:
        write_atomic(moving, _joined(found), 0o600)
    for path in found:
        if path != moving:
            path.unlink()
    first, ended = _read(moving)
    for share in shares:
        own = sorted((each for each in ended if share.has(each.id)), key=lambda each: each.at)
        lines: list[Ended | _Earlier] = [*own] if share.number else [first, *own]
        write_atomic(directory / name_of(share), _written(lines), 0o600)
    moving.unlink()


def _joined(paths: Sequence[Path]) -> bytes:
    every = [_read(path) for path in paths]
    before = _Earlier(sum(f.earlier for f, _ in every), together(f.counters for f, _ in every))
    return _written([before, *(each for _, ended in every for each in ended)])


def _read(path: Path) -> tuple[_Earlier, list[Ended]]:
    before, ended = _Earlier(0, Counters()), {}
    for line in _lines(path):
        with contextlib.suppress(*BAD_JSON):
            if line.startswith(_EARLIER):
                first = _earlier(line)
                counters = together((before.counters, first.counters))
                before = _Earlier(before.earlier + first.earlier, counters)
                continue
            one = _ended(line)
            ended[one.id] = one
    return before, list(ended.values())


def _written(lines: Sequence[Ended | _Earlier]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in lines)


class FinishedSessions:
    """The sessions that have ended, by id: the newest ``most`` of the last ``KEPT_S`` seconds."""

    def __init__(self, directory: Path, most: int = MOST, share: Share = ALL) -> None:
        """``most``: of all processes; ``share``: whose they are, where the service has several processes."""
        self.path, self._most = directory / name_of(share), -(-most // share.of)
        self._share = share
        self._ended: OrderedDict[str, Ended] = OrderedDict()  # as they ended
        self._lines = 0  # of the file
        self._earlier = 0  # sessions that are no longer in ``_ended``
        self._before = Counters()  # of these
        self.total = Counters()  # of all of them

    def read(self) -> None:
        """Read the file, of any size. Lines that a crash has cut, or that cannot be read, are left out.

        Raises:
            OSError: it cannot be read.
        """
        self._ended.clear()
        self._earlier, self._before, self._lines = 0, Counters(), 0
        for line in _lines(self.path):
            self._lines += 1
            try:
                if line.startswith(_EARLIER):
                    first = _earlier(line)
                    self._earlier += first.earlier
                    self._before = together((self._before, first.counters))
                    continue
                ended = _ended(line)
            except BAD_JSON:
                continue
            self._ended[ended.id] = ended
            if len(self._ended) > self._most + _TOGETHER:
                self._forget_oldest()
        self._forget_oldest()
        self.total = together([self._before, *(each.counters for each in self._ended.values())])
        self._compact_if_long(time.time())

    def add(self, ended: Ended) -> None:
        """Write a session down.

        Raises:
            OSError: it cannot be written; nothing of it is left in the file.
        """
        append_whole(self.path, msgspec.json.encode(ended) + b"\n", 0o600)
        self._lines += 1
        self._ended[ended.id] = ended
        self.total = together((self.total, ended.counters))
        self._compact_if_long(ended.at or time.time())

    def get(self, name: str) -> Ended | None:
        """The session of this id; None if none of this id has ended lately."""
        return self._ended.get(name)

    def __len__(self) -> int:
        """How many have ended, also those that are no longer kept."""
        return self._earlier + len(self._ended)

    def _compact_if_long(self, now: float) -> None:
        if self._lines <= 2 * self._most:
            return
        self._forget_oldest()
        old = [name for name, each in self._ended.items() if each.age > KEPT_S]
        self._forget([self._ended.pop(name) for name in old])
        first = _Earlier(self._earlier, self._before)
        lines = [msgspec.json.encode(each) for each in (first, *self._ended.values())]
        try:
            write_atomic(self.path, b"".join(line + b"\n" for line in lines), 0o600)
        except OSError as error:  # the file stays as it is, and says the same
            logger.warning("%s, a list of ended sessions, cannot be shortened: %s", self.path, error)
            self._lines = self._most  # tried again when as many more have ended
            return
        self._lines = len(lines)
        for path in self.path.parent.glob(f"*{ROWS_SUFFIX}"):
            with contextlib.suppress(OSError):
                # The rows of a session are written before its line.
                name = path.name[: -len(ROWS_SUFFIX)]
                late = path.stat().st_mtime < now - KEPT_S
                if self._share.has(name) and name not in self._ended and late:
                    path.unlink()

    def _forget_oldest(self) -> None:
        self._forget([self._ended.popitem(last=False)[1] for _ in range(len(self._ended) - self._most)])

    def _forget(self, several: Sequence[Ended]) -> None:
        self._before = together([self._before, *(each.counters for each in several)])
        self._earlier += len(several)


def _lines(path: Path) -> Iterator[bytes]:
    """The whole lines of the file. Of one that is too long its end may be among them: it is no session."""
    try:
        file = open_binary(path)
    except FileNotFoundError:
        return
    with file:
        for line in iter(partial(file.readline, LONGEST), b""):
            if line[-1] == _NEWLINE and len(line) > 1:
                yield line
