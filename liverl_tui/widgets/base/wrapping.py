"""Rows of which the last text goes on below, in its own column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from liverl_tui.text.columns import columns_of
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.fitting import columns

_LEAST = 12  # columns; in fewer a text is cut, not wrapped


def wrapped(rows: Iterable[Row], width: int) -> Iterator[Row]:
    """Yield the rows in ``width`` columns. The last text of a row is wrapped, and goes on below in its own column."""
    for row in rows:
        *before, (text, style) = row.spans
        column = columns(before)
        if column + columns_of(text) <= width or width - column < _LEAST:
            yield row
            continue
        blank = len(text) - len(text.lstrip())
        first, *further = wrap(text.strip(), width - column - blank)
        yield Row(*before, (" " * blank + first, style))
        for line in further:
            yield Row((" " * (column + blank), style), (line, style))
