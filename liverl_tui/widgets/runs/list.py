"""The list of all runs of this host: state, what they have learned, how long they took, and why they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from liverl.offline.run_list import Previous, RunListed, previous_run
from liverl.rundir.commands import run_words
from liverl_tui.keys.bindings import Scope, bindings, find
from liverl_tui.text.as_typed import as_typed
from liverl_tui.text.comparison import LETTERS
from liverl_tui.text.words import LISTED_GLYPH, LISTED_STATE, UNKNOWN, duration, one_line, size, step_of
from liverl_tui.widgets.base.cells import Row, Span, fit, with_below
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.base.wrapping import wrapped


def state_of(run: RunListed) -> Span:
    """(glyph and word, style) of a run's state; of one that is live on another host with that host."""
    word, style = LISTED_STATE.get(run.standing, (one_line(run.standing), "warn"))
    word = " ".join(filter(None, (LISTED_GLYPH.get(run.standing), word)))
    return (f"{word} {one_line(run.host or UNKNOWN)}" if run.state == "elsewhere" else word), style


# What a column of ten has room for: whole words, which are as true as the longer ones.
_SHORT = {"too early to say": "too early", "no clear trend": "unclear", "nearly all solved": "near solved"}


def reward_of(run: RunListed) -> str:
    """Its mean reward, ``RunListed.reward_ends``."""
    return run.reward_ends("→") or UNKNOWN


def _steps(run: RunListed) -> str:
    return step_of(UNKNOWN if run.steps is None else run.steps, run.total_steps)


def _time(run: RunListed) -> str:
    """How long its newest attempt took, and which one that is, if others came before it."""
    return ", ".join(filter(None, (duration(run.seconds), run.attempt_words)))


def _started(run: RunListed) -> str:
    return (
        UNKNOWN if run.started_at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at))
    )


_NAME, _MORE = 20, 24  # columns of a run's name, and how many more a long one may take
_TIME = 7  # columns of its time; which attempt it is of has more of them
_SHOWN = " (shown)"  # behind the name of the run that the interface shows
_COLUMNS = (
    Column("run", "run", _NAME, 0, value=lambda run: run.run, cell=lambda run: (run.run, "strong")),
    Column("state", "state", 14, 0, value=lambda run: run.state, cell=state_of),
    Column(
        "reward",
        "reward",
        13,
        1,
        value=lambda run: None if run.smoke else run.reward_last,
        largest_first=True,
        label="reward, first → last 3 steps",
        cell=lambda run: (reward_of(run), "text"),
    ),
    Column(
        "course",
        "learning?",
        11,
        1,  # as the reward itself: two numbers alone look like a rise
        value=lambda run: run.reward_words or None,
        label="what its rewards prove",
        cell=lambda run: (run.reward_words or UNKNOWN, "text"),
    ),
    Column(
        "steps",
        "steps",
        9,
        1,
        ">",
        value=lambda run: run.steps,
        largest_first=True,
        cell=lambda run: (_steps(run), "text"),
    ),
    Column(
        "time",
        "time",
        _TIME,
        2,
        ">",
        value=lambda run: run.seconds,
        largest_first=True,
        label="duration of its last attempt",
        cell=lambda run: (_time(run), "text"),
    ),
    Column("size", "size", 5, 3, ">", largest_first=True, label="size of its directory"),
    Column(
        "model",
        "model",
        14,
        4,
        grows=16,
        value=lambda run: Path(run.model).name or None,
        cell=lambda run: (Path(run.model).name or UNKNOWN, "dim"),
    ),
    Column(
        "started",
        "started",
        16,
        5,
        value=lambda run: run.started_at,
        largest_first=True,
        cell=lambda run: (_started(run), "dim"),
    ),
    Column(
        "cause",
        "why it ended",
        16,
        6,
        grows=120,
        value=lambda run: run.cause or None,
        cell=lambda run: (run.cause, "text"),
    ),
)


def started_again(run_dir: str) -> str:
    """The command that starts a run like the one in ``run_dir``."""
    return as_typed(f"liverl-tui up --like {run_words(Path(run_dir))} --set KEY=VALUE")


