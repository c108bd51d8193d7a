"""Multiples of a number. Pure."""

from __future__ import annotations


def nearest_multiples(number: int, by: int) -> tuple[int, ...]:
    """The multiples of ``by`` next to ``number``: below, if there is one, and above."""
    below = number // by * by
    return (below, below + by) if below else (by,)
