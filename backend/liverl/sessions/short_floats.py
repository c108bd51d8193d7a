"""Float32 numbers in few digits: a log-probability needs 9, and takes 17 as the float64 of the same value. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


def short_floats(values: Sequence[float]) -> list[float]:
    """Each value as a number of few digits that names the same float32; one that is no float32 stays as it is."""
    # All at once: one call for each number takes four times as long.
    given = list(values)
    short = list(map(float, ("%.8g " * len(given) % (*given,)).split()))
    rough = array("f", short).tolist()
    if rough != given:  # some need another digit, or are no float32
        pairs = zip(given, rough, short)  # noqa: B905 (3.10)
        short = [digits if value == same else _longer(value) for value, same, digits in pairs]
    return [value or 0.0 for value in short] if 0.0 in short else short  # not -0.0


def _longer(value: float) -> float:
    digits = float(f"{value:.9g}")
    return digits if array("f", [digits])[0] == value else value
