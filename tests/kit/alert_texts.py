"""What each rule's code says of its alert: severity, title, cause and fix, read from the calls of ``Symptom``.

Values that only a run knows are shown as ``...``. Texts that a rule chooses between are all given.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kit.command_pages import ROOT

PACKAGE = ROOT / "backend" / "liverl"
FOLDERS = (PACKAGE / "diagnose" / "catalogue", PACKAGE / "watch")
UNKNOWN = "..."
MOST = 6  # texts that one rule chooses between, at most


class Texts(NamedTuple):
    """Of one call of ``Symptom``. ``kind``: its id without what follows the colon; ``module``, ``function``: where."""

    kind: str
    severity: tuple[str, ...]
    title: tuple[str, ...]
    cause: tuple[str, ...]
    fix: tuple[str, ...]
    module: Path
    function: str


def found() -> Iterator[Texts]:
    """Those of all rules, in the order of their files."""
    for folder in FOLDERS:
        for path in sorted(folder.glob("*.py")):
            source = path.read_text("utf-8")
            if "Symptom(" in source:
                yield from _of_module(path, ast.parse(source))


def _of_module(path: Path, tree: ast.Module) -> Iterator[Texts]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Symptom":
                given = {word.arg: word.value for word in node.keywords if word.arg}
                reader = Reader(tree, function)
                texts = {
                    name: reader.texts(given.get(name)) for name in ("severity", "title", "cause", "fix")
                }
                for kind in reader.texts(given.get("id")):
                    yield Texts(kind.partition(":")[0], **texts, module=path, function=function.name)


class Reader:
    """The texts that an expression can be, as far as the code says them."""

    def __init__(self, tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._tree = tree
        self._named: dict[str, list[ast.expr]] = {}
        for node in itertools.chain(tree.body, ast.walk(function)):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._note(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._note(node.target, node.value)

    def _note(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._named.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple):
            for choice in _choices(value):
                if isinstance(choice, ast.Tuple) and len(choice.elts) == len(target.elts):
                    for one, part in zip(target.elts, choice.elts, strict=True):
                        self._note(one, part)

    def texts(self, node: ast.expr | None, depth: int = 0) -> tuple[str, ...]:
        """Each possible text once; ``...`` stands for what is not known here."""
        if node is None or depth > 6:
            return (UNKNOWN,)
        made = list(dict.fromkeys(self._texts(node, depth)))
        return tuple(made[:MOST]) or (UNKNOWN,)

    def _texts(self, node: ast.expr, depth: int) -> Iterator[str]:
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.IfExp(body=body, orelse=other):
                yield from self.texts(body, depth + 1)
                yield from self.texts(other, depth + 1)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                for pair in itertools.product(self.texts(left, depth + 1), self.texts(right, depth + 1)):
                    yield "".join(pair)
            case ast.JoinedStr(values=values):
                parts = [
                    self.texts(one.value if isinstance(one, ast.FormattedValue) else one, depth + 1)
                    for one in values
                ]
                for each in itertools.islice(itertools.product(*parts), MOST):
                    yield "".join(each)
            case ast.Name(id=name) if name in self._named:
                for value in self._named[name]:
                    yield from self.texts(value, depth + 1)
            case ast.Call(func=ast.Name(id=name)) if (function := self._function(name)) is not None:
                reader = Reader(self._tree, function)
                for inner in ast.walk(function):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        yield from reader.texts(inner.value, depth + 1)
            case _:
                yield UNKNOWN

    def _function(self, name: str) -> ast.FunctionDef | None:
        found = (one for one in self._tree.body if isinstance(one, ast.FunctionDef) and one.name == name)
        return next(found, None)


def _choices(value: ast.expr) -> list[ast.expr]:
    """A value, or those of a table that is asked at once, or both of a condition."""
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Dict):
        return list(value.value.values)
    if isinstance(value, ast.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    return [value]
