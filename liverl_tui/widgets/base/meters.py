"""Bars and histories of a value as text, without styles and widgets."""

from __future__ import annotations

LEVELS = "▁▂▃▄▅▆▇"  # without the full block, which would join the lines of a table
SPAN_S = 900.0  # seconds that a history shows
BIN_S = 5.0  # seconds: the lengths of time for which samples are kept apart
# Columns of a history. Each shows the same span, so a column is 15 to 90 seconds: never less than the interval at
# which the run's history is written, which would leave blanks.
WIDTHS = (60, 45, 30, 20, 15, 10)


def level(share: float | None) -> str:
    """A ratio 0..1 as one character; a blank for None."""
    if share is None:
        return " "
    return LEVELS[min(len(LEVELS) - 1, max(0, int(share * len(LEVELS))))]


def bar(share: float | None, width: int) -> tuple[str, str]:
    """(filled part, rest) of a bar of ``width`` columns for a ratio 0..1. They differ in shape, not only in style. For
    None the bar is blank."""
    if share is None or width <= 0:
        return "", " " * max(0, width)
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return filled, "─" * (width - len(filled))


class History:
    """The values of the last ``SPAN_S`` seconds, one character for each equal part of them; time runs to the right.

    A character is the mean over its part of the time, which begins at a whole multiple of its length. So all
    histories of the same width move at the same moment, by one column, and only once in that length of time: a
    history that moved with each sample would send all of its characters with each sample.
    """

    __slots__ = ("_columns", "_sums")

    def __init__(self) -> None:
        # number of the bin of BIN_S -> sum and count of its samples
        self._sums: dict[int, tuple[float, int]] = {}
        # bins of a column -> number of a column of the last such drawing -> its character, until a sample comes. A
        # table is fitted in several widths before one of them is drawn.
        self._columns: dict[int, dict[int, str]] = {}

    def add(self, at: float, share: float | None) -> None:
        """Add a ratio 0..1 measured at ``at`` (seconds), in any order; None is no sample."""
        if share is None:
            return
        number = int(at // BIN_S)
        for bins, columns in self._columns.items():
            columns.pop(number // bins, None)
        total, count = self._sums.get(number, (0.0, 0))
        self._sums[number] = (total + share, count + 1)
        if len(self._sums) > 4 * SPAN_S / BIN_S:
            newest = max(self._sums)
            self._sums = {n: s for n, s in self._sums.items() if n > newest - 2 * SPAN_S / BIN_S}
            self._columns.clear()

    def cells(self, width: int, end: float) -> str:
        """The history up to ``end`` (seconds) in exactly ``width`` columns, ``end`` in the last one. ``width``: one of
        ``WIDTHS``, or 0 for nothing; parts without a sample are blank."""
        if not width:
            return ""
        bins = int(SPAN_S / BIN_S) // width
        last = int(end // BIN_S) // bins
        before = self._columns.get(bins, {})
        columns = self._columns[bins] = {
            n: before.get(n) or level(self._mean(n * bins, bins)) for n in range(last - width + 1, last + 1)
        }
        return "".join(columns.values())

    def _mean(self, first: int, bins: int) -> float | None:
        """The mean of the samples in ``bins`` bins from ``first`` on; None without any."""
        found = [s for n in range(first, first + bins) if (s := self._sums.get(n)) is not None]
        return sum(total for total, _ in found) / sum(count for _, count in found) if found else None


def history_head(width: int, ended: str = "") -> str:
    """The head of a column of histories: its span on the left, the end of its time on the right. ``ended``: when the
    run ended, such as ``14:03``; empty while it runs."""
    span = f"history {SPAN_S / 60:.0f}m" if width > 10 else f"{SPAN_S / 60:.0f}m"
    end = (f"end {ended}" if width >= len(span) + len(ended) + 6 else "end") if ended else "now"
    return span + end.rjust(width - len(span)) if width > len(span) + len(end) else span


def history_width(room: int) -> int:
    """The columns that a history of ``SPAN_S`` takes in ``room`` columns; 0 if there are too few."""
    return next((width for width in WIDTHS if width <= room), 0)
