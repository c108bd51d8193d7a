"""The reviewed equivalent mutants name lines that exist: else they would count as survivors again."""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "mutation" / "equivalents"


def missing(entry: dict[str, str]) -> list[str]:
    """Lines of the original that the module does not have (any more)."""
    spec = find_spec(entry["module"])
    assert spec is not None
    assert spec.origin is not None
    lines = {line.strip() for line in Path(spec.origin).read_text().splitlines()}
    return [line for line in map(str.strip, entry["was"].splitlines()) if line and line not in lines]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.toml")), ids=lambda file: file.stem)
def test_each_equivalent_names_a_line_that_exists(file: Path) -> None:
    entries = tomllib.loads(file.read_text())["equivalent"]
    assert entries
    assert {entry["was"]: gone for entry in entries if (gone := missing(entry))} == {}


def test_a_stale_line_is_found() -> None:
    assert missing({"module": "liverl.version", "was": "no such line = 1"}) == ["no such line = 1"]
