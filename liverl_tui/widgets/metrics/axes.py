"""Axes of charts: bounds and labels that are round numbers and seldom change while a series grows. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

COLUMNS = 7  # of the terminal: the widest number at an axis
SPANS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)  # round numbers of steps; also these times a power of ten


def round_span(count: int) -> int:
    """Return the smallest round number of steps that is at least ``count``."""
    factor = 1
    while True:
        for span in SPANS:
            if span * factor >= count:
                return span * factor
        factor *= 10


def step_window(
    first: int, newest: int, *, last: int | None = None, total: int | None = None, ended: bool = False
) -> tuple[int, int]:
    """Return (first step, number of steps) of the step axis for a series from step ``first`` to ``newest``.

    ``last``: show only so many of the newest steps. ``total``: the last step of the whole run, if known: the axis
    does not go beyond it. ``ended``: no step will follow, so that the axis ends at the newest one.
    """
    count = newest - first + 1
    if last is not None and last < count:
        # Each move of the window redraws the whole chart, so it moves by an eighth of its length at a time.
        stride = max(1, last // 8)
        start = max(first, -(-(newest + 1) // stride) * stride - last)
        return start, last
    if ended:
        return first, max(2, count)
    span = round_span(count)
    if total is not None and count <= total - first + 1 < span:
        span = total - first + 1
    return first, span


def value_bounds(low: float, high: float) -> tuple[float, float]:
    """Return round bounds (low, high) around the two values; low < high also where the values are equal."""
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    step = _round_step((high - low) / 8)
    if step is not None and math.isfinite(low / step) and math.isfinite(high / step):
        bounds = math.floor(low / step) * step, math.ceil(high / step) * step
        if math.isfinite(bounds[0]) and math.isfinite(bounds[1]) and bounds[0] < bounds[1]:
            return bounds
    return low, high  # near the limits of floating point, rounding would overflow or do nothing


def _round_step(step: float) -> float | None:
    """Return the next of 1, 2, 2.5 or 5 times a power of ten that is at least ``step`` (within 0.1 %); None if
    ``step`` is not finite or below 1e-300."""
    if not math.isfinite(step) or step < 1e-300:
        return None
    power = 10.0 ** math.floor(math.log10(step))
    return next((m * power for m in (1, 2, 2.5, 5) if m * power >= step * 0.999), 10 * power)


def log_bounds(low: float, high: float) -> tuple[float, float]:
    """Return bounds around two logarithms to the base ten, low < high: whole decades if the values are two or more
    decades apart, else thirds of a decade."""
    part = 1.0 if high - low >= 2 else 3.0
    down, up = math.floor(low * part) / part, math.ceil(high * part) / part
    return (down, up) if up > down else (down - 1 / part, up + 1 / part)


def number(value: float) -> str:
    """Return ``value`` in at most ``COLUMNS`` characters, such as ``1.2e-5``, ``0.0013``, ``12.3k``, ``nan``."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 999_950 or size < 0.0009995:
        mantissa, _, power = f"{value:.1e}".partition("e")
        text = f"{mantissa.removesuffix('.0')}e{int(power)}"
        if len(text) <= COLUMNS:
            return text
        mantissa, _, power = f"{value:.0e}".partition("e")
        return f"{mantissa}e{int(power)}"
    if size >= 99_950:
        return f"{value / 1000:.0f}k"
    if size >= 9_995:
        return f"{value / 1000:.1f}k"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 1 else 4
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def numbers(values: Sequence[float]) -> list[str]:
    """The labels of one axis, all in one unit, each in at most ``COLUMNS`` characters: ``4k`` beside ``10k``,
    ``0.5e-3`` beside ``1e-3``. Where no unit tells them apart in so little room, each is as ``number`` says it."""
    if not values or not all(map(math.isfinite, values)):
        return [number(value) for value in values]
    largest, span = max(map(abs, values)), max(values) - min(values)
    power = math.floor(math.log10(largest)) if largest >= 1e-300 else 0
    plain, thousands, powers = (0, ""), (3, "k"), (power, f"e{power}")
    units = [powers, plain]
    if 0.0009995 <= largest < 9_995:
        units = [plain, powers]
    elif 9_995 <= largest < 999_950:
        units = [thousands, plain, powers]
    for exponent, unit in units:
        labels = [_in_unit(value, exponent, unit, span / 500) for value in values]
        if all(0 < len(label) <= COLUMNS for label in labels):
            return labels
    return [number(value) for value in values]


def _in_unit(value: float, power: int, unit: str, error: float) -> str:
    """``value`` in units of ten to the ``power``, with as few digits as keep it within ``error``; "" if five do not."""
    for digits in range(6):
        text = f"{value / 10.0**power:.{digits}f}"
        if abs(float(text) * 10.0**power - value) <= error:
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return "0" if float(text) == 0 else text + unit
    return ""


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return at most ``count`` round values strictly between ``low`` and ``high``, ascending, evenly spaced."""
    step = _round_step((high - low) / (count + 1)) if count > 0 else None
    if step is None or not math.isfinite(low / step):
        return []
    first = math.floor(low / step) + 1
    # Counted, not added up: between two floats that are neighbours, a step added to one may leave it as it is.
    inside = [
        v for n in range(count + 2) if low + step / 1000 < (v := (first + n) * step) < high - step / 1000
    ]
    return [0.0 if abs(value) < step / 1000 else value for value in inside[:count]]


TIMES = (1, 2, 5, 10, 15, 30)  # round numbers of seconds, and of minutes
_HOURS = (1, 2, 3, 6, 12, 24)


def time_ticks(low: float, high: float, count: int) -> list[float]:
    """As ``ticks``, for seconds: whole multiples of what is round on a clock, such as 15 s, 2 min or 6 h."""
    if count <= 0 or not math.isfinite(high - low):
        return []
    least = (high - low) / (count + 1)
    steps = (*TIMES, *(60 * t for t in TIMES), *(3600 * h for h in _HOURS))
    step = next((step for step in steps if step >= least), math.ceil(least / 86400) * 86400)
    first = math.floor(low / step) + 1
    return [float(n * step) for n in range(first, math.ceil(high / step))][:count]
