"""Bars and histories as text. No styles, no widgets."""

from __future__ import annotations

LEVELS = "▁▂▃▄▅▆▇"  # not the full block: the lines of a table would grow together
PERIOD_S = 10.0  # seconds that one place of a history stands for: as often as the run's history is written
KEPT = 512  # places that are remembered, wider than any terminal


def level(share: float | None) -> str:
    """A share 0..1 as one character; a blank where it is not known."""
    if share is None:
        return " "
    return LEVELS[min(len(LEVELS) - 1, max(0, int(share * len(LEVELS))))]


def bar(share: float | None, width: int) -> tuple[str, str]:
    """(filled part, rest) of a bar of ``width`` columns. They differ in shape, not only by their styles."""
    if share is None or width <= 0:
        return "", " " * max(0, width)
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return filled, "─" * (width - len(filled))


class Sweep:
    """The history of one value, drawn like the screen of a heart monitor.

    A sample keeps its place on the screen and an empty place runs ahead of the newest one. A history that
    shifts would change all of its characters with every sample; this one changes one, or two where a new place
    begins. One place is the mean of ``period`` seconds.
    """

    __slots__ = ("_newest", "_sums", "period")

    def __init__(self, period: float = PERIOD_S) -> None:
        self.period = period
        self._sums: dict[int, tuple[float, int]] = {}  # place on the endless line of time -> sum and count
        self._newest = 0

    def add(self, at: float, share: float | None) -> None:
        """A sample of 0..1, taken at ``at`` (seconds); in any order. None: it was not known then."""
        place = int(at // self.period)
        self._newest = max(self._newest, place)
        if share is None:
            return
        total, count = self._sums.get(place, (0.0, 0))
        self._sums[place] = (total + share, count + 1)
        if len(self._sums) > 2 * KEPT:
            self._sums = {p: s for p, s in self._sums.items() if p > self._newest - KEPT}

    def cells(self, width: int) -> str:
        """The newest ``width - 1`` places and the gap, in exactly ``width`` characters."""
        if width <= 0:
            return ""
        cells = [" "] * width
        for place in range(self._newest - width + 2, self._newest + 1):
            known = self._sums.get(place)
            if known is not None:
                cells[place % width] = level(known[0] / known[1])
        return "".join(cells)
