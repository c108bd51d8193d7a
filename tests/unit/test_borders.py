"""What importing costs: the backend must be usable from a program that has no terminal and no time."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import TypeGuard

import grimp
import pytest
from kit.keeper_talk import PROGRAM

HEAVY = {"textual", "rich", "ray", "litellm", "aiohttp", "torch", "vllm", "verl"}


def imported(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after ``code``."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in re.findall(r"\|\s*([\w.]+)$", done.stderr, re.MULTILINE)}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import liverl", HEAVY),
        ("import liverl.model, liverl.plan, liverl.config, liverl.daemon.main", HEAVY),
        ("import liverl_tui.cli.main", {"textual", "asyncio", "yaml", "aiohttp"}),
    ],
)
def test_imports_stay_light(code: str, heavy: set[str]) -> None:
    assert not imported(code) & heavy


def packages_of_modules() -> dict[str, set[str]]:
    """Every package of ours -> the packages whose modules its own modules import directly."""
    graph = grimp.build_graph("liverl", "liverl_tui", cache_dir=None)
    packages = {m for m in graph.modules if any(other.startswith(f"{m}.") for other in graph.modules)}

    def package(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    imports: dict[str, set[str]] = {}
    for module in graph.modules:
        targets = {package(target) for target in graph.find_modules_directly_imported_by(module)}
        imports.setdefault(package(module), set()).update(targets)
    return imports


def ring_through(start: str, imports: dict[str, set[str]]) -> list[str]:
    """The shortest way from a package back to itself, [] where there is none. A package and the one that holds it
    are one place: the outer one is made of the inner ones."""

    def within(one: str, other: str) -> bool:
        return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")

    before: dict[str, str] = {}
    queue = [start]
    for here in queue:
        for there in sorted(imports.get(here, ())):
            if there == start and not within(here, start):
                way = [here]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return [*reversed(way), start]
            if there not in before and not within(there, here):
                before[there] = here
                queue.append(there)
    return []


def test_no_ring_of_packages() -> None:
    imports = packages_of_modules()
    assert len(imports) > 30
    assert [ring for package in sorted(imports) if (ring := ring_through(package, imports))] == []


def test_no_ring_of_modules_within_a_package() -> None:
    """Not by types either: who reads one of the modules would have to read all of them."""
    graph = grimp.build_graph("liverl", "liverl_tui", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 1000
    assert [ring for module in sorted(imports) if (ring := ring_through(module, imports))] == []


def test_a_ring_would_be_found() -> None:
    imports = {"a": {"b"}, "b": {"c.d"}, "c.d": {"a"}, "c": {"c.d"}}
    assert ring_through("a", imports) == ["a", "b", "c.d", "a"]
    assert ring_through("c", {"c": {"c.d"}, "c.d": {"c"}}) == []


def for_types(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether a statement is ``if TYPE_CHECKING``, which no process carries out."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def not_for_the_keeper(tree: ast.Module) -> list[str]:
    """Imports of a module that are neither its package's nor the standard library's, or that are not done at once."""
    at_once = {id(node) for node in ast.iter_child_nodes(tree)}
    never = {id(node) for test in ast.walk(tree) if for_types(test) for node in test.body}
    wrong = []
    for node in ast.walk(tree):
        if id(node) in never:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [] if node.level == 1 else [f"{'.' * node.level}{node.module}"]
        else:
            continue
        others = [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]
        wrong += others if id(node) in at_once else [f"{name or '.'} (later)" for name in names or [""]]
    return wrong


def test_the_keeper_imports_the_standard_library_only_and_all_of_it_at_once() -> None:
    """Another version may be installed over its files while it runs."""
    found = {
        path.name: not_for_the_keeper(ast.parse(path.read_text()))
        for path in PROGRAM.glob("liverl_keeper/*.py")
    }
    assert len(found) > 10 and [name for name, wrong in found.items() if wrong] == []
    source = "from . import a\nimport os, liverl.b\nfrom ..c import d\n"
    source += "def f():\n    import json\n    from .e import g\n"
    source += "if TYPE_CHECKING:\n    from typing import Any\nelse:\n    import json\n"
    assert not_for_the_keeper(ast.parse(source)) == [
        "liverl.b",
        "..c",
        "json (later)",
        ". (later)",
        "json (later)",
    ]


def test_the_keepers_directory_hides_no_module_of_the_standard_library() -> None:
    """Python puts it at the front of ``sys.path``."""
    names = {path.stem for path in PROGRAM.iterdir()} - {"__init__", "__main__", "__pycache__"}
    assert names == {"liverl_keeper"} and not names & sys.stdlib_module_names
