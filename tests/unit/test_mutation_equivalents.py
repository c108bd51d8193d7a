"""The reviewed equivalent mutants name lines that exist: else they would count as survivors again."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation.equivalent import HERE, read_equivalents, stale

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("group", sorted(file.stem for file in (HERE / "equivalents").glob("*.toml")))
def test_each_equivalent_names_a_line_that_exists(group: str) -> None:
    reviewed = read_equivalents(group)
    assert reviewed
    assert stale(reviewed, ROOT) == []


def test_a_stale_line_is_found() -> None:
    key = ("liverl.version", "", "no such line = 1", "no such line = 2")
    assert stale([key], ROOT) == [key]
