"""The base of every list of the interface: the keys and the mouse that arrange it, and how that is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from textual import events

from liverl_tui.data.host import host_of
from liverl_tui.keys.bindings import Scope, bindings, find
from liverl_tui.widgets.base.arranged_list import ArrangedList, UnknownColumn
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.fitting import Chosen, column_at, heads

FACTS_GAP = " · "  # between the facts of a title
MARKED, UNMARKED = "✓ ", "  "  # before each row, if any row is marked


class RowsPane(ArrangedList):
    """A list that the user arranges: it sorts by any column, filters, marks rows and shows chosen columns. Subclasses
    implement what ``ArrangedList`` and ``CursorList`` ask for."""

    BINDINGS = bindings("list")
    further_scopes: ClassVar[tuple[Scope, ...]] = ("list",)

    # -- drawing

    def head(self, width: int) -> Row | None:
        """The column heads; the one that sorts has a sign."""
        return self.heads_of(self.drawn_table(width))

    def heads_of(self, chosen: Chosen) -> Row:
        """The row of heads of ``chosen``; the one that sorts has a sign."""
        order = self.arrangement.order
        return heads(chosen, sorted_by=order.name, sign=order.sign) if order is not None else heads(chosen)

    @property
    def gutter_width(self) -> int:
        """Terminal columns before each row that show whether it is marked; 0 if none is."""
        return len(MARKED) if self.arrangement.marks else 0

    def head_line(self, width: int) -> Row | None:
        """See ``CursorList.head_line``."""
        head = self.head(width - self.gutter_width)
        if head is not None and self.gutter_width:
            head.spans.insert(0, (UNMARKED, "head"))
        return head

    def line(self, key: str, width: int) -> Row:
        """See ``CursorList.line``."""
        if not self.gutter_width:
            return self.row(key, width)
        return self.signed(key, [self.row(key, width - self.gutter_width)])[0]

    def signed(self, key: str, block: list[Row]) -> list[Row]:
        """The rows of one item, which were made for ``gutter_width`` columns less, with the sign of its mark."""
        if self.gutter_width:
            for index, row in enumerate(block):
                row.spans.insert(0, self.sign_of(key) if not index else (UNMARKED, "text"))
        return block

    def sign_of(self, key: str) -> tuple[str, str]:
        """The text before the row ``key`` and its style, if any row is marked."""
        return (MARKED, "key") if key in self.arrangement.marks else (UNMARKED, "text")

    def title_facts(self) -> tuple[str, str]:
        """Filter, number of marks, ``facts`` and order. The order comes before ``facts`` where no head has its sign."""
        (facts, style), order = self.facts(), self.order_words()
        has_heads = bool(order) and self.head(self.content_size.width) is not None
        parts = [*self.chosen_words(), *((facts, order) if has_heads else (order, facts))]
        if self.prompt.text:
            parts.append(self.filtered_words())
        return FACTS_GAP.join(part for part in parts if part), style

    def chosen_words(self) -> tuple[str, ...]:
        """The filter and the number of marks, as the title says them; none without."""
        marks = len(self.arrangement.marks)
        return tuple(word for word in (self.prompt.shown, f"{marks} marked" if marks else "") if word)

    def order_words(self) -> str:
        """What the list is sorted by; empty in its default order."""
        order, column = self.arrangement.order, self.sorting
        if order is not None and column is not None:
            return f"by {column.title} {order.sign}"
        return order.name if order is not None and not self.in_own_order(self.own_orders[0]) else ""

    def empty_rows(self, width: int) -> Iterable[Row]:
        """See ``CursorList.empty_rows``."""
        if self.prompt.text and self.items():
            return (Row(("  no row matches; Esc shows all", "dim")),)
        return self.empty(width)

    def filtered_words(self) -> str:
        """How many rows the filter lets through, for the title."""
        return f"{len(self.keys())} of {len(self.items())} rows"

    def copy_line(self) -> str:
        """The marked rows, one per line; without marks, the row under the cursor."""
        marked = self.marked
        if marked:
            return "\n".join(self.copy_row(key) for key in marked)
        key = self.cursor
        return self.copy_row(key) if key is not None else ""

    def exporters(self) -> dict[str, Callable[[], str]]:
        """Form of a file -> what is written to it, the usual one first: the rows that are shown."""
        from liverl_tui.widgets.base.exporting import list_csv, list_json

        return {"csv": partial(list_csv, self), "json": partial(list_json, self)}

    # -- keys

    def action_sort(self) -> None:
        """Open the list of columns to sort by."""
        host_of(self).navigation.choose_order(self)

    def action_reverse(self) -> None:
        """Reverse the order, if a column sorts the list; else say how to sort."""
        order, column = self.arrangement.order, self.sorting
        if order is None or column is None:
            key = find("list", "sort").mention
            self.say(f"no column sorts this list; press {key} to choose one")
        else:
            self.sort_by(column.name, not order.descending)

    def action_filter(self) -> None:
        """Begin to type a filter in the title."""
        self.prompt.begin()
        self.rearrange()

    def action_mark(self) -> None:
        """Mark the row under the cursor, or remove its mark, and move to the next row."""
        key = self.cursor
        if key is None:
            self.say("there is no row to mark")
            return
        self.toggle_mark(key)
        self.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all listed rows; if all are marked, none."""
        names = [key for key in self.keys() if self.markable(key)]
        if names:
            self.arrangement.toggle_all(names)
            self.update()
        else:
            self.say("there is no row to mark")

    def action_columns(self) -> None:
        """Open the list of columns to show."""
        host_of(self).navigation.choose_columns(self)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Esc to screen and app when there is nothing to clear here."""
        return action != "clear" or bool(self.arrangement.marks or self.prompt.text) or self.more_to_clear

    def action_clear(self) -> None:
        """Remove the marks, else the filter, else what else there is to clear."""
        if self.arrangement.marks:
            self.clear_marks()
        elif self.prompt.text:
            self.set_filter("")
        else:
            self.clear_more()

    def on_key(self, event: events.Key) -> None:
        """While the filter is typed, keys edit it."""
        if self.prompt.open:
            self.prompt.key(event)
            self.rearrange()

    def on_paste(self, event: events.Paste) -> None:
        """While the filter is typed, insert the pasted text into it."""
        if self.prompt.open:
            event.stop()
            self.prompt.paste(event.text)
            self.rearrange()

    def on_blur(self) -> None:
        """End typing; the text so far stays as the filter."""
        self.prompt.open = False

    # -- the mouse

    def on_click(self, event: events.Click) -> None:
        """A click on a column head sorts by it; with Ctrl or Shift, or on the signs of the marks, it marks a row."""
        if event.y == 1 < self.head_rows:
            event.prevent_default()
            column = column_at(
                self.drawn_table(self.content_size.width - self.gutter_width), event.x - self.gutter_width
            )
            if column is not None and column.value is not None:
                try:
                    self.sort_by(column.name)
                except UnknownColumn as error:
                    self.say(str(error))
            return
        index = self.row_at(event.x, event.y)
        keys = self.keys()
        marks = event.ctrl or event.shift or event.x < self.gutter_width
        if marks and index is not None and index < len(keys):
            event.prevent_default()
            self.toggle_mark(keys[index])
            self._go(index)
