"""A pane with a list that shows several items side by side where there are too few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding

from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.rows import RowsPane

if TYPE_CHECKING:
    from textual.binding import BindingType

_MOVES: list[BindingType] = [
    Binding("up,k", "move_line(-1)", show=False),
    Binding("down,j", "move_line(1)", show=False),
    Binding("left", "move(-1)", show=False),
    Binding("right", "move(1)", show=False),
]


class GridPane(RowsPane, inherit_bindings=True):
    """A list that shows one item per line, with column heads, while the lines suffice; otherwise several cells per
    line, as few as possible. Items that still do not fit are scrolled."""

    BINDINGS = _MOVES
    narrowest: ClassVar[int] = 20  # columns: the least width of a cell

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._per_line = 1
        self._first_line = 1  # the pane's first line with items

    # -- for subclasses

    def lead(self, width: int) -> Sequence[Row]:
        """Rows above the items, below the title."""
        return ()

    def tail(self, width: int) -> Sequence[Row]:
        """Rows below the items."""
        return ()

    def cell(self, key: str, width: int) -> Row:
        """One item as a cell, in exactly ``width`` columns."""
        raise NotImplementedError

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Sequence[Row]:
        """Title, lead, items and tail. The title gives the visible range if the items are scrolled."""
        keys = self.keys()
        self._settle(keys)
        lead, tail = list(self.lead(width)), list(self.tail(width))
        room = max(1, height - 1 - len(lead) - len(tail))
        most = max(1, width // self.narrowest)
        self._per_line = per_line = max(1, min(-(-len(keys) // room), most))
        lines = -(-len(keys) // per_line)
        head = self.head(width) if per_line == 1 and lines < room else None
        facts, style = self.facts()
        top = 0
        if lines > room:
            at = self._at // per_line
            top = max(min(self._top, at, lines - room), at - room + 1, 0)
            last = min(len(keys), (top + room) * per_line)
            facts = f"{facts}  {top * per_line + 1}-{last} of {len(keys)}".strip()
        self._top = top
        rows = [self.title_row(width, facts, style), *lead]
        if not keys and not lead:
            rows += self.empty(width)
        if head is not None and keys:
            rows.append(head)
        self._first_line = len(rows)
        for line in range(top, min(lines, top + room)):
            shown = keys[line * per_line : (line + 1) * per_line]
            rows.append(
                self._line(shown, width // per_line) if per_line > 1 else self._whole(shown[0], width)
            )
        return [*rows, *tail]

    def _whole(self, key: str, width: int) -> Row:
        row = self.row(key, width)
        row.cursor = key == self._cursor and self.has_focus
        return row

    def _line(self, keys: Sequence[str], width: int) -> Row:
        line = Row()
        for key in keys:
            spans = self.cell(key, width - 1).spans
            if key == self._cursor and self.has_focus:
                palette = self.palette
                spans = [(t, palette.under_cursor(palette[s] if isinstance(s, str) else s)) for t, s in spans]
            line.spans += spans
            line.add(" ")
        return line

    # -- the cursor

    def action_move_line(self, by: int) -> None:
        """Move the cursor by ``by`` lines, within its column of cells."""
        self.action_move(by * self._per_line)

    def action_page(self, by: int) -> None:
        """Move the cursor by ``by`` pages of lines."""
        self.action_move_line(by * max(1, self.content_size.height - 3))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked item; a double click opens it."""
        event.prevent_default()  # the base class would take the whole line for one item
        line = event.y - self._first_line
        if line < 0:
            return
        across = min(self._per_line - 1, event.x * self._per_line // max(1, self.content_size.width))
        self._go((self._top + line) * self._per_line + across)
        if event.chain == 2:
            self.call_next(self.run_action, "select")
