"""Numbers and points in time in the files of a trial. Pure."""

from __future__ import annotations

from datetime import datetime

_LATEST = 1e11  # Unix seconds, either way: what ``liverl.model.UnixTime`` takes
_EPOCH_MS = 1e11  # Unix times above are in milliseconds (since 1973), below in seconds (for 3,000 years)


def moment(value: object) -> float | None:
    """Return the Unix seconds of an ISO time, or of a number of seconds or milliseconds since 1970; None if
    it is neither, or if no clock shows such a time."""
    at = _unix(value)
    return at if at is not None and abs(at) <= _LATEST else None


def _unix(value: object) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        number = finite(value)
        if number is None or number < 1e9:  # a duration, not a point in time
            return None
        return number / 1000 if number >= _EPOCH_MS else number
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    return None


LARGEST = 1 << 53  # of a count: a float has each whole number up to it; JSON of others may have 400 digits


def whole(value: object) -> int | None:
    """``value`` as a whole number; None if it is none, or one that counts nothing."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
    return int(value) if fits else None  # type: ignore[call-overload]


def number(value: object) -> float | None:
    """``value`` as a float; None if it is no number, or not finite."""
    return finite(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def finite(value: float) -> float | None:
    """``value`` as a float; None if it is not finite."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number - number == 0 else None
