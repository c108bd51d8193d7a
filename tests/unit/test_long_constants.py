"""A comment behind a constant must not make the formatter break its line: it stands above."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# ``LIMIT = (\n    5\n)  # words`` and ``LIMIT = (\n    5  # words\n)``
_BROKEN = re.compile(
    r"^ *(?:self\.)?[\w.]+(?:: [^=\n]+)? = \(\n +(?![^\n]* for )[^\n]{1,100}?"
    r"(?:\n *\)  # (?!fmt)[^\n]+|  # [^\n]+\n *\))$",
    re.MULTILINE,
)


def broken(text: str) -> list[int]:
    """The lines in which such a constant begins, from 1."""
    return [text.count("\n", 0, match.start()) + 1 for match in _BROKEN.finditer(text)]


@pytest.mark.parametrize("folder", ["backend/liverl", "liverl_tui", "tests", "screenshots"])
def test_no_constant_is_broken_over_lines_for_its_comment(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in broken(path.read_text())
    }
    assert found == set(), "put the comment above the constant"


def test_both_forms_are_seen_and_others_are_not() -> None:
    assert broken("A = 1\nLIMIT = (\n    5\n)  # seconds\n") == [2]
    assert broken("class X:\n    limit: int = (\n        5  # seconds\n    )\n") == [2]
    assert broken("A = (\n    1,\n    2,\n)\nB = (\n    'a'\n    'b'\n)  # two texts\n# above\nC = 5\n") == []
