"""All steps as stacked bars: which part of a step takes how long, and what has become slower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from liverl.util.plural import quantity
from liverl_tui.widgets.base.cells import Row, with_below
from liverl_tui.widgets.base.cursor_list import CursorList
from liverl_tui.widgets.timeline.lanes import PARTS, axis, legend, seconds_word, stacked
from liverl_tui.widgets.timeline.step import note_rows

if TYPE_CHECKING:
    from liverl.util.parquet import Value

Parts = Mapping[str, float]


class StepsPane(CursorList):
    """A row for each step, the oldest first; the newest is under the cursor until it is moved."""

    title = "Steps"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._steps: dict[str, tuple[Parts, float]] = {}
        self._longest = 0.0
        self._follows = True
        self.words = "reading ..."
        self.notes: Sequence[str] = ()

    def take(self, steps: Mapping[int, tuple[Parts, float]]) -> None:
        """Show these steps: the seconds of the parts of each, and its own."""
        self._steps = {str(step): found for step, found in steps.items()}
        self._longest = max((max(total, sum(parts.values())) for parts, total in steps.values()), default=0.0)
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
        """The axis of the bars."""
        if not self._steps:
            return None
        return Row(
            (f"{'step':>7} {'time':>6} ", "head"), (axis(0.0, self._longest, max(1, width - 15)), "head")
        )

    def row(self, key: str, width: int) -> Row:
        """One step."""
        parts, total = self._steps[key]
        row = Row((f"{key:>7} ", "strong"), (f"{seconds_word(total):>6} ", "text"))
        row.spans += stacked(parts, self._longest, max(1, width - 15))
        return row

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The bars; below them what is slower than before, and what their characters mean."""
        if not self._steps:
            return super().compose_rows(width, height)
        present = [part for part in PARTS if any(part in parts for parts, _ in self._steps.values())]
        notes = note_rows(self.notes, width, height)
        below = [*notes, *(Row(*spans) for spans in legend(present, width))]
        return with_below(super().compose_rows(width, max(2, height - len(below))), below, height)

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
        present = [part for part in PARTS if any(part in parts for parts, _ in self._steps.values())]
        return {
            "step": list(self._steps),
            "seconds": [total for _, total in self._steps.values()],
            **{part: [parts.get(part) for parts, _ in self._steps.values()] for part in present},
        }
