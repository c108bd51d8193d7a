"""When things happened and how long they took, for people: the only place that words these. Pure."""

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


def duration(seconds: float) -> str:
    """How long something took: ``41s``, ``12m03s``, ``3h05m``, ``2d04h``; a negative one counts as 0."""
    total = max(0, int(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{total % 60:02}s" if minutes else f"{total}s"


def step_length(seconds: float) -> str:
    """How long a step takes: ``3.4 s``, ``41 s`` or, from 99.5 s on, ``12m03s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 99.5 else duration(seconds)
