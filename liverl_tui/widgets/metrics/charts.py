"""Which charts are shown, and how: what the keys of the metrics screen change. No drawing, no files."""

from __future__ import annotations

from dataclasses import dataclass, field

from liverl.observe.metrics.series import Series, SeriesSet
from liverl_tui.widgets.metrics.chart import ChartStyle, Smoothed

WEIGHTS = (0.0, 0.6, 0.9, 0.99)  # of the moving average: how much of it is the past
_LASTS = (10, 20, 50)


@dataclass
class Charts:
    """Until the user adds or removes one, the charts are the default ones of what the run writes."""

    series: SeriesSet = field(default_factory=SeriesSet)
    chosen: list[str] | None = None
    selected: int = 0
    maximised: bool = False
    log: set[str] = field(default_factory=set)
    last: int | None = None  # newest steps that are shown; None = all
    weight: float = 0.0
    cursor: int | None = None  # the step that is read off
    total: int | None = None
    ended: bool = False
    _smoothed: dict[str, Smoothed] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return self.chosen if self.chosen is not None else list(self.series.default_charts())

    @property
    def key(self) -> str | None:
        """The selected one."""
        keys = self.keys
        if not keys:
            return None
        self.selected = max(0, min(self.selected, len(keys) - 1))
        return keys[self.selected]

    def points(self, key: str) -> Series:
        return self.series.series.get(key) or Series()

    def look(self, key: str) -> ChartStyle:
        return ChartStyle(
            log=key in self.log,
            last=self.last,
            cursor=self.cursor,
            total=self.total,
            ended=self.ended,
            style=f"chart{self.keys.index(key) % 6 + 1}",
        )

    def smoothed(self, key: str) -> Smoothed | None:
        if not self.weight:
            return None
        known = self._smoothed.get(key)
        if known is None or known.weight != self.weight:
            known = self._smoothed[key] = Smoothed(self.weight)
        points = self.points(key)
        return known.update(points, points.rewrites)

    def reading(self, key: str) -> tuple[int, float] | None:
        """(step, value) to be read off: at the cursor, else the newest."""
        points = self.points(key)
        if self.cursor is not None:
            return points.at(self.cursor)
        return (points.steps[-1], points.values[-1]) if points.steps else None

    # -- what keys do

    def move(self, by: int) -> None:
        self.selected = max(0, min(len(self.keys) - 1, self.selected + by))

    def pin(self, key: str) -> None:
        """Show ``key``, and select it."""
        if key not in self.keys:
            self.chosen = [*self.keys, key]
        self.selected = self.keys.index(key)

    def remove(self) -> None:
        key = self.key
        if key is not None:
            self.chosen = [k for k in self.keys if k != key]
            self.maximised = False

    def toggle_log(self) -> None:
        if self.key is not None:
            self.log ^= {self.key}

    def zoom(self, by: int) -> None:
        """Fewer steps (positive) or more."""
        first, newest = self.series.first, self.series.last
        if first is None or newest is None:
            return
        count = newest - first + 1
        sizes = [n * 10**power for power in range(12) for n in _LASTS if n * 10**power < count]
        now = self.last if self.last is not None and self.last < count else count
        if by > 0:
            smaller = [n for n in sizes if n < now]
            self.last = smaller[-1] if smaller else self.last
        else:
            self.last = next((n for n in sizes if n > now), None)

    def cycle_weight(self) -> None:
        self.weight = WEIGHTS[(WEIGHTS.index(self.weight) + 1) % len(WEIGHTS)]

    def toggle_cursor(self) -> None:
        points = self.points(self.key) if self.key is not None else None
        self.cursor = points.steps[-1] if self.cursor is None and points and points.steps else None

    def move_cursor(self, by: int) -> None:
        """By so many points of the selected chart."""
        key = self.key
        if key is None:
            return
        if self.cursor is None:
            self.toggle_cursor()
            return
        self.cursor = self.points(key).nearest(self.cursor, by)
