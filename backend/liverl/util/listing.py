"""Several names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def listing(names: Sequence[str], last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``; ``last``: the word before the last name. Empty if there is none."""
    return f" {last} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
