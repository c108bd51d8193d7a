"""The choices of a list's user, and the rows that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from liverl.util.nearest import did_you_mean
from liverl_tui.data.host import host_of
from liverl_tui.data.list_memory import Kept
from liverl_tui.widgets.base.arranging import Arrangement, Order, fitted, in_order, matches, next_order
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.cursor_list import CursorList
from liverl_tui.widgets.base.fitting import Chosen, Column, Value
from liverl_tui.widgets.base.prompt import TitlePrompt


class UnknownColumn(LookupError):
    """A list has no such column or order, or cannot sort by it; ``str()`` says which ones there are."""


class ArrangedList(CursorList):
    """A list that can be sorted by any column, filtered, and has marks and chosen columns; without the keys for that.

    A subclass says what there is: ``items()`` (names of all rows, in the list's own order), ``columns()``,
    ``item(key)`` (what the columns read) and ``row(key, width)``. Whoever changes the facts calls ``update``. In the
    default order, without filter and marks, the list costs what ``items()`` costs.
    """

    list_name: ClassVar[str]  # order and columns are remembered under this name
    own_orders: ClassVar[tuple[str, ...]] = ("the list's own order",)  # the default one first

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._arrangement = Arrangement(self.list_name)
        self._arranged: Sequence[str] | None = None  # ``keys()``, until facts or choices change
        self._tables: dict[int, Chosen] = {}  # by width, ``drawn_table()``, until facts or choices change
        self._lines: dict[tuple[str, int], Row] = {}  # likewise, ``line()`` by key and width

    # -- for subclasses

    def items(self) -> Sequence[str]:
        """The names of all rows, in the list's own order. A name must stay the same while its row exists."""
        raise NotImplementedError

    def columns(self) -> tuple[Column, ...]:
        """All columns of the list, also those that are not shown."""
        raise NotImplementedError

    def item(self, key: str) -> Any:
        """What ``Column.value`` reads for the row ``key``; None for a row that no column says anything of."""
        raise NotImplementedError

    def words(self, key: str) -> str:
        """The text of the row ``key`` in which the filter looks: the values of all columns, unless a subclass knows
        better."""
        found = (self.value(key, column) for column in self.columns())
        return " ".join(str(value) for value in found if value is not None)

    def markable(self, key: str) -> bool:
        """Whether the row ``key`` can be marked."""
        return True

    def copy_row(self, key: str) -> str:
        """The text that is copied for the row ``key``: the row as it is shown."""
        return self.row(key, self.content_size.width).text.strip()

    @property
    def marked_services(self) -> list[str] | None:
        """The services and replicas that the marked rows stand for: the commands on services act on all of them. None
        without marks, or in a list of something else."""
        return self.marked or None

    @property
    def more_to_clear(self) -> bool:
        """Whether Esc has something to do here without marks and filter; ``clear_more`` does it."""
        return False

    def clear_more(self) -> None:
        """Called by Esc if there are neither marks nor a filter, and ``more_to_clear``."""

    # -- what the user has chosen

    @property
    def arrangement(self) -> Arrangement:
        """The choices for the list that is shown now."""
        return self._arrangement

    def arrangements(self) -> Sequence[Arrangement]:
        """The choices for every list that this pane can show."""
        return (self._arrangement,)

    @property
    def prompt(self) -> TitlePrompt:
        """The filter."""
        return self.arrangement.prompt

    @property
    def marked(self) -> list[str]:
        """The names of the marked rows, listed ones first, in their order."""
        marks = self.arrangement.marks
        if not marks:
            return []
        listed = [key for key in self.keys() if key in marks]
        return [*listed, *sorted(marks.difference(listed))]

    @property
    def sorting(self) -> Column | None:
        """The column that sorts the list; None in one of the list's own orders."""
        order = self.arrangement.order
        return self._column(order.name) if order is not None else None

    def in_own_order(self, name: str) -> bool:
        """Whether the list is in its own order ``name``, one of ``own_orders``."""
        order = self.arrangement.order
        return name == (
            order.name if order is not None and order.name in self.own_orders else self.own_orders[0]
        )

    def _column(self, name: str) -> Column | None:
        return next((c for c in self.columns() if c.name == name and c.value is not None), None)

    def sort_by(self, column_name: str, descending: bool | None = None) -> None:
        """Sort by a column (its name or its title), or use one of ``own_orders``. ``descending``: None is the column's
        usual direction, or the other one if it sorts the list already.

        Raises:
            UnknownColumn: there is no such column or order, or the column does not sort.
        """
        wanted = column_name.casefold()
        if wanted in (name.casefold() for name in self.own_orders):
            name = next(name for name in self.own_orders if name.casefold() == wanted)
            self.arrangement.order = None if name == self.own_orders[0] else Order(name)
        else:
            column = self._named(wanted)
            order = next_order(self.arrangement.order, column)
            self.arrangement.order = order if descending is None else Order(column.name, descending)
        self.to_top()
        self.rearrange()
        self._remember()

    def _named(self, wanted: str) -> Column:
        sortable = [column for column in self.columns() if column.value is not None]
        for column in sortable:
            if wanted in (column.name.casefold(), column.title.casefold()):
                return column
        names = [column.name for column in sortable] + list(self.own_orders)
        hint = did_you_mean(wanted, names)
        raise UnknownColumn(
            f"this list cannot be sorted by {wanted!r}; expected one of {', '.join(names)}"
            + (f" ({hint})" if hint else "")
        )

    def set_filter(self, text: str) -> None:
        """Show only rows that contain every word of ``text``; case matters only if it has a capital. Empty: all."""
        self.prompt.clear()
        self.prompt.insert(text)
        self.rearrange()

    def to_top(self) -> None:
        """Put the cursor on the first row, from the next drawing on."""
        self._cursor, self._top = None, 0

    def rearrange(self) -> None:
        """Apply the present choices and draw the list."""
        self.update()

    def _remember(self) -> None:
        order = self.arrangement.order
        kept = Kept(
            order.name if order is not None else "",
            order is not None and order.descending,
            dict(self.arrangement.columns),
        )
        host_of(self).lists.keep(self.arrangement.name, kept)

    def on_mount(self) -> None:
        """Arrange the list as it was left at the last start."""
        lists = host_of(self).lists
        for arrangement in self.arrangements():
            kept = lists.kept(arrangement.name)
            if kept is not None:
                arrangement.order = Order(kept.order, kept.descending) if kept.order else None
                arrangement.columns = frozenset(kept.columns.items())

    def toggle_mark(self, key: str) -> None:
        """Mark the row ``key``, or remove its mark."""
        if self.markable(key):
            self.arrangement.toggle(key)
            self.update()
        else:
            self.say("this row cannot be marked")

    def clear_marks(self) -> None:
        """Remove all marks."""
        self.arrangement.marks.clear()
        self.update()

    def switch_column(self, name: str) -> None:
        """Show or hide the column ``name``; the last one that is shown stays."""
        arrangement, columns = self.arrangement, self.columns()
        column = next(column for column in columns if column.name == name)
        if [c for c in columns if arrangement.shows(c)] == [column]:
            self.say("a list has at least one column")
            return
        arrangement.switch(column)
        self.rearrange()
        self._remember()

    def say(self, text: str) -> None:
        """Tell the user why nothing happens."""
        host_of(self).notifications.toast(text, "warning")

    # -- the rows

    def value(self, key: str, column: Column) -> Value:
        """What ``column`` sorts by for the row ``key``; None if it is unknown, or the column does not sort."""
        item = self.item(key)
        return None if item is None or column.value is None else column.value(item)

    def keys(self) -> Sequence[str]:
        """The names of the rows that the filter lets through, in the chosen order."""
        if self._arranged is None:
            self._arranged = self._arrange()
        return self._arranged

    def _arrange(self) -> Sequence[str]:
        names = self.items()
        self.arrangement.forget_others(names)
        if text := self.prompt.text:
            names = [name for name in names if matches(text, self.words(name))]
        if (column := self.sorting) is not None and (order := self.arrangement.order) is not None:
            return in_order(names, lambda name: self.value(name, column), order.descending)
        return names

    def update(self) -> None:
        """See ``CellPanel.update``; also arranges the rows again when they are needed next."""
        self._arranged = None
        self._tables.clear()
        self._lines.clear()
        super().update()

    def refocus(self) -> None:
        """See ``Pane.refocus``: the rows are those of the last update. A key that moves the focus does not wait for two
        panes to compose all of theirs."""
        super().update()

    def drawn_line(self, key: str, width: int) -> Row:
        """See ``CursorList.drawn_line``; composed once for each update."""
        if (row := self._lines.get((key, width))) is None:
            row = self._lines[key, width] = self.line(key, width)
        return Row(*row.spans)

    def table(self, width: int) -> Chosen:
        """The columns of the table at ``width``."""
        return fitted(self.columns(), self.arrangement.drawn, width)

    def drawn_table(self, width: int) -> Chosen:
        """``table``, computed once for all rows of an update."""
        if (chosen := self._tables.get(width)) is None:
            chosen = self._tables[width] = self.table(width)
        return chosen
