"""Cells of a table side by side, each cut to its column. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from liverl_tui.text.columns import columns_of
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.fitting import Column


def table_row(cells: Mapping[str, Span | list[Span]], chosen: Sequence[tuple[Column, int]]) -> Row:
    """One line of a table. ``cells``: by the name of their column; ``chosen``: the columns with their widths."""
    row = Row()
    for index, (column, width) in enumerate(chosen):
        cell = cells[column.name]
        spans = cell if isinstance(cell, list) else [cell]
        text = "".join(part for part, _ in spans)
        # Not padded to the column: the background of an alarm is only as wide as its words.
        own = fit(text, min(width, columns_of(text)))
        blank = " " * (width - columns_of(own))
        before, after = (blank, "") if column.align == ">" else ("", blank)
        if lead := " " * (index > 0) + before:
            row.add(lead)
        at = 0
        for part, style in spans:
            row.add(own[at : at + len(part)], style)
            at += len(part)
        if after:
            row.add(after)
    return row
