"""Metrics as line charts in one SVG that needs nothing else: no font of its own, no script. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from liverl.observe.metrics.series import Series, SeriesSet, chart_name
from liverl.util.visible import visible

WIDTH, HEIGHT = 420, 190  # of one chart, in pixels
COLUMNS = 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 14, 30, 24
_POINTS = 2 * WIDTH  # more are not seen: the lowest and the highest of each stretch are drawn
_LINE = 18  # pixels of a line of the legend
# Of runs, for every kind of sight: https://jfly.uni-koeln.de/color/ (Okabe and Ito), the first one darker.
_COLOURS = ("#0b62b8", "#d55e00", "#009e73", "#cc79a7", "#a07800", "#444444")
# The first that is there: a converter without fontconfig draws no text in a family that it lacks.
FONTS = "'DejaVu Sans', 'Liberation Sans', 'Noto Sans', 'Segoe UI', Helvetica, Arial, sans-serif"
_STYLE = (
    f"text{{font:12px {FONTS};fill:#333}}.t{{font-weight:bold}}.a{{fill:#666;font-size:11px}}"
    ".l{fill:none;stroke-width:1.6;stroke-linejoin:round}.g{stroke:#ddd;stroke-width:1}"
    ".b{fill:#fff}.n{fill:#c01f2e}"
    + "".join(f".s{n}{{stroke:{c}}}.f{n}{{fill:{c}}}" for n, c in enumerate(_COLOURS))
)


def charts(series: SeriesSet, keys: Sequence[str], title: str = "") -> str:
    """An SVG with a chart for each of ``keys`` over the steps, two beside each other. ``title``: above them, may be
    empty. A step whose value is not finite is a red mark at the bottom."""
    heading = f'<text class="t" x="12" y="19">{_text(title)}</text>' if title else ""
    drawn = ["".join(_chart([(0, series.series[key])], _title(key))) for key in keys]
    return _page(drawn, heading, 28 if title else 0)


def overlaid(names: Sequence[str], curves: Sequence[tuple[str, Sequence[Series | None]]]) -> str:
    """An SVG with a chart for each of ``curves`` (its title, and the series of each run, None: not reported), in which
    all runs are drawn over their steps. ``names``: of the runs, in the legend."""
    legend = [
        f'<rect class="f{n}" x="12" y="{10 + _LINE * n}" width="14" height="4"/>'
        f'<text x="34" y="{17 + _LINE * n}">{_text(name)}</text>'
        for n, name in enumerate(names)
    ]
    drawn = [
        "".join(_chart([(n, one) for n, one in enumerate(series) if one is not None and one.steps], title))
        for title, series in curves
    ]
    return _page(drawn, "".join(legend), 10 + _LINE * len(names))


def compared(
    names: Sequence[str],
    curves: Sequence[tuple[str, Sequence[str | None]]],
    series: Sequence[Mapping[str, Series]],
) -> str:
    """``overlaid`` of runs. ``curves``: a metric, and the key that each run has it under; ``series``: of each run."""
    return overlaid(
        names,
        [
            (name, [None if key is None else one.get(key) for key, one in zip(keys, series, strict=True)])
            for name, keys in curves
        ],
    )


def _page(drawn: Sequence[str], heading: str, head: int) -> str:
    rows = math.ceil(len(drawn) / COLUMNS)
    width, height = WIDTH * min(COLUMNS, max(1, len(drawn))), head + HEIGHT * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><style>{_STYLE}</style><rect class="b" width="{width}" height="{height}"/>'
    ]
    parts.append(heading)
    for number, chart in enumerate(drawn):
        x, y = WIDTH * (number % COLUMNS), head + HEIGHT * (number // COLUMNS)
        parts.append(f'<g transform="translate({x} {y})">{chart}</g>')
    return "".join([*parts, "</svg>\n"])


def _title(key: str) -> str:
    name = chart_name(key)
    return f"{name}: {key}" if name else key


def _chart(curves: Sequence[tuple[int, Series]], title: str) -> Iterator[str]:
    """One chart. ``curves``: (number of its colour, its points) of each curve."""
    yield f'<text class="t" x="12" y="18">{_text(title)}</text>'
    points = [
        [(s, v) for s, v in zip(one.steps, one.values, strict=True) if math.isfinite(v)] for _, one in curves
    ]
    if not curves:
        return
    first, last = min(one.steps[0] for _, one in curves), max(one.steps[-1] for _, one in curves)
    low, high = _range([value for finite in points for _, value in finite])

    def across(step: int) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * ((step - first) / (last - first) if last > first else 0.5)

    def down(value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - (value - low) / (high - low))

    for value in (low, (low + high) / 2, high):
        at = down(value)
        yield f'<line class="g" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="a" text-anchor="end" x="{_LEFT - 6}" y="{at + 4:.1f}">{value:.3g}</text>'
    ends = ((first, "start"), (last, "end")) if last > first else ((first, "middle"),)
    for step, anchor in ends:
        label = f"step {step}" if step == first else str(step)
        yield f'<text class="a" text-anchor="{anchor}" x="{across(step):.1f}" y="{HEIGHT - 7}">{label}</text>'
    for (number, one), finite in zip(curves, points, strict=True):
        if len(finite) == 1:
            x, y = across(finite[0][0]), down(finite[0][1])
            yield f'<circle class="f{number}" r="3" cx="{x:.1f}" cy="{y:.1f}"/>'
        elif finite:
            line = " ".join(f"{across(step):.1f},{down(value):.1f}" for step, value in _thinned(finite))
            yield f'<polyline class="l s{number}" points="{line}"/>'
        for step, value in zip(one.steps, one.values, strict=True):
            if not math.isfinite(value):
                x = across(step) - 1
                yield f'<rect class="n" x="{x:.1f}" y="{HEIGHT - _BOTTOM}" width="3" height="5"/>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the axis: those of the values, and a little room where they are all the same."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = abs(low) / 10 or 1.0
        return low - room, high + room
    return low, high


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most ``_POINTS`` of them, or so: of each stretch the lowest and the highest, in their order."""
    if len(points) <= _POINTS:
        return list(points)
    stretches = _POINTS // 2
    kept: list[tuple[int, float]] = []
    for number in range(stretches):
        part = points[number * len(points) // stretches : (number + 1) * len(points) // stretches]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept


def _text(text: str) -> str:
    return escape(visible(text))
