"""Rows of cells as lines with aligned columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from liverl_tui.text.wrapping import LEAST, wrap

_READABLE = 2  # times LEAST: columns in which a cell is still read as one


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


def aligned_in(rows: Sequence[Sequence[str]], width: int, right: Collection[int] = ()) -> Iterator[str]:
    """``aligned`` in ``width`` columns: the last cell of a row that is longer goes on below, in its own column; where
    that is hardly wide enough for a word, or a word of the cell would be cut in two there, below the row, indented."""
    *_, last = zip(*rows, strict=True)
    for line, cell in zip(aligned(rows, right), last, strict=True):
        before = len(line) - len(cell) if line.endswith(cell) else len(line)
        if len(line) <= width or not cell:
            yield line
        elif width - before >= max(_READABLE * LEAST, min(width - 4, max(map(len, cell.split())))):
            first, *further = wrap(cell, width - before)
            yield line[:before] + first
            yield from (" " * before + more for more in further)
        else:
            yield line[:before].rstrip()
            yield from ("    " + more for more in wrap(cell, width - 4))


def hanging(text: str, width: int) -> Iterator[str]:
    """A sentence in ``width`` columns, that goes on below two columns further right: a line that begins at the left is
    a new one."""
    first, *further = wrap(text, width)
    yield first
    if further:
        yield from ("  " + more for more in wrap(text[len(first) :].strip(), width - 2))
