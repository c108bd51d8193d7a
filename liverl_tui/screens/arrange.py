"""The two dialogs that arrange a list: what it is sorted by, and which columns it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.app import ComposeResult

from liverl_tui.keys.bindings import find
from liverl_tui.screens.dialogs import Dialog, Option, Options, Wrapped
from liverl_tui.screens.finder import Choices, Finder
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.rows import RowsPane

_SIGN = 3  # columns before a name
ON, OFF = "☑", "☐"


class Orders(Choices):
    """What a list can be sorted by: its own orders, then its columns. What sorts it now has a sign."""

    def __init__(self, pane: RowsPane) -> None:
        super().__init__()
        order = pane.arrangement.order
        self._titles = {name: name for name in pane.own_orders}
        self._titles |= {column.name: column.title for column in pane.columns() if column.value is not None}
        self._matches = list(self._titles)
        sorting = pane.sorting
        own = next((name for name in pane.own_orders if pane.in_own_order(name)), pane.own_orders[0])
        self._present = sorting.name if sorting is not None else own
        self._sign = order.sign if order is not None and sorting is not None else "●"
        self._cursor = self._present

    def find(self, query: str) -> None:
        """List what contains every word of ``query``, in any case; what begins with it first."""
        words = query.lower().split()
        found = [
            name
            for name, title in self._titles.items()
            if all(word in f"{title} {name}".lower() for word in words)
        ]
        self._matches = sorted(
            found, key=lambda n: not self._titles[n].lower().startswith(query.lower().strip())
        )

    def keys(self) -> Sequence[str]:
        """The names of the orders and columns that match."""
        return self._matches

    def row(self, key: str, width: int) -> Row:
        """The sign of what sorts now, and the name."""
        row = Row().add(f" {self._sign}" if key == self._present else "", "key", _SIGN)
        return row.add(self._titles[key], "text", max(0, width - _SIGN))

    def empty(self, width: int) -> Iterable[Row]:
        """The line that says that nothing matches."""
        return [Row((" no column matches", "dim"))]


class SortBy(Finder[str]):
    """Dismissed with the name of a column or of an order of ``pane``, or None."""

    widest = 44

    def __init__(self, pane: RowsPane) -> None:
        self._orders = Orders(pane)
        super().__init__("Sort by", "part of a name; the same again reverses", self._orders)

    def answer(self) -> str | None:
        """The name under the cursor."""
        return self._orders.cursor


class Switches(Options):
    """The columns of a list, each with a sign that says whether it is shown."""

    def __init__(self, pane: RowsPane) -> None:
        columns = pane.columns()
        super().__init__([Option(column.name, "", column.title) for column in columns])
        self._pane = pane
        self._columns = {column.name: column for column in columns}

    def facts(self) -> tuple[str, str]:
        """The keys that switch and close."""
        keys = " or ".join(find("dialog", action).mention for action in ("switch", "pick"))
        return f"{keys} switches, {find('dialog', 'cancel').mention} closes", "dim"

    def row(self, key: str, width: int) -> Row:
        """The sign and the name of a column."""
        shown = self._pane.arrangement.shows(self._columns[key])
        row = Row((f" {ON if shown else OFF} ", "key" if shown else "dim"))
        return row.add(self._columns[key].title, "text" if shown else "dim")


class ColumnSwitches(Dialog[None]):
    """Shows and hides columns of ``pane``, at once; dismissed with None."""

    widest = 44

    def __init__(self, pane: RowsPane) -> None:
        super().__init__()
        self._pane = pane

    def parts(self) -> ComposeResult:
        """Title and columns."""
        yield Wrapped("Columns", "title")
        yield Switches(self._pane)

    def action_switch(self) -> None:
        """Show or hide the column under the cursor."""
        switches = self.query_one(Switches)
        name = switches.cursor
        if name is not None:
            self._pane.switch_column(name)
            switches.update()

    def action_pick(self) -> None:
        """Show or hide the column under the cursor."""
        self.action_switch()
