"""A list beside the detail of the row that is chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.rows import RowsPane


class ChooserPane(RowsPane):
    """``chosen`` is called with the key of the row when the cursor moves to another one."""

    def __init__(self, chosen: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chosen = chosen

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The list. The chosen row is marked also without the focus: the detail beside it belongs to it."""
        rows = list(super().compose_rows(width, height))
        place = self.head_rows + self._at - self._top
        if self.keys() and place < len(rows):
            rows[place].cursor = True
        return rows

    def to_top(self) -> None:
        """Nothing: the cursor stays on what the detail shows."""

    def _go(self, place: int) -> None:
        super()._go(place)
        if self._cursor is not None:
            self._chosen(self._cursor)