class RunsPane(RowsPane):
    """All runs, those that are live first. ``opened`` is called with the run under the cursor, ``compared`` with
    those to compare, which may be too few, and which one was chosen for the user, as a phrase."""

    scope: ClassVar[Scope] = "runs"
    title = "Runs"
    list_name = "runs"
    own_orders = ("live ones first, then the newest",)
    BINDINGS = bindings("runs")

    def __init__(
        self,
        opened: Callable[[RunListed], object],
        compared: Callable[[Sequence[RunListed], str], object],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._opened, self._compared = opened, compared
        self._runs: dict[str, RunListed] | None = None  # None until they are read
        self._sizes: dict[str, int | None] = {}
        self._best: dict[str, str] = {}  # which checkpoint of a run is the best, in words
        self._columns = tuple(
            replace(column, value=self._size_of) if column.name == "size" else column for column in _COLUMNS
        )
        self.shown: Path | None = None  # the run that the interface shows
        self.where = ""  # the directories that were looked in, in words
        self.problem = ""

    def take(self, runs: Sequence[RunListed]) -> None:
        """Show these runs. The first time, the cursor is put on the run that the interface shows."""
        if self._runs is None and self._cursor is None:
            self._cursor = next((run.run_dir for run in runs if self._is_shown(run)), None)
        self._runs = {run.run_dir: run for run in runs}
        longest = max((len(one_line(run.run)) + len(_SHOWN) * self._is_shown(run) for run in runs), default=0)
        times = max((len(_time(run)) for run in runs), default=0)
        grows = {"run": max(0, min(_MORE, longest - _NAME)), "time": max(0, times - _TIME)}
        self._columns = tuple(
            replace(column, grows=grows[column.name]) if column.name in grows else column
            for column in self._columns
        )
        self.update()

    def take_size(self, run_dir: str, bytes_: int | None) -> None:
        """Show the size of a run."""
        if self._sizes.get(run_dir, -1) != bytes_:
            self._sizes[run_dir] = bytes_
            self.update()

    def take_best(self, run_dir: str, words: str) -> None:
        """Say which checkpoint of a run is the best."""
        if self._best.get(run_dir) != words:
            self._best[run_dir] = words
            self.update()

    @property
    def runs(self) -> Mapping[str, RunListed]:
        """All runs that are listed, by their directories."""
        return self._runs or {}

    @property
    def chosen(self) -> RunListed | None:
        """The run under the cursor; None in an empty list."""
        key = self.cursor
        return self.runs.get(key) if key is not None else None

    # -- the list

    def items(self) -> Sequence[str]:
        """The directories of the runs."""
        return list(self.runs)

    def columns(self) -> tuple[Column, ...]:
        """All columns."""
        return self._columns

    def _is_shown(self, run: RunListed) -> bool:
        return self.shown is not None and str(self.shown) == run.run_dir

    def beside(self, run: RunListed) -> Previous | None:
        """What a run is compared with if nothing else is marked: the run before it (``previous_run``); where there is
        none, the run that the interface shows. None if that is the run itself."""
        if (before := previous_run(run, self.runs.values())) is not None:
            return before
        shown = next((one for one in self.runs.values() if self._is_shown(one)), None)
        return Previous(shown, "the run that is shown") if shown is not None and shown is not run else None

    def _size_of(self, run: RunListed) -> float | None:
        return self._sizes.get(run.run_dir)

    def item(self, key: str) -> Any:
        """The run."""
        return self.runs[key]

    def words(self, key: str) -> str:
        """What the filter looks in: the columns as they are shown, and the directory."""
        run = self.runs[key]
        shown = (column.cell(run)[0] for column in _COLUMNS if column.cell is not None)
        return " ".join((*shown, run.run_dir, run.model))

    def row(self, key: str, width: int) -> Row:
        """One run in one line."""
        run, line = self.runs[key], Row()
        for column, columns in self.drawn_table(width):
            text, style = self._cell(column, run)
            if column.name == "course" and len(text) > columns:
                text = _SHORT.get(text, text)
            if column.name == "time" and len(text) > columns:  # which attempt it is of is said below the list
                text = text.partition(", ")[0]
            line.add(fit(one_line(text), columns, column.align), style).add(" ")
        return line

    def _cell(self, column: Column, run: RunListed) -> Span:
        if column.name == "size":
            return ("…" if run.run_dir not in self._sizes else size(self._sizes[run.run_dir])), "text"
        assert column.cell is not None
        text, style = column.cell(run)
        if column.name == "run" and self._is_shown(run):
            return f"{text}{_SHOWN}", style
        return text, style

    def copy_row(self, key: str) -> str:
        """The run's directory, which every command takes."""
        return key

    @property
    def marked_services(self) -> list[str] | None:
        """None: a run is no service."""
        return None

    # -- drawing

    def facts(self) -> tuple[str, str]:
        """How many there are, and how many of them are live."""
        if self.problem:
            return self.problem, "bad"
        if self._runs is None:
            return "reading ...", "dim"
        live = sum(run.state in ("live", "elsewhere") for run in self._runs.values())
        alone = sum(run.state == "orphaned" for run in self._runs.values())
        parts = [f"{len(self._runs)} in all", f"{live} live"]
        if alone:
            parts.append(f"{alone} unsupervised")
        return " · ".join(parts), "warn" if alone else "dim"

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The list; below it the directory of the chosen run, and why it failed where the column has no room."""
        run = self.chosen
        if run is None or height < 8:
            return super().compose_rows(width, height)
        below = [Row((f" {fit(one_line(run.run_dir), width - 2)}", "dim")), *self._hints(run, width)]
        if run.cause:
            style = "bad" if run.state == "failed" else "text"
            below.insert(0, Row((f" {fit(one_line(run.cause), width - 2)}", style)))
        return with_below(super().compose_rows(width, height - len(below)), below, height)

    def _hints(self, run: RunListed, width: int) -> Iterable[Row]:
        """What else can be done with a run: which one it is compared with, and how it is started again."""
        if run.attempt_words:
            yield Row(
                (fit(f" started and time are of {run.attempt_words}, without those before it", width), "dim")
            )
        if best := self._best.get(run.run_dir):
            words = one_line(best)
            head = "" if words.startswith("best") else "checkpoints: "
            words = words.replace("best: ", "best checkpoint: ", 1)
            yield from wrapped([Row((" ", "dim"), (f"{head}{words}", "dim"))], width)
        other, compare = self.beside(run), find("runs", "compare").name
        if not self.arrangement.marks and other is not None and compare:
            words = fit(
                f" compares it with {one_line(other.run.run)}, {other.words}",
                max(0, width - 1 - len(compare)),
            )
            yield Row((f" {compare}", "key"), (words, "dim"))
        again = one_line(started_again(run.run_dir))
        yield from wrapped([Row((" again with another value: ", "dim"), (again, "dim"))], width)

    def empty(self, width: int) -> Iterable[Row]:
        """Why there is none."""
        if self._runs is None:
            return [Row((" reading the runs of this host ...", "dim"))]
        return [
            Row((f" no run in {self.where}", "dim")),
            Row((" to start one: liverl-tui up", "text")),
        ]

    # -- what keys do

    def open_row(self) -> None:
        """Open the run under the cursor."""
        self.action_open()

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: a run is listed."""
        return "no run is listed" if action in ("open", "compare") and self.chosen is None else ""

    def action_open(self) -> None:
        """Open the run under the cursor."""
        if self.chosen is not None:
            self._opened(self.chosen)

    def action_compare(self) -> None:
        """Compare the marked runs; if less than two are, the one that is marked or under the cursor with ``beside``.
        The one that began first comes first."""
        marked = [self.runs[key] for key in self.marked]
        one, why = marked[0] if marked else self.chosen, ""
        if len(marked) < 2 and one is not None and (other := self.beside(one)) is not None:
            marked = sorted((one, other.run), key=lambda run: run.started_at or 0.0)
            letter = LETTERS[marked.index(other.run)]
            why = f"{letter} is {other.words.replace(' it', f' {LETTERS[marked.index(one)]}', 1)}"
        elif one is not None and not marked:
            why = _none_before(one, self.runs.values())
        self._compared(marked, why)


def _none_before(run: RunListed, runs: Iterable[RunListed]) -> str:
    """Why there is no run before this one to compare it with."""
    if run.started_at is None:
        return f"when {run.run} began is not known, so that no run is known to be before it"
    if any(one.started_at is not None and one.started_at < run.started_at for one in runs):
        other = "no other smoke run" if run.smoke else "only smoke runs"
        return f"{other} began before {run.run}"
    return f"no listed run began before {run.run}"
