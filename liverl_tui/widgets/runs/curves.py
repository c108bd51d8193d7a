"""The charts of several runs, each run a line of every chart; over steps or over the time that training took."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.observe.metrics.series import Series
from liverl_tui.text.comparison import LETTERS, parting_words, title_partings
from liverl_tui.text.words import age, cut, one_line
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.pane import Pane
from liverl_tui.widgets.metrics.axes import number, time_ticks
from liverl_tui.widgets.metrics.chart import Line, overlay
from liverl_tui.widgets.metrics.grid import beside, exactly, places, side_by_side

if TYPE_CHECKING:
    from liverl.offline.compare import Comparison, Curve

NARROWEST, LEAST, MOST = 60, 8, 4  # columns and rows of a chart, its title included; charts side by side
STYLES = tuple(f"chart{number}" for number in range(1, 7))  # of the runs, as their letters


class _OverTime:
    """The values of a series over seconds of training instead of steps."""

    def __init__(self, points: Series, seconds: Series) -> None:
        self.steps: Sequence[int] = array("q")
        self.values: Sequence[float] = array("d")
        known = dict(zip(seconds.steps, seconds.values, strict=True))
        for step, value in zip(points.steps, points.values, strict=True):
            if step not in known:
                continue
            at = round(known[step])
            if self.steps and at <= self.steps[-1]:  # several steps in one second: the newest one is drawn
                self.values[-1] = value
            else:
                self.steps.append(at)
                self.values.append(value)


class CurvesPane(Pane):
    """Draws the curves of ``take``: as many charts as fit, the selected one among them."""

    title = "Curves"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._comparison: Comparison | None = None
        self._series: Sequence[Mapping[str, Series]] = ()
        self._seconds: Sequence[Series | None] = ()
        self._selected = 0
        self._top = 0
        self._per_line = 1
        self.alone = False  # only the selected chart is shown
        self.over_time = False
        self._log: set[str] = set()
        self._pictures: dict[str, tuple[object, list[list[Span]]]] = {}
        self.words = "reading the runs ..."
        self.why = ""  # which run was chosen for the user, as a phrase

    def take(
        self,
        comparison: Comparison,
        series: Sequence[Mapping[str, Series]],
        seconds: Sequence[Series | None],
    ) -> None:
        """Show these runs. ``series``: of each run, by key; ``seconds``: see ``offline.compare.seconds_of``."""
        self._comparison, self._series, self._seconds = comparison, series, seconds
        self.words = "" if comparison.curves else "no metric is reported by two of them"
        self._pictures.clear()
        self.update()

    @property
    def curves(self) -> Sequence[Curve]:
        """The metrics that are drawn, in their order."""
        return self._comparison.curves if self._comparison is not None else ()

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title, a line that says which letter is which run, and the charts."""
        curves = self.curves
        facts = "over the time that training took" if self.over_time else "over steps"
        facts = f"{self.why} · {facts}" if self.why else facts
        if self._comparison is None or not curves:
            return [self.title_row(width, self.why), Row((f" {self.words}", "dim"))]
        rows = [self.title_row(width, facts), *self._legend(width)]
        room = height - len(rows)
        across = 1 if self.alone else side_by_side(len(curves), max(1, min(MOST, width // NARROWEST)))
        down = 1 if self.alone else max(1, min(room // LEAST, -(-len(curves) // across)))
        self._per_line = across
        self._selected = max(0, min(self._selected, len(curves) - 1))
        line = self._selected // across
        self._top = max(0, min(self._top, line), line - down + 1)
        shown = curves[self._top * across : (self._top + down) * across]
        if self.alone:
            shown = curves[self._selected : self._selected + 1]
        for begin in range(0, len(shown), across):
            charts, number_ = shown[begin : begin + across], begin // across
            tall = room // down + (number_ < room % down)
            sizes = places(width, len(charts))
            blocks = [self._chart(curve, wide, tall) for curve, (_, wide) in zip(charts, sizes, strict=True)]
            rows += [Row(*spans) for spans in beside(blocks)]
        if len(shown) < len(curves):
            rows[0] = self.title_row(
                width,
                f"{facts}  chart {curves.index(shown[0]) + 1}-{curves.index(shown[-1]) + 1} of {len(curves)}",
            )
        return rows

    def _legend(self, width: int) -> list[Row]:
        assert self._comparison is not None
        runs = self._comparison.runs
        room = max(6, width // len(runs) - 4)
        row = Row()
        for letter, style, run in zip(LETTERS, STYLES, runs, strict=False):
            row.add(f" {letter} ", style).add(cut(one_line(Path(run.run_dir).name), room), "text").add(" ")
        return [row]

    def _chart(self, curve: Curve, width: int, height: int) -> list[list[Span]]:
        state = (width, height, self.over_time, curve.name in self._log)
        entry = self._pictures.get(curve.name)
        if entry is None or entry[0] != state:
            log, lines = curve.name in self._log, self._lines(curve)
            drawn = (
                overlay(lines, width, height - 1, log=log, words=age, places=time_ticks)
                if self.over_time
                else overlay(lines, width, height - 1, log=log)
            )
            entry = self._pictures[curve.name] = (state, drawn)
        return [self._title(curve, width), *entry[1]]

    def _title(self, curve: Curve, width: int) -> list[Span]:
        selected = self.curves.index(curve) == self._selected
        mark = "▸" if selected else " "
        spans: list[Span] = [(f"{mark}{curve.name}", "title_focus" if selected else "strong")]
        if curve.name in self._log:
            spans.append(("  log", "info"))
        for letter, style, key, series in zip(LETTERS, STYLES, curve.keys, self._series, strict=False):
            if key is not None and series[key].values:
                spans.append((f"  {letter} {number(series[key].values[-1])}", style))
        room = width - sum(len(text) for text, _ in spans)
        told = next((words for words in title_partings(curve.partings) if len(words) <= room), "")
        return exactly([*spans, (told, "dim")], width)

    def _lines(self, curve: Curve) -> list[Line]:
        lines = []
        for letter, style, key, series, seconds in zip(
            LETTERS, STYLES, curve.keys, self._series, self._seconds, strict=False
        ):
            if key is None:
                continue
            if not self.over_time:
                lines.append(Line(series[key], style, letter))
            elif seconds is not None:
                lines.append(Line(_OverTime(series[key], seconds), style, letter))
        return lines

    # -- keys

    def action_select(self, across: int, down: int) -> None:
        """Select the chart ``across`` columns and ``down`` rows away."""
        self._selected = max(0, min(len(self.curves) - 1, self._selected + across + down * self._per_line))
        self.update()

    def action_alone(self) -> None:
        """Show the selected chart alone, or all charts again."""
        self.alone = not self.alone and bool(self.curves)
        self.update()

    def action_axis(self) -> None:
        """Draw over the time that training took instead of over steps, or back."""
        self.over_time = not self.over_time
        self.update()

    def action_log_scale(self) -> None:
        """Switch the value axis of the selected chart between linear and logarithmic."""
        if self.curves:
            self._log ^= {self.curves[self._selected].name}
            self.update()

    def copy_line(self) -> str:
        """The selected metric, and where the others leave the first run."""
        if not self.curves:
            return ""
        curve = self.curves[self._selected]
        told = [
            f"{letter} {parting_words(found)}"
            for letter, found in zip(LETTERS[1:], curve.partings, strict=False)
            if found is not None
        ]
        return f"{curve.name}: {'; '.join(told)}"
