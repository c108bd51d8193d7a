"""Float32 numbers in few digits: a log-probability needs 9, and takes 17 as the float64 of the same value. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


def short_floats(values: Sequence[float]) -> list[float]:
    """Each value as a number of few digits that names the same float32; one that is no float32 stays as it is."""
    rough = array("f", [float(f"{value:.8g}") if value else 0.0 for value in values])
    return [_short(value, same) if value else 0.0 for value, same in zip(values, rough)]  # noqa: B905 (3.10)


def _short(value: float, rough: float) -> float:
    """``rough``: the float32 of 8 digits of it."""
    if value == rough:
        return float(f"{value:.8g}")
    digits = float(f"{value:.9g}")
    return digits if array("f", [digits])[0] == value else value
