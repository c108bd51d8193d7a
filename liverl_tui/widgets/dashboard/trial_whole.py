"""All trials of the run, for a list that is filtered or sorted: the index is read and asked in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from msgspec import Struct

from liverl.model import TrialHead
from liverl.observe.trials.earlier import Earlier
from liverl.rundir.layout import RunDir
from liverl_tui.text.words import one_line
from liverl_tui.widgets.base.trial_words import flagged
from liverl_tui.widgets.dashboard.trial_steps import Runs

if TYPE_CHECKING:
    from liverl.observe.trials.index import TrialIndex
    from liverl.observe.trials.query import Query
    from liverl.offline.trial_index import RunIndex

AGAIN_S = 3.0  # seconds between two readings while trials go on, or 20 times as long as one takes
PARTLY_S = 1.0  # seconds between two answers while the trials are read for the first time
# Columns of the list -> fields of the index.
FIELD_OF = {
    "state": "state", "step": "step", "task": "task", "turns": "turns", "calls": "calls", "reward": "reward",
    "finish": "finish", "time": "time", "tokens": "tokens", "replica": "replica", "flags": "flag", "preview": "last",
    "name": "name",
}  # fmt: skip


class Asked(Struct, frozen=True):
    """Which trials are wanted, and in which order. ``sort``: a field, or ``at``: when they began."""

    query: Query
    flagged: bool = False
    sort: str = "at"
    descending: bool = True

    def holds(self, head: TrialHead) -> bool:
        """Whether it wants this trial."""
        return self.query.holds_for(head) and (flagged(head) or not self.flagged)


class Where(Struct, frozen=True):
    """The run of an index. ``own``: it may be written; ``live``: trials may run."""

    run_dir: Path
    own: bool
    live: bool


class Paths(Sequence[str]):
    """The paths of some rows of an index, made when they are asked for."""

    def __init__(self, index: TrialIndex, rows: Sequence[int]) -> None:
        self.index_of_run, self.rows = index, rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self.index_of_run.path(row) for row in self.rows[at]]
        return self.index_of_run.path(self.rows[at])

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """The place of a path.

        Raises:
            ValueError: it is not among them.
        """
        row = self.index_of_run.row_of(value) if isinstance(value, str) else None
        if row is None:
            raise ValueError(f"{value!r} is not listed")
        return self.rows.index(row)

    def __contains__(self, value: object) -> bool:
        try:
            self.index(value)
        except ValueError:
            return False
        return True


def corrected(index: TrialIndex, rows: list[int], asked: Asked, newest: Mapping[str, TrialHead]) -> list[int]:
    """``rows``, the answer of an index to ``asked``, as the trials of the snapshot (``newest``, by path) are now: they
    change between two readings of the index. Without those that the filter chooses no longer; with those that it
    chooses now, in the place that the index gives them. A trial that was never read comes with the next reading."""
    known = {row: head for path, head in newest.items() if (row := index.row_of(path)) is not None}
    holding = {row for row, head in known.items() if asked.holds(head)}
    kept = [row for row in rows if row in holding or row not in known]
    more = holding.difference(kept)
    return index.order([*kept, *sorted(more)], asked.sort, asked.descending) if more else kept


class Heads(Mapping[str, TrialHead]):
    """The trials at ``paths``. ``newest``: by path, those of the snapshot, which know more."""

    def __init__(self, paths: Paths, newest: Mapping[str, TrialHead]) -> None:
        self._paths, self._newest = paths, newest

    def __getitem__(self, path: str) -> TrialHead:
        if (head := self._newest.get(path)) is not None:
            return head
        row = self._paths.index_of_run.row_of(path)
        if row is None:
            raise KeyError(path)
        return self._paths.index_of_run.head(row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def window(self, path: str | None, most: int) -> list[TrialHead]:
        """At most ``most`` trials around the one at ``path``, in order; the first ones without it."""
        try:
            place = self._paths.index(path)
        except ValueError:
            place = 0
        begin = max(0, place - most // 2)
        return [self[one] for one in self._paths[begin : begin + most]]


class WholeRun:
    """The answer to what was asked last. ``run``: runs work in the background; ``where``: the run; ``changed`` is
    called when there is an answer, or more of it."""

    def __init__(self, run: Runs, where: Callable[[], Where], changed: Callable[[], None]) -> None:
        self._run, self._where, self._changed = run, where, changed
        self._index: RunIndex | None = None
        self._asked: Asked | None = None
        self._answered: Asked | None = None
        self._busy = False
        self._reading = asyncio.Lock()
        self._seen: object = None  # what was known of the trials at the last reading
        self._newest: object = None  # what is known of them now
        self._read_at, self._took = 0.0, 0.0
        self._stale = True
        self.rows: list[int] = []
        self.earlier = Earlier()  # trials of an earlier attempt at their step, when ``rows`` were found
        self.problem = ""
        self.progress = ""  # how far the first reading is; "" after it

    @property
    def index(self) -> TrialIndex:
        """The trials that were read."""
        if self._index is not None:
            return self._index.index
        from liverl.observe.trials.index import TrialIndex  # not at the top: it would delay the first paint

        return TrialIndex()

    @property
    def ready(self) -> bool:
        """Whether ``rows`` are the answer to something."""
        return self._answered is not None

    @property
    def pending(self) -> bool:
        """Whether ``rows`` are not yet the answer to what was asked last."""
        return self._answered != self._asked

    @property
    def due(self) -> bool:
        """Whether the trials have changed since they were read, and it is time to read them again."""
        quiet = time.monotonic() > self._read_at + max(AGAIN_S, 20 * self._took)
        return self._asked is not None and self._newest != self._seen and (self._seen is None or quiet)

    def ask(self, asked: Asked, newest: object) -> None:
        """Ask for trials; ``changed`` is called when they are found. ``newest``: what is known of the run's trials,
        such as its snapshot's; when it changes, they are read again."""
        self._asked, self._newest = asked, newest
        if self.due:
            self._seen, self._stale = newest, True
        if not self._busy and (self._stale or self.pending):
            self._busy = True
            self._run(self._work(), group="all-trials", exclusive=False)

    def close(self) -> None:
        """Forget what was asked; the index is kept."""
        self._asked = self._answered = None
        self.rows = []

    async def _work(self) -> None:
        try:
            await self._answer()
            while self._stale:
                self._stale = False
                await self._read()
                self._answered = None
                await self._answer()
        except OSError as error:
            self.problem = f"▲ cannot read {error.filename or 'the trials'}: {error.strerror or error}"
            self._changed()
        finally:
            self._busy = False
            self.progress = ""

    async def find(self, text: str, most: int) -> list[str]:
        """The paths of at most ``most`` trials that a text names, see ``TrialIndex.named``.

        Raises:
            OSError: the storage failed.
        """
        await self._read()
        return await asyncio.to_thread(
            lambda: [self.index.path(row) for row in self.index.named(text)[:most]]
        )

    async def _read(self) -> None:
        async with self._reading:
            await self._refresh()

    async def _refresh(self) -> None:
        if self._index is None:
            from liverl.offline.trial_index import RunIndex

            where = self._where()
            self._index = RunIndex(RunDir(where.run_dir), live=where.live, own=where.own)
        index, first = self._index, self._read_at == 0.0
        index.live = self._where().live
        begun = time.monotonic()

        def progress(done: int, of: int) -> None:
            self.progress = f"reading trials, {done:,} of {of:,} folders" if first else ""

        reading = asyncio.ensure_future(asyncio.to_thread(index.refresh, progress))
        while not (await asyncio.wait({reading}, timeout=PARTLY_S))[0]:
            self._answered = None
            await self._answer()
        reading.result()
        self.problem = _gap_words(index.first_gaps(1))
        self._read_at = time.monotonic()
        self._took = self._read_at - begun

    async def _answer(self) -> None:
        while self._index is not None and (asked := self._asked) is not None and asked != self._answered:
            self.rows, self.earlier = await asyncio.to_thread(_rows, self._index.index, asked)
            self._answered = asked
            self._changed()


def _gap_words(gaps: Sequence[str]) -> str:
    """Why the list is incomplete, for a title; "" if it is not."""
    return f"▲ incomplete list: {one_line(', '.join(gaps))}" if gaps else ""


def _rows(index: TrialIndex, asked: Asked) -> tuple[list[int], Earlier]:
    rows = index.select(asked.query, index.flagged() if asked.flagged else None)
    return index.order(rows, asked.sort, asked.descending), index.earlier
