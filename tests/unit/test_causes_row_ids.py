"""What is true of a row stands in the row: other modules ask for its fields, and do not list ids."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import liverl
import liverl_tui
from liverl.causes.catalogue import by_id

# Modules that name a row, and why.
NAMED = {
    "diagnose/catalogue/agents.py": {"verl-no-tokens"},  # the trials tell why no trial had a token
    "causes/inputs/starts.py": {"keyboard-interrupt"},  # what the start waited in is told instead
}


def named(source: str) -> set[str]:
    """The ids of rows that stand in a module. Those of one word may mean anything, such as "cancelled"."""
    if not by_id().keys() & re.findall(r"[\w-]+-[\w-]+", source):
        return set()  # not to be parsed for nothing
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and "-" in text and text in by_id()}


def test_no_other_module_names_rows() -> None:
    found = {}
    for package in (liverl, liverl_tui):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            if ids := named(path.read_text(encoding="utf-8")):
                found[path.relative_to(root).as_posix()] = ids
    assert found == NAMED, "make it a field of the row (causes/signature.py)"


def test_a_list_of_ids_is_found() -> None:
    assert named('GONE = frozenset(("actor-died", "no such row", "cancelled"))') == {"actor-died"}
