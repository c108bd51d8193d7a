"""Bars and histories of a value as text, without styles and widgets."""

from __future__ import annotations

LEVELS = "▁▂▃▄▅▆▇"  # without the full block, which would join the lines of a table
PERIOD_S = 10.0  # seconds per character of a history: the interval at which the run's history is written
KEPT = 512  # periods that are kept: more than the columns of any terminal


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


class Sweep:
    """The history of one value, drawn like the screen of a heart monitor.

    A sample keeps its column, and a blank column follows the newest one. A history that shifts would change all of
    its characters with every sample; this one changes one, or two where a new period begins. One character is the
    mean over ``period`` seconds.
    """

    __slots__ = ("_newest", "_sums", "period")

    def __init__(self, period: float = PERIOD_S) -> None:
        self.period = period
        self._sums: dict[int, tuple[float, int]] = {}  # number of the period -> sum and count of its samples
        self._newest = 0

    def add(self, at: float, share: float | None) -> None:
        """Add a ratio 0..1 measured at ``at`` (seconds), in any order. None only moves the time on."""
        period = int(at // self.period)
        self._newest = max(self._newest, period)
        if share is None:
            return
        total, count = self._sums.get(period, (0.0, 0))
        self._sums[period] = (total + share, count + 1)
        if len(self._sums) > 2 * KEPT:
            self._sums = {p: s for p, s in self._sums.items() if p > self._newest - KEPT}

    def cells(self, width: int) -> str:
        """The newest ``width - 1`` periods and the blank column, in exactly ``width`` characters."""
        if width <= 0:
            return ""
        cells = [" "] * width
        for period in range(self._newest - width + 2, self._newest + 1):
            sample = self._sums.get(period)
            if sample is not None:
                cells[period % width] = level(sample[0] / sample[1])
        return "".join(cells)
