"""Reviewed mutants that behave as the original. Needs the standard library only, so that a unit test can check them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent

Key = tuple[str, str, str, str]  # Mutant.key: module, function, was, now


def read_equivalents(group: str) -> dict[Key, str]:
    """Reviewed mutants that behave as the original, with the reason.

    Raises:
        SystemExit: an entry lacks a reason.
    """
    path = HERE / "equivalents" / f"{group}.toml"
    if not path.exists():
        return {}
    found = {}
    for entry in tomllib.loads(path.read_text()).get("equivalent", []):
        if not entry.get("reason", "").strip():
            raise SystemExit(f"{path}: the entry {entry} has no reason")
        found[entry["module"], entry["function"], entry["was"], entry["now"]] = entry["reason"]
    return found


def stale(equivalents: Iterable[Key], root: Path) -> list[Key]:
    """Entries whose original line is no longer in its module."""
    gone = []
    for key in equivalents:
        lines = {line.strip() for line in module_path(root, key[0]).read_text().splitlines()}
        if not set(key[2].splitlines()) <= lines:
            gone.append(key)
    return gone


def module_path(root: Path, module: str) -> Path:
    """The file of a module.

    Raises:
        SystemExit: no such file, as after a move of modules.
    """
    relative = module.replace(".", "/")
    for folder in (root / "backend", root):
        for candidate in (folder / f"{relative}.py", folder / relative / "__init__.py"):
            if candidate.exists():
                return candidate
    raise SystemExit(f"groups.toml: module {module!r} has no file; was it moved?")
