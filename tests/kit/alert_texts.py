"""What each rule's code says of its alert: severity, title, cause and fix, read from the calls of ``Symptom``.

Values that only a run knows are shown as ``...``. Texts that a rule chooses between are all given.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kit.command_pages import ROOT

PACKAGE = ROOT / "backend" / "liverl"
FOLDERS = (PACKAGE / "diagnose" / "catalogue", PACKAGE / "watch")
UNKNOWN = "..."
NAMES = {"name": "SERVICE", "pid": "PID"}  # what is shown for these fields of what only a run knows
# The same for fields of these, whose name is another one than that of the alert's own service.
NAMES_OF = {
    "carrier_words": "CARRIER",
    "other": "OTHER",
    "ours": "POD",
    "slow": "POD",
    "setting": "model.tool_parser",
}
DEEP = 12  # names and calls that are followed, one after the other
MOST = 13  # texts that one rule chooses between, at most: the statuses of HTTP with a fix of their own, and one more


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
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        for node, bound in _calls(function, ()):
            given = {word.arg: word.value for word in node.keywords if word.arg}
            for caller, arguments in _callers(function, functions):
                for values in _rounds(bound, tree):
                    reader = Reader(tree, function, values)
                    for name, value in arguments.items():
                        reader.know(name, Reader(tree, caller), value)
                    texts = {
                        name: reader.texts(given.get(name)) for name in ("severity", "title", "cause", "fix")
                    }
                    for kind in reader.texts(given.get("id")):
                        yield Texts(kind.partition(":")[0], **texts, module=path, function=caller.name)


def _callers(
    function: ast.FunctionDef, functions: list[ast.FunctionDef]
) -> list[tuple[ast.FunctionDef, dict[str, ast.expr]]]:
    """Where a helper of the module makes the alerts of several rules: each function that calls it, with what it gives
    for its parameters. Otherwise the function itself, without any."""
    names = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
    found = []
    for caller in functions:
        calls = [node for node in ast.walk(caller) if isinstance(node, ast.Call)]
        for node in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            if isinstance(node.func, ast.Name) and node.func.id == function.name:
                named = {word.arg: word.value for word in node.keywords if word.arg}
                found.append((caller, {**dict(zip(names, node.args, strict=False)), **named}))
    return found or [(function, {})]


def _calls(node: ast.AST, loops: tuple[ast.For, ...]) -> Iterator[tuple[ast.Call, tuple[ast.For, ...]]]:
    """The calls of ``Symptom`` below a node, each with the loops that it stands in."""
    for child in ast.iter_child_nodes(node):
        inside = (*loops, child) if isinstance(child, ast.For) else loops
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "Symptom":
            yield child, inside
        yield from _calls(child, inside)


def _rounds(loops: tuple[ast.For, ...], tree: ast.Module) -> Iterator[dict[str, ast.expr]]:
    """The values of the loops' variables, in each round of the loops over a table that stands in the code."""
    each: list[list[dict[str, ast.expr]]] = []
    for loop in loops:
        if rows := _table(loop.iter, tree):
            each.append([dict(_bound(loop.target, row)) for row in rows])
    for rounds in itertools.product(*each):
        yield {name: value for one in rounds for name, value in one.items()}


def _table(node: ast.expr, tree: ast.Module) -> list[ast.expr]:
    """The rows of a tuple, or of ``TABLE.items()``; empty if the code does not say them."""
    if isinstance(node, ast.Tuple | ast.List):
        return list(node.elts)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "items"
        and isinstance(node.func.value, ast.Name)
        and isinstance(table := _top(tree, node.func.value.id), ast.Dict)
    ):
        pairs = zip(table.keys, table.values, strict=True)
        return [ast.Tuple([key, value]) for key, value in pairs if key is not None]
    return []


