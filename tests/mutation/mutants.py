"""Makes the mutants of a module: each differs from it in one place, and may behave differently."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import operators
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from equivalent import module_path

Place = tuple[int, int]
LOGGERS = {"log", "logger", "logging", "_log", "LOG"}
# Decorators that change nothing a caller could see, or only how long it takes.
SILENT_DECORATORS = {"cache", "lru_cache", "overload", "override", "final", "wraps", "runtime_checkable"}


@dataclass(frozen=True)
class Mutant:
    """One changed place. ``was`` and ``now`` are the changed lines, stripped, joined by a newline."""

    module: str
    path: str
    line: int
    first_line: int
    last_line: int
    function: str
    operator: str
    was: str
    now: str
    source: str
    diff: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What the list of equivalents names it by: stays the same when lines move."""
        return self.module, self.function, self.was, self.now


@dataclass(frozen=True)
class Site:
    """A place that an operator may change: the ``occurrence``-th of the places it finds in the module."""

    module: str
    line: int
    column: int
    operator: str
    occurrence: int
    says: str  # function, text of the line, column in it, operator and which of its changes: no module, no number


def sites(root: Path, entry: str) -> list[Site]:
    """All places of a module below ``root`` where a change alters behaviour, in a fixed order.

    ``entry`` is a module, or ``module:Class.function`` for one of its functions only.
    """
    module, _, only = entry.partition(":")
    source = module_path(root, module).read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    skipped = list(_skipped(tree, lines))
    nodes = list(ast_nodes(get_ast(source)))
    # The bare `*` and `/` between parameters are no operators, whatever cosmic-ray takes them for.
    stars = {
        node.start_pos for node in nodes if node.parent and node.parent.type in ("parameters", "lambdef")
    }
    found = []
    for name, operator in operators.operators():
        positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, start in enumerate(positions):
            if start not in stars and not any(first <= start < last for first, last in skipped):
                nth = positions[:occurrence].count(start)
                text = lines[start[0] - 1]
                column = start[1] - len(text) + len(text.lstrip())
                says = f"{_function(tree, start[0])} {text.strip()} {column} {name} {nth}"
                found.append(Site(module, *start, name, occurrence, says))
    if only:
        found = [site for site in found if _function(tree, site.line) == only]
    return sorted(found, key=lambda site: (site.line, site.column, site.operator, site.occurrence))


def mutate(root: Path, site: Site) -> Mutant | None:
    """The mutant of a place; None where the change is no Python."""
    path = module_path(root, site.module)
    source = path.read_text()
    mutated = mutate_code(source, dict(operators.operators())[site.operator], site.occurrence)
    if mutated is None or mutated == source or not _compiles(mutated):
        return None
    tree = ast.parse(source)
    was, now = _changed(source, mutated)
    first, last = _statement(tree, site.line)
    return Mutant(
        module=site.module,
        path=str(path.relative_to(root)),
        line=site.line,
        first_line=first,
        last_line=last,
        function=_function(tree, site.line),
        operator=site.operator,
        was=was,
        now=now,
        source=mutated,
        diff=_diff(source, mutated),
    )


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _changed(source: str, mutated: str) -> tuple[str, str]:
    diff = list(difflib.ndiff(source.splitlines(), mutated.splitlines()))
    was = "\n".join(line[2:].strip() for line in diff if line.startswith("- "))
    now = "\n".join(" ".join(line[2:].split()) for line in diff if line.startswith("+ "))
    return was, now


def _diff(source: str, mutated: str) -> str:
    diff = difflib.unified_diff(source.splitlines(), mutated.splitlines(), lineterm="", n=1)
    return "\n".join(list(diff)[2:])


def _statement(tree: ast.Module, line: int) -> tuple[int, int]:
    """The lines of the smallest statement around ``line``; of a compound statement, its head only."""
    best = (line, line)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            last = max(last, node.lineno)
            if line <= last:
                best = (node.lineno, last)
    return best


def _function(tree: ast.AST, line: int) -> str:
    return ".".join(name for name, first, last in _functions(tree) if first <= line <= last)


def _functions(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """Classes and functions with their lines, outer ones first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node.name, first, node.end_lineno or node.lineno


def _skipped(tree: ast.Module, lines: list[str]) -> Iterator[tuple[Place, Place]]:
    """Where a change alters no behaviour: annotations, log calls, texts of errors, what only a type checker reads."""

    def place(node: Any) -> tuple[Place, Place]:
        def at(line: int, offset: int) -> Place:
            return line, len(lines[line - 1].encode()[:offset].decode())

        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.expr() as annotation):
                yield place(annotation)
            case ast.AnnAssign(annotation=annotation):
                yield place(annotation)
            case ast.FunctionDef(returns=ast.expr() as annotation):
                yield place(annotation)
            case ast.AsyncFunctionDef(returns=ast.expr() as annotation):
                yield place(annotation)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield place(node)
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                yield place(node)
            case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
                yield place(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=logger))) if logger in LOGGERS:
                yield place(node)
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "ParamSpec" | "NewType")):
                yield place(node)
            case ast.Raise(exc=ast.Call() as error):
                yield from (place(text) for text in ast.walk(error) if isinstance(text, ast.JoinedStr))
            case ast.keyword(arg="strict" | "frozen" | "kw_only" | "slots" | "gc" | "flush"):
                yield place(node)
            case _:
                pass
        for decorator in getattr(node, "decorator_list", ()):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in SILENT_DECORATORS:
                first, last = place(decorator)
                yield (first[0], 0), last
    # An alias of types is read by the type checker alone.
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and _is_type_alias(statement.value):
            yield place(statement)


def _is_type_alias(value: ast.expr) -> bool:
    match value:
        case ast.BinOp(op=ast.BitOr()):
            return _is_type_alias(value.left) and _is_type_alias(value.right)
        case ast.Subscript(value=ast.Name(id=name)):
            return name[:1].isupper() or name in ("dict", "list", "tuple", "type", "set")
        case ast.Name(id=name):
            return name[:1].isupper() or name in ("str", "int", "float", "bool", "bytes")
        case ast.Constant(value=None):
            return True
    return False
