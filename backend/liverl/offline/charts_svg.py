"""Metrics as line charts in one SVG that needs nothing else: no font of its own, no script. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from liverl.observe.metrics.series import Series, SeriesSet, chart_name
from liverl.util.visible import visible

WIDTH, HEIGHT = 420, 190  # of one chart, in pixels
COLUMNS = 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 14, 30, 24
_POINTS = 2 * WIDTH  # more are not seen: the lowest and the highest of each stretch are drawn
# The first that is there: a converter without fontconfig draws no text in a family that it lacks.
FONTS = "'DejaVu Sans', 'Liberation Sans', 'Noto Sans', 'Segoe UI', Helvetica, Arial, sans-serif"
_STYLE = (
    f"text{{font:12px {FONTS};fill:#333}}.t{{font-weight:bold}}.a{{fill:#666;font-size:11px}}"
    ".l{fill:none;stroke:#0b62b8;stroke-width:1.6;stroke-linejoin:round}.g{stroke:#ddd;stroke-width:1}"
    ".d{fill:#0b62b8}.b{fill:#fff}.n{fill:#c01f2e}"
)


def charts(series: SeriesSet, keys: Sequence[str], title: str = "") -> str:
    """An SVG with a chart for each of ``keys`` over the steps, two beside each other. ``title``: above them, may be
    empty. A step whose value is not finite is a red mark at the bottom."""
    head = 28 if title else 0
    rows = math.ceil(len(keys) / COLUMNS)
    width, height = WIDTH * min(COLUMNS, max(1, len(keys))), head + HEIGHT * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><style>{_STYLE}</style><rect class="b" width="{width}" height="{height}"/>'
    ]
    if title:
        parts.append(f'<text class="t" x="12" y="19">{_text(title)}</text>')
    for number, key in enumerate(keys):
        x, y = WIDTH * (number % COLUMNS), head + HEIGHT * (number // COLUMNS)
        drawn = "".join(_chart(series.series[key], key))
        parts.append(f'<g transform="translate({x} {y})">{drawn}</g>')
    return "".join([*parts, "</svg>\n"])


def _chart(points: Series, key: str) -> list[str]:
    name = chart_name(key)
    title = f"{name}: {key}" if name else key
    parts = [f'<text class="t" x="12" y="18">{_text(title)}</text>']
    finite = [(s, v) for s, v in zip(points.steps, points.values, strict=True) if math.isfinite(v)]
    first, last = points.steps[0], points.steps[-1]
    low, high = _range([value for _, value in finite])

    def across(step: int) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * ((step - first) / (last - first) if last > first else 0.5)

    def down(value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - (value - low) / (high - low))

    for value in (low, (low + high) / 2, high):
        at = down(value)
        parts.append(f'<line class="g" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="a" text-anchor="end" x="{_LEFT - 6}" y="{at + 4:.1f}">{value:.3g}</text>')
    ends = ((first, "start"), (last, "end")) if last > first else ((first, "middle"),)
    for step, anchor in ends:
        label = f"step {step}" if step == first else str(step)
        parts.append(
            f'<text class="a" text-anchor="{anchor}" x="{across(step):.1f}" y="{HEIGHT - 7}">{label}</text>'
        )
    if len(finite) == 1:
        parts.append(
            f'<circle class="d" r="3" cx="{across(finite[0][0]):.1f}" cy="{down(finite[0][1]):.1f}"/>'
        )
    elif finite:
        line = " ".join(f"{across(step):.1f},{down(value):.1f}" for step, value in _thinned(finite))
        parts.append(f'<polyline class="l" points="{line}"/>')
    for step, value in zip(points.steps, points.values, strict=True):
        if not math.isfinite(value):
            parts.append(
                f'<rect class="n" x="{across(step) - 1:.1f}" y="{HEIGHT - _BOTTOM}" width="3" height="5"/>'
            )
    return parts


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