def _top(tree: ast.Module, name: str) -> ast.expr | None:
    """The value of a name of the module."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign):
            targets = (node.target,)
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            return node.value
    return None


@functools.cache
def _module(name: str) -> ast.Module | None:
    path = PACKAGE.parent / Path(*name.split(".")).with_suffix(".py")
    return ast.parse(path.read_text("utf-8")) if path.is_file() else None


@functools.cache
def _home(package: str, name: str) -> ast.Module | None:
    """The module of ours that defines ``name``, which is imported from ``package``: the package may have it from one of
    its own modules."""
    init = PACKAGE.parent / Path(*package.split(".")) / "__init__.py"
    for node in ast.parse(init.read_text("utf-8")).body if init.is_file() else ():
        if isinstance(node, ast.ImportFrom) and any((one.asname or one.name) == name for one in node.names):
            return _module(node.module or "")
    return _module(package)


def _imported(tree: ast.Module, name: str) -> tuple[ast.Module, ast.stmt] | None:
    """What is called so in another module of ours that is imported from, with that module. Not in ``util``: how a
    number is written there says nothing."""
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not node.module or node.module.startswith("liverl.util"):
            continue
        if any(one.name == name for one in node.names):
            other = _home(node.module, name)
            for one in other.body if other is not None else ():
                if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == name:
                    assert other is not None
                    return other, one
    return None


def _sentences(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    """Texts with a name in another module of ours, which several rules end with."""
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        for one in node.names:
            other = _home(node.module, one.name)
            value = None if other is None else _top(other, one.name)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield one.asname or one.name, value


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Each name of a target with its part of a value."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            yield from _bound(one, part)


def _shown(node: ast.expr) -> str:
    """What stands for a value that only a run knows."""
    if not isinstance(node, ast.Attribute):
        return UNKNOWN
    value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
    owner = getattr(value, "attr", getattr(value, "id", ""))
    return NAMES_OF.get(owner, "SERVICE") if node.attr == "name" else NAMES.get(node.attr, UNKNOWN)


class Reader:
    """The texts that an expression can be, as far as the code says them. ``bound``: values of variables of loops."""

    def __init__(
        self,
        tree: ast.Module,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        bound: Mapping[str, ast.expr] = MappingProxyType({}),
    ) -> None:
        self._tree = tree
        self._bound = bound
        self._named: dict[str, list[tuple[Reader, ast.expr]]] = {}
        for node in itertools.chain(tree.body, ast.walk(function)):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._note(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._note(node.target, node.value)
        for name, text in _sentences(tree):
            self._named.setdefault(name, []).append((self, text))

    def know(self, name: str, reader: Reader, value: ast.expr) -> None:
        """Take ``value``, as ``reader`` knows it, for what a parameter is."""
        self._named.setdefault(name, []).append((reader, value))

    def _note(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._named.setdefault(target.id, []).append((self, value))
        elif isinstance(target, ast.Tuple):
            for reader, choice in self._choices(value):
                if isinstance(choice, ast.Tuple) and len(choice.elts) == len(target.elts):
                    for one, part in zip(target.elts, choice.elts, strict=True):
                        if isinstance(one, ast.Name):
                            self._named.setdefault(one.id, []).append((reader, part))

    def texts(self, node: ast.expr | None, depth: int = 0) -> tuple[str, ...]:
        """Each possible text once; ``...`` stands for what is not known here."""
        if node is None or depth > DEEP:
            return (UNKNOWN,)
        made = list(dict.fromkeys(self._texts(node, depth)))
        return tuple(made[:MOST]) or (UNKNOWN,)

    def _texts(self, node: ast.expr, depth: int) -> Iterator[str]:
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.IfExp() | ast.BoolOp(op=ast.Or()):
                for reader, choice in self._choices(node, depth):
                    yield from reader.texts(choice, depth + 1)
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
            case ast.Attribute(value=owner, attr=field) if rows := self._asked(owner):
                for key, row in rows:
                    for text in self.texts(self._field(row, field), depth + 1):
                        yield f"{key}: {text}"
            case ast.Name() | ast.Call() | ast.Attribute():
                known = False
                for reader, choice in self._choices(node, depth):
                    if choice is not node:
                        known = True
                        yield from reader.texts(choice, depth + 1)
                if not known:
                    yield _shown(node)
            case _:
                yield UNKNOWN

    def _choices(self, node: ast.expr, depth: int = 0) -> list[tuple[Reader, ast.expr]]:
        """What an expression can stand for, each with the reader that knows its names; itself if that is not known."""
        if depth > DEEP:
            return [(self, node)]
        found: list[tuple[Reader, ast.expr]] = []
        match node:
            case ast.Subscript(value=ast.Dict(values=values)):
                found = [(self, value) for value in values]
            case ast.IfExp(body=body, orelse=other):
                found = [*self._choices(body, depth + 1), *self._choices(other, depth + 1)]
            case ast.BoolOp(op=ast.Or(), values=values):
                found = [(self, value) for value in values]
            case ast.Name(id=name) if name in self._bound:
                found = [(self, self._bound[name])]
            case ast.Name(id=name) if name in self._named:
                found = list(self._named[name])
            case ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="get"), args=[_, other]) if (
                isinstance(values := _top(self._tree, table), ast.Dict)
            ):
                found = [(self, value) for value in [*values.values, other]]
            case ast.Call(func=func) if (function := self._function(func)) is not None:
                found = self._returned(self._tree, function)
            case ast.Call(func=ast.Name(id=name)) if (elsewhere := _imported(self._tree, name)) is not None:
                if isinstance(elsewhere[1], ast.FunctionDef):
                    found = self._returned(elsewhere[0], elsewhere[1])
            case ast.Attribute(value=owner, attr=field):
                for reader, value in self._all(owner, depth + 1):
                    if (part := reader._field(value, field)) is not None:
                        found.append((reader, part))
        return found or [(self, node)]

    def _returned(self, tree: ast.Module, function: ast.FunctionDef) -> list[tuple[Reader, ast.expr]]:
        reader = Reader(tree, function)
        return [
            (reader, inner.value)
            for inner in ast.walk(function)
            if isinstance(inner, ast.Return) and inner.value is not None
        ]

    def _asked(self, node: ast.expr) -> list[tuple[str, ast.expr]]:
        """The rows of a table of the module, each with its number, where a name is ``TABLE.get(number, other)``."""
        for _, value in self._choices(node):
            match value:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[_, other]) if (
                    isinstance(table := _top(self._tree, name), ast.Dict)
                ):
                    rows = zip(table.keys, table.values, strict=True)
                    told = [(str(key.value), row) for key, row in rows if isinstance(key, ast.Constant)]
                    by = _top(self._tree, other.id) if isinstance(other, ast.Name) else other
                    if all(key.isdigit() for key, _ in told) and by is not None:
                        return [*told, ("any other", by)]
        return []

    def _all(self, node: ast.expr, depth: int) -> list[tuple[Reader, ast.expr]]:
        """Like ``_choices``, until nothing is left to follow."""
        found: list[tuple[Reader, ast.expr]] = []
        for reader, choice in self._choices(node, depth):
            if choice is node or depth > DEEP:
                found.append((reader, choice))
            else:
                found += reader._all(choice, depth + 1)
        return found

    def _field(self, value: ast.expr, field: str) -> ast.expr | None:
        """The argument for a field, where a value is the call of a class of ours with annotated fields."""
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
            return None
        for word in value.keywords:
            if word.arg == field:
                return word.value
        elsewhere = _imported(self._tree, value.func.id)
        for one in (*self._tree.body, *(elsewhere[1:] if elsewhere is not None else ())):
            if not isinstance(one, ast.ClassDef) or value.func.id not in (one.name, "cls"):
                continue
            names = [
                part.target.id
                for part in one.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            ]
            given = dict(zip(names, value.args, strict=False))
            if field in given:
                return given[field]
        return None

    def _function(self, func: ast.expr) -> ast.FunctionDef | None:
        """The function of this module that is called by its name, by a variable, or as a method of a class."""
        match func:
            case ast.Name(id=name):
                if isinstance(other := self._bound.get(name), ast.Name):
                    name = other.id
                found = [
                    one for one in self._tree.body if isinstance(one, ast.FunctionDef) and one.name == name
                ]
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                found = [
                    method
                    for one in self._tree.body
                    if isinstance(one, ast.ClassDef) and one.name == owner
                    for method in one.body
                    if isinstance(method, ast.FunctionDef) and method.name == name
                ]
            case _:
                found = []
        return next(iter(found), None)
