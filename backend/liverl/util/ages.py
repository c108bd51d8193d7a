"""When things happened, for people: a clock time, and how long ago. Pure."""

from __future__ import annotations

import time


def clock(at: float) -> str:
    """A Unix time as date, time and zone of this host."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at)).rstrip()


def ago(seconds: float) -> str:
    """A span of time in its largest unit, or in two for less than ten of it: "5 h 24 min", "26 h", "3 days"."""
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 10:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"
