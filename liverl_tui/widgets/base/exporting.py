"""What a list gives to be saved to a file. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from liverl.offline.tables import as_csv

if TYPE_CHECKING:
    from liverl.util.parquet import Value
    from liverl_tui.widgets.base.arranged_list import ArrangedList


def list_table(pane: ArrangedList) -> dict[str, list[Value]]:
    """The rows that the list shows, in its order: the name of each, and a column for each that sorts."""
    keys = list(pane.keys())
    columns = [column for column in pane.columns() if column.value is not None]
    table: dict[str, list[Value]] = {"row": list(keys)}
    items = [pane.item(key) for key in keys]  # each is made anew from its record
    for column in columns:
        of = column.value
        table[column.name] = [None if item is None or of is None else of(item) for item in items]
    return table


def list_csv(pane: ArrangedList) -> str:
    """The same as comma-separated values."""
    return as_csv(list_table(pane))


def list_json(pane: ArrangedList) -> str:
    """The same as a JSON list of objects."""
    table = list_table(pane)
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return json.dumps(rows, indent=1) + "\n"
