"""Every module, public class and public function has a docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import liverl
import liverl_tui

PACKAGES = (Path(liverl.__file__).parent, Path(liverl_tui.__file__).parent)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def undocumented(tree: ast.Module) -> list[str]:
    """Names of public definitions without a docstring; ``<module>`` if the module has none."""
    missing = [] if ast.get_docstring(tree) else ["<module>"]
    return missing + [name for name, node in _public(tree, "") if not ast.get_docstring(node)]


def _public(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    """Yield (qualified name, node) of public classes, functions and methods; functions in functions are private."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            overload = any(ast.unparse(one) == "overload" for one in child.decorator_list)
            if not child.name.startswith("_") and not overload:
                yield prefix + child.name, child
                if isinstance(child, ast.ClassDef):
                    yield from _public(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt):  # if TYPE_CHECKING, try
            yield from _public(child, prefix)


def rooms() -> Iterator[Path]:
    """Yield the packages directly in each of the two packages, and the modules beside them."""
    for package in PACKAGES:
        for path in sorted(package.iterdir()):
            if path.suffix == ".py" or (path / "__init__.py").is_file():
                yield path


@pytest.mark.parametrize("room", list(rooms()), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_public_names_have_docstrings(room: Path) -> None:
    files = sorted(room.rglob("*.py")) if room.is_dir() else [room]
    assert files, f"no modules in {room}"
    missing = [
        f"{path.relative_to(room.parent)}: {name}"
        for path in files
        if path.stat().st_size  # an empty __init__.py needs none
        for name in undocumented(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not missing, "without a docstring: " + ", ".join(missing)


def test_the_check_finds_what_is_missing() -> None:
    source = (
        "try:\n    import x\nexcept ImportError:\n    def fallback(): pass\n"
        "class A:\n    def method(self): pass\n    def _own(self): pass\n"
        'class B:\n    """B."""\n    def told(self):\n        """Yes."""\n        def inner(): pass\n'
        "async def run(): pass\ndef _private(): pass\n"
    )
    assert undocumented(ast.parse(source)) == ["<module>", "A", "A.method", "run"]
