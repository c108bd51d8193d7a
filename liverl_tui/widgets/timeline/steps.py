"""All steps as stacked bars: which part of a step takes how long, and what has become slower."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from liverl.util.plural import quantity
from liverl_tui.text.words import LEVEL_GLYPH, LEVEL_STYLE, one_line
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, Span, fit, with_below
from liverl_tui.widgets.base.cursor_list import CursorList
from liverl_tui.widgets.metrics.chart import ChartStyle, picture
from liverl_tui.widgets.metrics.grid import MOST, NARROWEST, beside, exactly, places, side_by_side
from liverl_tui.widgets.timeline.lanes import PARTS, axis, legend, look, seconds_word, stacked
from liverl_tui.widgets.timeline.step import note_rows

if TYPE_CHECKING:
    from liverl.offline.step_notes import StepNote
    from liverl.util.parquet import Value

Parts = Mapping[str, float]
NUMBERED = 160  # columns from which on the seconds of each part stand behind its bar
MARKED = "marked where an alert began"  # one that lasts does not mark the steps after
_QUARTER = 4  # of the rows of the pane, at most, for the reasons of a mark
_NUMBERS = 12  # columns of these, for each part
_CHART = 8  # least rows of a chart, its title included
_SHARE = 0.01  # of all seconds: parts that took less have no chart
_DRAWN = 3  # steps from which on a chart says more than the bars
_OUTLIER, _SEVERAL = (
    1.5,
    5,
)  # times the second longest step: a longer one of so many steps does not set the scale


class _Seconds:
    """The seconds of a part over the steps."""

    def __init__(self, steps: Mapping[str, tuple[Parts, float]], part: str) -> None:
        self.steps: Sequence[int] = array("q", map(int, steps))
        self.values: Sequence[float] = array("d", (parts.get(part, math.nan) for parts, _ in steps.values()))


def mark_of(notes: Sequence[StepNote]) -> Span:
    """One column: the sign of the worst note; blank without any."""
    worst = max((note.level for note in notes), key=tuple(LEVEL_GLYPH).index, default=None)
    return (" ", "text") if worst is None else (LEVEL_GLYPH[worst], LEVEL_STYLE[worst])


class StepsPane(CursorList):
    """A row for each step, the oldest first; the newest is under the cursor until it is moved."""

    title = "Steps"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._steps: dict[str, tuple[Parts, float]] = {}
        self._longest = 0.0
        self._follows = True
        self.words = "reading ..."
        self.notes: Sequence[tuple[str, str]] = ()  # sentences and their styles
        self.marks: Mapping[int, Sequence[StepNote]] = {}  # step -> what happened in it, see ``StepNotes``

    def take(self, steps: Mapping[int, tuple[Parts, float]]) -> None:
        """Show these steps: the seconds of the parts of each, and its own."""
        self._steps = {str(step): found for step, found in steps.items()}
        self._longest = scale_of([max(total, sum(parts.values())) for parts, total in steps.values()])
        if self._follows and self._steps:
            self._cursor = next(reversed(self._steps))
        self.update()

    def moved(self) -> None:
        """Stay where the user goes; follow again at the last step."""
        self._follows = self._cursor == next(reversed(self._steps), None)

    @property
    def chosen(self) -> int | None:
        """The step under the cursor."""
        key = self.cursor
        return int(key) if key is not None else None

    def keys(self) -> Sequence[str]:
        """The steps."""
        return list(self._steps)

    def facts(self) -> tuple[str, str]:
        """How many there are."""
        return quantity(len(self._steps), "step") if self._steps else "", "dim"

    def head(self, width: int) -> Row | None:
        """The axis of the bars, and the names of the parts whose seconds stand behind them."""
        if not self._steps:
            return None
        row = Row((f"{'step':>7} {'time':>6} ", "head"), (axis(0.0, self._longest, self._bar(width)), "head"))
        for part in self._numbered(width):
            row.add(look(part).word, "head", _NUMBERS, ">")
        return row

    def row(self, key: str, width: int) -> Row:
        """One step. A bar that is longer than the scale ends in ``»``, and has its parts in proportion: cut at the
        scale it would be all of its first part."""
        parts, total = self._steps[key]
        mark = mark_of(self.marks.get(int(key), ()))
        row = Row(mark, (f"{key:>6} ", "strong"), (f"{seconds_word(total):>6} ", "text"))
        columns, whole = self._bar(width), sum(parts.values())
        if whole > self._longest:
            row.spans += [*stacked(parts, whole, columns - 1), ("»", "warn")]
        else:
            row.spans += stacked(parts, self._longest, columns)
        for part in self._numbered(width):
            seconds = parts.get(part)
            share = f" {100 * seconds / total:3.0f} %" if seconds is not None and total else ""
            row.add("-" if seconds is None else seconds_word(seconds) + share, "dim", _NUMBERS, ">")
        return row

    def _present(self) -> list[str]:
        return [part for part in PARTS if any(part in parts for parts, _ in self._steps.values())]

    def _numbered(self, width: int) -> list[str]:
        return self._present() if width >= NUMBERED else []

    def _bar(self, width: int) -> int:
        return max(1, width - 15 - _NUMBERS * len(self._numbered(width)))

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The bars; below them a chart of each part where there is room, what is slower than before, and what the
        characters mean."""
        if not self._steps:
            return super().compose_rows(width, height)
        notes = [*self._detail(width, height), *note_rows(self.notes, width, height)]
        below = [*notes, *(Row(*spans) for spans in legend(self._present(), width)), *self._cut(width)]
        rows = list(super().compose_rows(width, max(2, height - len(below))))
        rows += self._charts(width, height - len(rows) - len(below))
        return with_below(rows, below, height)

    def _cut(self, width: int) -> list[Row]:
        """What a bar means that ends in ``»``, if there is one."""
        if all(sum(parts.values()) <= self._longest for parts, _ in self._steps.values()):
            return []
        return [
            Row((" »", "warn"), (fit(" longer than the axis: its parts are in proportion", width - 2), "dim"))
        ]

    def _detail(self, width: int, height: int) -> list[Row]:
        """Why the step under the cursor has a mark, whole where a quarter of the rows hold it. As many rows whichever
        step is under the cursor, so that nothing moves."""
        marked = [step for step in map(int, self._steps) if step in self.marks]
        if not marked:
            return []
        words = {
            step: f"step {step}: {'; '.join(one_line(n.text) for n in self.marks[step])}" for step in marked
        }
        which = f"{MARKED}: step {', '.join(map(str, marked))}; go to one to read why"
        most = max(1, height // _QUARTER)
        laid = {step: wrap(text, max(8, width - 2)) for step, text in (*words.items(), (None, which))}
        rows = min(most, max(map(len, laid.values())))
        chosen = self.chosen if self.chosen in words else None
        lines = laid[chosen]
        if len(lines) > rows:
            lines = [*lines[: rows - 1], fit(" ".join(lines[rows - 1 :]), width - 2)]
        style = mark_of(self.marks[chosen])[1] if chosen is not None else "dim"
        return [Row((f" {line}", style)) for line in [*lines, *[""] * (rows - len(lines))]]

    def _charts(self, width: int, height: int) -> list[Row]:
        """The seconds of the parts over the steps in ``height`` rows, those that took longest; a blank row above."""
        sums = {
            part: sum(parts.get(part, 0.0) for parts, _ in self._steps.values()) for part in self._present()
        }
        least = _SHARE * sum(sums.values())
        longest = sorted((part for part in sums if sums[part] > least), key=lambda part: -sums[part])
        lines = (height - 1) // _CHART
        if len(self._steps) < _DRAWN or lines < 1 or not longest:
            return []
        most = max(1, min(MOST, width // NARROWEST))
        shown = longest[: lines * most]
        across = side_by_side(len(shown), most)
        lines = -(-len(shown) // across)
        rows, room = [Row()], height - 1
        for line in range(lines):
            tall = room // lines + (line < room % lines)
            parts = shown[line * across : (line + 1) * across]
            blocks = [
                self._chart(part, wide, tall)
                for part, (_, wide) in zip(parts, places(width, len(parts)), strict=True)
            ]
            rows += [Row(*spans) for spans in beside(blocks)]
        return rows

    def _chart(self, part: str, width: int, height: int) -> list[list[Span]]:
        shown, points = look(part), _Seconds(self._steps, part)
        newest = next((value for value in reversed(points.values) if math.isfinite(value)), 0.0)
        title: list[Span] = [
            (f" {shown.glyph} ", shown.style),
            (f"{shown.word}, seconds over steps", "strong"),
            (f"  {seconds_word(newest)}", "strong"),
        ]
        drawn = picture(points, width, height - 1, ChartStyle(ended=True, style=shown.style))
        return [exactly(title, width), *drawn]

    def empty(self, width: int) -> Iterable[Row]:
        """Why there is none."""
        return [Row((f" {self.words}", "dim"))]

    def copy_all(self) -> str:
        """The seconds of all steps as a table, with a head."""
        table = self.seconds_table()
        rows = zip(*table.values(), strict=True)
        lines = [table.keys(), *(("" if cell is None else str(cell) for cell in row) for row in rows)]
        return "\n".join("\t".join(line) for line in lines)

    def seconds_table(self) -> dict[str, list[Value]]:
        """The seconds of all steps: a row for each, with a column for each part that any of them has."""
        return {
            "step": list(self._steps),
            "seconds": [total for _, total in self._steps.values()],
            **{part: [parts.get(part) for parts, _ in self._steps.values()] for part in self._present()},
        }


def scale_of(seconds: Sequence[float]) -> float:
    """The seconds at the right end of the bars: of the longest step, or of the second longest where one step, such as
    the first one with its compilation, would leave little room to all others."""
    longest = sorted(seconds)
    if len(longest) >= _SEVERAL and longest[-1] > _OUTLIER * longest[-2] > 0.0:
        return longest[-2]
    return longest[-1] if longest else 0.0
