"""The kinds of events, as the code writes them: read from the calls that add one to ``events.jsonl``."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from kit.alert_texts import PACKAGE, UNKNOWN, Reader

_ROOMS = (
    "daemon",
    "supervise",
    "serving",
    "verl",
    "external",
    "hosts",
    "notify",
    "sandboxes",
    "observe",
    "preflight",
)


def kinds() -> dict[str, list[str]]:
    """Kind -> the texts with which it is written, ``...`` for what only a run knows."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for room in _ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            source = path.read_text("utf-8")
            if ".say(" in source or "events.add(" in source:
                for kind, text in _of(ast.parse(source)):
                    found[kind][text] = None
    return {kind: list(found[kind]) for kind in sorted(found)}


def _of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        reader = Reader(tree, function)
        for node in ast.walk(function):
            if _adds(node):
                assert isinstance(node, ast.Call)
                for kind in reader.texts(node.args[0]):
                    if UNKNOWN not in kind:
                        yield from ((kind, text) for text in reader.texts(node.args[1]))


def _adds(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) >= 2):
        return False
    whole = ast.unparse(node.func)
    return node.func.attr == "say" or whole.endswith("events.add")
