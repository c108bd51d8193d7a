"""Rows of cells as lines with aligned columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = (), gap: str = "  ") -> Iterator[str]:
    """A line for each row, the head among them, without spaces at its end. ``right``: the columns, from 0, whose cells
    end at the same place; ``gap``: between two columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield gap.join(cells).rstrip()
