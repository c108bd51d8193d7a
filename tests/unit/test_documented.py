"""Every module, public class and public function of the finished rooms has a docstring. Add a room once it is done."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import liverl

ROOT = Path(liverl.__file__).parent
ROOMS = (
    "agents",
    "embedded",
    "logs",
    "observe/gpu",
    "observe/metrics",
    "observe/trials",
    "procs",
    "proxy",
    "rundir",
    "util",
    "verl_runtime",
)

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def undocumented(tree: ast.Module) -> list[str]:
    """Names of public definitions without a docstring; ``<module>`` if the module has none."""
    missing = [] if ast.get_docstring(tree) else ["<module>"]
    return missing + [name for name, node in _public(tree, "") if not ast.get_docstring(node)]


def _public(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    """Yield (qualified name, node) of public classes, functions and methods; functions in functions are private."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("_"):
                yield prefix + child.name, child
                if isinstance(child, ast.ClassDef):
                    yield from _public(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt):  # if TYPE_CHECKING, try
            yield from _public(child, prefix)


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_have_docstrings(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files, f"no modules in {ROOT / room}"
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
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
