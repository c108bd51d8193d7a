"""A number with its noun, in the singular where the number is one."""

from __future__ import annotations


def plural(number: float, noun: str, many: str = "") -> str:
    """``noun`` for ``number`` things. ``many``: the plural where it is not ``noun`` with an s."""
    return noun if number == 1 else many or f"{noun}s"


def quantity(number: float, noun: str, many: str = "") -> str:
    """``1 step``, ``2 steps``, ``12,000 rows``. ``many``: as for ``plural``."""
    return f"{number:,} {plural(number, noun, many)}"
