"""A number and its noun."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from liverl.util.plural import plural, quantity

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 steps"),
        (1, "1 step"),
        (2, "2 steps"),
        (1.0, "1.0 step"),
        (12_000, "12,000 steps"),
        (-1, "-1 steps"),
    ],
)
def test_a_quantity(number: float, words: str) -> None:
    assert quantity(number, "step") == words


def test_other_plurals() -> None:
    assert (quantity(1, "process", "processes"), quantity(3, "process", "processes")) == (
        "1 process",
        "3 processes",
    )
    assert (plural(1, "is", "are"), plural(0, "is", "are")) == ("is", "are")


def test_nobody_makes_a_plural_by_hand() -> None:
    """``'s' * (number != 1)`` and its like: one helper knows how it is done."""
    by_hand = re.compile(r"""(?<![\w.])['"](?:e?s|y)['"] (?:\*|if) \(?\w""")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("backend/liverl", "liverl_tui")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if by_hand.search(line) and path.name != "plural.py" and "catalogue" not in path.parts
    ]
    assert found == []
