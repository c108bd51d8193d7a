"""Lanes of a time axis as text: spans, loads and stacked bars. Pure.

What a span is shows in its character and not only in its colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from liverl_tui.text.words import age
from liverl_tui.widgets.base.cells import Span
from liverl_tui.widgets.base.meters import level
from liverl_tui.widgets.metrics.axes import time_ticks


class Look(NamedTuple):
    """How a part or a wait is drawn, and what it is called."""

    glyph: str
    style: str
    word: str


# Of the parts of a step, and of what its trials do: no two of them look alike, as both stand in one picture.
LOOKS: dict[str, Look] = {
    "generate": Look("▬", "chart1", "generate"),
    "reward": Look("◆", "chart3", "reward"),
    "log_probs": Look("▪", "chart4", "log-probs"),
    "update": Look("═", "chart2", "update"),
    "weights": Look("≡", "chart5", "weights"),
    "checkpoint": Look("■", "chart6", "checkpoint"),
    "validation": Look("□", "chart6", "validation"),
    "other": Look("┄", "dim", "other"),
    "queue": Look("·", "dim", "queue"),
    "sandbox": Look("▒", "chart4", "sandbox"),
    "model": Look("█", "chart1", "model"),
    "tool": Look("░", "chart3", "tool"),
    "verifier": Look("▼", "chart2", "verifier"),
    "agent": Look("▓", "chart5", "agent"),
}
PARTS = ("generate", "reward", "log_probs", "update", "weights", "checkpoint", "validation", "other")
WAITS = ("queue", "sandbox", "model", "tool", "verifier", "agent", "reward")


def look(what: str) -> Look:
    """How ``what`` is drawn; something unknown has its own name."""
    return LOOKS.get(what) or Look("?", "text", what.replace("_", " "))


def cells_of(
    spans: Iterable[tuple[str, float, float]], begin: float, end: float, width: int
) -> list[str | None]:
    """For each of ``width`` columns from ``begin`` to ``end`` what takes most of its time; None: nothing does."""
    scale = width / (end - begin)
    shares: list[dict[str, float]] = [{} for _ in range(width)]
    for what, first, last in spans:
        left, right = (first - begin) * scale, (last - begin) * scale
        for column in range(max(0, int(left)), min(width, int(right) + 1)):
            share = min(right, column + 1) - max(left, column)
            if share > 0:
                shares[column][what] = shares[column].get(what, 0.0) + share
    return [max(found, key=lambda what: found[what]) if found else None for found in shares]


def span_lane(spans: Iterable[tuple[str, float, float]], begin: float, end: float, width: int) -> list[Span]:
    """A lane of spans (what, begin, end); a span that is shorter than half a column may not be seen."""
    return _joined(
        (" ", "text") if what is None else (look(what).glyph, look(what).style)
        for what in cells_of(spans, begin, end, width)
    )


def load_lane(
    calls: Sequence[tuple[float, float]], begin: float, end: float, width: int, most: float
) -> list[Span]:
    """How many of ``calls`` were in flight on average in each column, relative to ``most``."""
    scale = width / (end - begin)
    sums = [0.0] * width
    for first, last in calls:
        left, right = (first - begin) * scale, (last - begin) * scale
        for column in range(max(0, int(left)), min(width, int(right) + 1)):
            sums[column] += max(0.0, min(right, column + 1) - max(left, column))
    return _joined((level(one / most if most else 0.0) if one > 0.01 else " ", "chart1") for one in sums)


def most_at_once(lanes: Iterable[Sequence[tuple[float, float]]]) -> float:
    """The largest number of calls of one lane that are in flight at once."""
    most = 0
    for calls in lanes:
        now = 0
        for _, by in sorted([(first, 1) for first, _ in calls] + [(last, -1) for _, last in calls]):
            now += by
            most = max(most, now)
    return float(most)


def share_lane(
    samples: Sequence[tuple[float, float]], begin: float, end: float, width: int, reach: float
) -> list[Span]:
    """A value 0..1 at some moments: each column shows the one that is nearest, if it is within ``reach`` seconds."""
    found: list[Span] = []
    for column in range(width):
        at = begin + (column + 0.5) * (end - begin) / width
        near = min(samples, key=lambda sample: abs(sample[0] - at), default=None)
        known = near is not None and abs(near[0] - at) <= max(reach, (end - begin) / width)
        found.append((level(near[1]) if known and near is not None else " ", "chart3"))
    return _joined(found)


def stacked(seconds: Mapping[str, float], longest: float, width: int) -> list[Span]:
    """Parts side by side, ``width`` columns for ``longest`` seconds, padded to ``width``."""
    spans, at = [], 0.0
    for part in (*PARTS, *(part for part in seconds if part not in PARTS)):
        if part in seconds:
            spans.append((part, at, at + seconds[part]))
            at += seconds[part]
    return span_lane(spans, 0.0, longest, width) if longest > 0 else [(" " * width, "text")]


def axis(begin: float, end: float, width: int) -> str:
    """Round times since ``begin`` above a lane of ``width`` columns."""
    line = [" "] * width
    total = end - begin
    last = seconds_word(total)
    line[:2] = "0s"[:width]
    taken, stop = 2, width - len(last)
    if stop > 4:
        line[stop:] = last
    for tick in time_ticks(0.0, total, max(1, width // 16)):
        word = age(tick) if total >= 600 else seconds_word(tick)  # as ``last``: minutes, or seconds
        at = round(tick / total * width)
        if taken + 1 <= at and at + len(word) + 1 <= stop:
            line[at : at + len(word)] = word
            taken = at + len(word)
    return "".join(line[:width])


def seconds_word(seconds: float) -> str:
    """A span of time in at most six columns: ``<0.1s``, ``0.4s``, ``62s``, ``12m``, ``3h05m``."""
    if 0 < seconds < 0.05:
        return "<0.1s"  # not none
    if seconds < 9.95:
        return f"{seconds:.1f}s".replace(".0s", "s")
    return f"{seconds:.0f}s" if seconds < 600 else age(seconds)


def legend(names: Iterable[str], width: int) -> list[list[Span]]:
    """What each character means, each once, in as many rows of ``width`` columns as that takes."""
    rows: list[list[Span]] = [[]]
    used = 0
    for name in dict.fromkeys(names):
        shown = look(name)
        size = len(shown.word) + 4
        if rows[-1] and used + size > width:
            rows.append([])
            used = 0
        rows[-1] += [(f" {shown.glyph}", shown.style), (f" {shown.word} ", "dim")]
        used += size
    return rows


def _joined(cells: Iterable[Span]) -> list[Span]:
    spans: list[Span] = []
    for text, style in cells:
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
    return spans
