"""A pane of lines to scroll through, without a cursor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.binding import Binding

from liverl_tui.keys.bindings import moves
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.pane import WHEEL, Pane

if TYPE_CHECKING:
    from textual.binding import BindingType

_MOVES: list[BindingType] = [
    *moves("scroll(-1)", "scroll(1)", "page(-1)", "page(1)", "top", "bottom"),
    Binding("space", "page(1)", show=False),
]


class ScrollPane(Pane):
    """Subclasses implement ``heading()`` and ``lines(width, height)``, and call ``update`` when these have changed."""

    BINDINGS = _MOVES

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = 0
        self._lines: list[Row] = []

    # -- for subclasses

    def heading(self) -> tuple[str, str]:
        """What the title names (the class's ``title`` if empty), and the facts beside it."""
        raise NotImplementedError

    def lines(self, width: int, height: int) -> list[Row]:
        """All lines, in ``width`` columns; ``height``: rows that are visible."""
        raise NotImplementedError

    def to_top(self) -> None:
        """Show the first line, from the next drawing on."""
        self._top = 0

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title with the name and the visible lines, and those lines."""
        name, facts = self.heading()
        room = max(1, height - 1)
        self._lines = self.lines(width, room)
        self._top = max(0, min(self._top, len(self._lines) - room))
        if len(self._lines) > room:
            facts += f"  lines {self._top + 1}-{self._top + room} of {len(self._lines)}"
        return [self._title_with(name, width, facts), *self._lines[self._top : self._top + room]]

    def _title_with(self, name: str, width: int, facts: str) -> Row:
        if not name:
            return self.title_row(width, facts)
        row = self.title_row(width + len(self.title) - len(name), facts)
        row.spans[0] = (f" {name} ", row.spans[0][1])
        return row

    # -- actions

    def action_scroll(self, by: int) -> None:
        """Scroll by rows, downwards if positive."""
        self._top += by
        self.update()

    def action_page(self, by: int) -> None:
        """Scroll one screen down (1) or up (-1), with one row in common."""
        self.action_scroll(by * max(1, self.content_size.height - 2))

    def action_top(self) -> None:
        """Scroll to the first line."""
        self._top = 0
        self.update()

    def action_bottom(self) -> None:
        """Scroll to the last line."""
        self._top = len(self._lines)
        self.update()

    def wheel(self, by: int) -> None:
        """Scroll by ``WHEEL`` rows."""
        self.action_scroll(WHEEL * by)

    def copy_all(self) -> str:
        """All lines, also those outside of the screen."""
        return "\n".join(row.text.rstrip() for row in self._lines)
