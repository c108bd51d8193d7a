"""Which charts are shown, and how: the state that the keys of the metrics screen change. No drawing, no files."""

from __future__ import annotations

from dataclasses import dataclass, field

from liverl.observe.metrics.series import Series, SeriesSet
from liverl_tui.widgets.metrics.chart import ChartStyle, Smoothed

WEIGHTS = (0.0, 0.6, 0.9, 0.99)  # of the moving average: the share of older values; 0 = no average
_LASTS = (10, 20, 50)  # numbers of steps to zoom to; also these times a power of ten


@dataclass
class Charts:
    """The charts of a run and the user's choices. A chart is named by the key of its metric."""

    series: SeriesSet = field(default_factory=SeriesSet)
    chosen: list[str] | None = None  # charts, once the user has added or removed one; None = default charts
    selected: int = 0  # index into ``keys``
    maximised: bool = False  # only the selected chart is shown
    log: set[str] = field(default_factory=set)  # charts with a logarithmic value axis
    last: int | None = None  # number of newest steps that are shown; None = all
    weight: float = 0.0  # of the moving average, one of WEIGHTS
    cursor: int | None = None  # the step at which values are read off; None = no cursor
    total: int | None = None  # steps of the whole run, if known
    ended: bool = False  # no step will follow
    _smoothed: dict[str, Smoothed] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """The charts that are shown, in order: the user's choice, else the default ones of what the run writes."""
        return self.chosen if self.chosen is not None else list(self.series.default_charts())

    @property
    def key(self) -> str | None:
        """The selected chart; None if there is none. Moves ``selected`` into the list if charts were removed."""
        keys = self.keys
        if not keys:
            return None
        self.selected = max(0, min(self.selected, len(keys) - 1))
        return keys[self.selected]

    def points(self, key: str) -> Series:
        """Return the series of ``key``; an empty one if the run has not written it."""
        return self.series.series.get(key) or Series()

    def style(self, key: str) -> ChartStyle:
        """Return how the chart ``key`` is drawn; its colour follows from its place in ``keys``.

        Raises:
            ValueError: ``key`` is not in ``keys``.
        """
        return ChartStyle(
            log=key in self.log,
            last=self.last,
            cursor=self.cursor,
            total=self.total,
            ended=self.ended,
            style=f"chart{self.keys.index(key) % 6 + 1}",
        )

    def smoothed(self, key: str) -> Smoothed | None:
        """Return the moving average of ``key`` up to its newest point; None if no average is to be shown."""
        if not self.weight:
            return None
        average = self._smoothed.get(key)
        if average is None or average.weight != self.weight:
            average = self._smoothed[key] = Smoothed(self.weight)
        points = self.points(key)
        return average.update(points, points.rewrites)

    def reading(self, key: str) -> tuple[int, float] | None:
        """Return the (step, value) that the title shows: the newest, or with a cursor the newest at or before it;
        None if there is none."""
        points = self.points(key)
        if self.cursor is not None:
            return points.at(self.cursor)
        return (points.steps[-1], points.values[-1]) if points.steps else None

    # -- actions of the keys

    def move(self, by: int) -> None:
        """Select the chart ``by`` places further, at most the first or last one."""
        self.selected = max(0, min(len(self.keys) - 1, self.selected + by))

    def pin(self, key: str) -> None:
        """Select the chart ``key``; add it after the others if it is not shown yet."""
        if key not in self.keys:
            self.chosen = [*self.keys, key]
        self.selected = self.keys.index(key)

    def remove(self) -> None:
        """Remove the selected chart, and show the others."""
        key = self.key
        if key is not None:
            self.chosen = [k for k in self.keys if k != key]
            self.maximised = False

    def toggle_log(self) -> None:
        """Switch the value axis of the selected chart between linear and logarithmic."""
        if self.key is not None:
            self.log ^= {self.key}

    def zoom(self, by: int) -> None:
        """Show fewer of the newest steps (``by`` > 0) or more (``by`` < 0): 10, 20, 50, 100 ... or all."""
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
        """Use the next of ``WEIGHTS``; after the last, none."""
        self.weight = WEIGHTS[(WEIGHTS.index(self.weight) + 1) % len(WEIGHTS)]

    def toggle_cursor(self) -> None:
        """Show the cursor at the newest point of the selected chart, or hide it. Without points it stays hidden."""
        points = self.points(self.key) if self.key is not None else None
        self.cursor = points.steps[-1] if self.cursor is None and points and points.steps else None

    def move_cursor(self, by: int) -> None:
        """Move the cursor by ``by`` points of the selected chart. Without a cursor, show it at the newest point."""
        key = self.key
        if key is None:
            return
        if self.cursor is None:
            self.toggle_cursor()
            return
        self.cursor = self.points(key).nearest(self.cursor, by)
