"""YAML text -> a tree of nodes with their line and column.

The tree is built from PyYAML's events instead of by ``compose``, so that duplicate keys are detected, depth and size
are limited (a few lines of nested aliases could expand to gigabytes), and scalars stay text: the meaning of ``1e-6``,
``off`` or ``007`` depends on the type of their key (see ``coerce``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from liverl.config.errors import Problem, Where, shown

MAX_DEPTH = 64  # levels; the schema has four
MAX_NODES = 20_000  # an alias counts each time that it is used
_CORE = "tag:yaml.org,2002:"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser is ten times faster


@dataclass(slots=True)
class Node:
    """A node of the tree: ``text`` and ``plain`` (not quoted) of a scalar, ``items`` of a list, ``pairs`` of a
    mapping."""

    kind: Literal["scalar", "list", "map"]
    where: Where
    text: str = ""
    plain: bool = False
    tag: str = ""  # an explicit core tag: str, int, float, bool, null
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    size: int = 1  # nodes in this subtree

    @property
    def is_null(self) -> bool:
        """Whether this is a null: empty, ``~``, ``null`` without quotes, or tagged as null."""
        if self.kind != "scalar":
            return False
        return self.tag == "null" or (self.plain and self.tag != "str" and self.text in NULLS)


NULLS = ("", "~", "null", "Null", "NULL")


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def scalar(text: str, where: Where) -> Node:
    """A plain scalar for a value that is not parsed as YAML (text of ``--set`` or of the environment)."""
    return Node("scalar", where, text=text, plain=True)


def parse(text: str, source: str, lines: bool = True) -> tuple[Node | None, list[Problem]]:
    """The root node of one YAML document (None = empty or not readable), and its problems.

    ``lines`` False leaves line numbers out, for values of one line.
    """

    def place(mark: Any) -> Where:
        if not lines or mark is None:
            return Where(source)
        return Where(source, mark.line + 1, mark.column + 1)

    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        return None, [
            Problem(Where(source, line if lines else None), "", "a character that is not valid UTF-8")
        ]
    problems: list[Problem] = []
    try:
        return _build(text, place, problems), problems
    except _Refused as refused:
        return None, [*problems, refused.problem]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return None, [
            *problems,
            Problem(place(mark), "", f"not valid YAML: {error.problem}", hint=_hint(error, text)),
        ]
    except yaml.reader.ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, position) + 1
        where = Where(source, line if lines else None)
        return None, [*problems, Problem(where, "", "a control character, which YAML does not allow")]
    except yaml.YAMLError as error:
        return None, [*problems, Problem(Where(source), "", f"not valid YAML: {shown(str(error))}")]


def _hint(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    rows = text.splitlines()
    row = rows[mark.line] if mark is not None and mark.line < len(rows) else ""
    indent = row[: len(row) - len(row.lstrip())]
    if (
        "\t" in indent
        or "\\t" in (error.problem or "")
        or (mark and row[mark.column : mark.column + 1] == "\t")
    ):
        return "YAML forbids tabs for indentation: use spaces"
    if "mapping values are not allowed" in (error.problem or ""):
        return "check the indentation, or quote a value that holds ': '"
    return ""


def _build(text: str, place: Any, problems: list[Problem]) -> Node | None:
    anchors: dict[str, Node] = {}
    stack: list[
        tuple[Node, str | None, list[Node]]
    ] = []  # open collection, its anchor, a key without its value
    root: Node | None = None
    documents = 0

    def put(node: Node) -> None:
        nonlocal root
        if not stack:
            root = node
            return
        parent, _, key = stack[-1]
        if parent.kind == "list":
            parent.items.append(node)
        elif not key:
            key.append(node)
        else:
            parent.pairs.append((key.pop(), node))
        parent.size += node.size
        if parent.size > MAX_NODES:
            raise _Refused(Problem(node.where, "", f"more than {MAX_NODES} values (aliases count each time)"))

    for event in yaml.parse(text, Loader=LOADER):
        where = place(event.start_mark)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Refused(
                    Problem(where, "", "the file has a second document ('---'); only one is allowed")
                )
        elif isinstance(event, yaml.ScalarEvent):
            plain = event.style in (None, "")
            node = Node("scalar", where, text=event.value, plain=plain, tag=_tag(event, where))
            if event.anchor:
                anchors[event.anchor] = node
            put(node)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _Refused(
                    Problem(
                        where, "", f"alias *{event.anchor} has no anchor, or is used inside its own anchor"
                    )
                )
            put(anchors[event.anchor])
        elif isinstance(event, yaml.CollectionStartEvent):
            _tag(event, where)
            if len(stack) >= MAX_DEPTH:
                raise _Refused(
                    Problem(
                        where, "", f"nested more than {MAX_DEPTH} levels deep, which no configuration needs"
                    )
                )
            kind: Literal["list", "map"] = "list" if isinstance(event, yaml.SequenceStartEvent) else "map"
            stack.append((Node(kind, where), event.anchor, []))
        elif isinstance(event, yaml.CollectionEndEvent):
            node, anchor, _ = stack.pop()
            if node.kind == "map":
                node.pairs = _checked_pairs(node, problems)
            if anchor:
                anchors[anchor] = node
            put(node)
    return root


def _tag(event: Any, where: Where) -> str:
    """The core tag that the text gives, or "". Other tags are refused, because they could name Python objects."""
    tag: str | None = event.tag
    if tag is None or tag == "!":
        return "str" if tag == "!" else ""
    name = tag.removeprefix(_CORE)
    allowed = (
        ("str", "int", "float", "bool", "null") if isinstance(event, yaml.ScalarEvent) else ("map", "seq")
    )
    if name not in allowed:
        raise _Refused(
            Problem(where, "", f"tag {shown(tag)} is not supported", hint="write the value without a tag")
        )
    return name


def _checked_pairs(node: Node, problems: list[Problem]) -> list[tuple[Node, Node]]:
    """The pairs of a mapping. Keys must be scalars and unique; ``<<`` merges a mapping, whose keys the mapping's own
    keys override."""
    first: dict[str, Where] = {}
    own: list[tuple[Node, Node]] = []
    merged: list[tuple[Node, Node]] = []
    for key, value in node.pairs:
        if key.kind != "scalar":
            problems.append(Problem(key.where, "", f"a key must be a word, not a {key.kind}"))
        elif key.text == "<<" and key.plain:
            merged.extend(_merged(value, problems))
        elif key.text in first:
            problems.append(
                Problem(
                    key.where, key.text, "given twice in the same mapping", hint=f"first at {first[key.text]}"
                )
            )
        else:
            first[key.text] = key.where
            own.append((key, value))
    names = set(first)
    for key, value in merged:
        if key.text not in names:
            names.add(key.text)
            own.append((key, value))
    return own


def _merged(value: Node, problems: list[Problem]) -> list[tuple[Node, Node]]:
    sources = value.items if value.kind == "list" else [value]
    pairs: list[tuple[Node, Node]] = []
    for source in sources:
        if source.kind == "map":
            pairs.extend(source.pairs)
        else:
            problems.append(Problem(source.where, "<<", "only a mapping can be merged"))
    return pairs
