"""A YAML node -> the value of a key, converted according to the key's type.

The type of the key decides, because the rules of YAML 1.1 surprise: PyYAML reads ``1e-6`` as text, ``off`` as False,
``007`` as 7, ``1:30`` as 90 and ``2026-01-01`` as a date. Here a number key accepts ``1e-6``, a text key keeps
``007``, a switch accepts ``off``, and an ambiguous value (``0600`` for a whole number) is refused with a reason.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect as types

from liverl.config.errors import shown
from liverl.config.sections.value_types import FALSE, TRUE
from liverl.config.yaml_nodes import Node
from liverl.util.nearest import did_you_mean

_INT = re.compile(r"[+-]?[0-9][0-9_]*")
_FLOAT = re.compile(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 18


class Bad(Exception):
    """A value that its key cannot take.

    ``node``: the part that is wrong; ``expected``, ``found``: texts for the user; ``hint``: how to fix it, or "".
    """

    def __init__(self, node: Node, expected: str, hint: str = "", found: str | None = None) -> None:
        super().__init__(expected)
        self.node = node
        self.expected = expected
        self.hint = hint
        self.found = describe(node) if found is None else found


def describe(node: Node) -> str:
    """The content of ``node`` for an error message: ``a mapping``, ``a list of 3`` or the quoted text."""
    if node.kind == "map":
        return "a mapping"
    if node.kind == "list":
        return f"a list of {len(node.items)}"
    if node.is_null:
        return "nothing (null)"
    return shown(node.text) if node.plain else f"the string {shown(node.text)}"


def convert(node: Node, kind: types.Type) -> Any:
    """The value of ``node`` as ``kind``.

    Raises:
        Bad: the value does not fit ``kind``.
        TypeError: the schema has a type that this module cannot convert.
    """
    kind = plain_type(kind)
    if isinstance(kind, types.UnionType):
        members = [member for member in kind.types if not isinstance(member, types.NoneType)]
        if len(members) != len(kind.types) and node.is_null:
            return None
        words = next((each for each in members if isinstance(each, types.LiteralType)), None)
        if words is not None and node.kind == "scalar" and node.text in words.values:
            return node.text
        try:
            return convert(node, members[0])
        except Bad as bad:
            if bad.node is node:
                raise Bad(node, expected(kind), bad.hint, bad.found) from None
            raise
    if isinstance(kind, types.AnyType):
        return to_plain(node)
    if isinstance(kind, types.VarTupleType):
        if node.kind != "list":
            raise Bad(node, expected(kind), "write it as a list: [a, b]")
        return tuple(convert(item, kind.item_type) for item in node.items)
    if isinstance(kind, types.DictType):
        if node.is_null:
            return {}
        if node.kind != "map":
            raise Bad(node, expected(kind))
        return {key.text: convert(value, kind.value_type) for key, value in node.pairs}
    if isinstance(kind, types.StructType):
        return _mapping(node, kind)
    if node.kind != "scalar":
        raise Bad(node, expected(kind))
    return _scalar(node, kind)


def _mapping(node: Node, kind: types.StructType) -> dict[str, Any]:
    """A mapping with the keys of a section, as plain data; keys that have defaults may be missing."""
    if node.kind != "map":
        raise Bad(node, expected(kind))
    fields = {field.name: field for field in kind.fields}
    for key, _ in node.pairs:
        if key.text not in fields:
            shown_key = f"the key {shown(key.text)}" if key.text.isidentifier() else "a key (not shown)"
            raise Bad(node, expected(kind), did_you_mean(key.text, fields), shown_key)
    given = {key.text: convert(value, fields[key.text].type) for key, value in node.pairs}
    missing = [name for name, field in fields.items() if field.required and name not in given]
    if missing:
        raise Bad(node, expected(kind), f"{missing[0]} is missing")
    return given


def _scalar(node: Node, kind: types.Type) -> Any:
    if isinstance(kind, types.StrType):
        return _text(node, kind)
    if isinstance(kind, types.LiteralType):
        if node.text in kind.values:
            return node.text
        words = [str(value) for value in kind.values]
        raise Bad(node, expected(kind), did_you_mean(node.text, words))
    if node.is_null:
        raise Bad(node, expected(kind), "give a value, or remove the line to keep the default")
    if not node.plain:
        raise Bad(node, expected(kind), "remove the quotes" if _would_fit(node, kind) else "")
    if isinstance(kind, types.BoolType):
        word = node.text.lower()
        if word in TRUE or word in FALSE:
            return word in TRUE
        raise Bad(node, expected(kind))
    if isinstance(kind, types.IntType):
        return _whole(node, kind)
    if isinstance(kind, types.FloatType):
        return _number(node, kind)
    raise TypeError(f"no conversion to {kind!r}")  # a new type in the schema


def _would_fit(node: Node, kind: types.Type) -> bool:
    try:
        _scalar(Node("scalar", node.where, text=node.text, plain=True), kind)
    except Bad:
        return False
    return True


def _text(node: Node, kind: types.StrType) -> str:
    text = "" if node.is_null else node.text
    if any(ord(char) < 32 or ord(char) == 127 or not (char.isprintable() or char.isspace()) for char in text):
        raise Bad(node, "a string on one line, without control characters")
    if kind.min_length and len(text) < kind.min_length:
        raise Bad(node, expected(kind))
    return text


def _whole(node: Node, kind: types.IntType) -> int:
    text = node.text
    if not _INT.fullmatch(text):
        hint = ""
        if _FLOAT.fullmatch(text):
            hint = "a whole number must not have a decimal point or an exponent"
        elif re.fullmatch(r"0[xXoObB][0-9a-fA-F_]+|[0-9]+(:[0-9]+)+", text):
            hint = "write it in plain decimal digits"
        raise Bad(node, expected(kind), hint)
    digits = text.lstrip("+-").replace("_", "")
    if len(digits) > 1 and digits[0] == "0":
        raise Bad(node, expected(kind), "a leading zero is ambiguous (YAML 1.1 reads it as octal): remove it")
    if len(digits) > _MAX_DIGITS:
        raise Bad(node, expected(kind))
    value = int(text.replace("_", ""))
    _check_range(node, kind, value)
    return value


def _number(node: Node, kind: types.FloatType) -> float:
    if node.text.lower().lstrip("+-") in (".inf", ".nan", "inf", "nan"):
        raise Bad(node, expected(kind), "the number must be finite")
    if not _FLOAT.fullmatch(node.text):
        raise Bad(node, expected(kind))
    value = float(node.text.replace("_", ""))
    if value in (float("inf"), float("-inf")):
        raise Bad(node, expected(kind), "the number must be finite")
    _check_range(node, kind, value)
    return value


def _check_range(node: Node, kind: types.IntType | types.FloatType, value: float) -> None:
    fits = (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
    )
    if not fits:
        raise Bad(node, expected(kind))


def plain_type(kind: types.Type) -> types.Type:
    """``kind`` without msgspec's metadata wrapper. Metadata with ``choices`` (a function that returns the allowed
    words) gives a literal type of them."""
    while isinstance(kind, types.Metadata):
        choices = (kind.extra or {}).get("choices")
        kind = kind.type if choices is None else types.LiteralType(choices())
    return kind


def is_text(kind: types.Type) -> bool:
    """Whether ``kind`` is text or a choice of words, or null: its values on the command line need no YAML quotes."""
    kind = plain_type(kind)
    if isinstance(kind, types.UnionType):
        return all(isinstance(member, types.NoneType) or is_text(member) for member in kind.types)
    return isinstance(kind, types.StrType | types.LiteralType)


def expected(kind: types.Type) -> str:
    """What a key of type ``kind`` accepts, for an error message: ``a whole number from 0 to 65535``."""
    kind = plain_type(kind)
    if isinstance(kind, types.UnionType):
        return " or ".join(expected(member) for member in kind.types)
    if isinstance(kind, types.NoneType):
        return "null"
    if isinstance(kind, types.AnyType):
        return "as its text says"
    if isinstance(kind, types.BoolType):
        return "true or false"
    if isinstance(kind, types.LiteralType):
        return ("one of " if len(kind.values) > 1 else "") + ", ".join(str(value) for value in kind.values)
    if isinstance(kind, types.IntType):
        return "a whole number" + _range(kind)
    if isinstance(kind, types.FloatType):
        return "a number" + _range(kind)
    if isinstance(kind, types.StrType):
        return "a string that is not empty" if kind.min_length else "text"
    if isinstance(kind, types.VarTupleType):
        return f"a list; each item {expected(kind.item_type)}"
    if isinstance(kind, types.StructType):
        return f"a mapping with {', '.join(field.name for field in kind.fields)}"
    return "a mapping of keys to values"


def _range(kind: types.IntType | types.FloatType) -> str:
    low = f">= {kind.ge:g}" if kind.ge is not None else f"> {kind.gt:g}" if kind.gt is not None else ""
    high = f"<= {kind.le:g}" if kind.le is not None else f"< {kind.lt:g}" if kind.lt is not None else ""
    if kind.ge is not None and kind.le is not None and isinstance(kind, types.IntType):
        return f" from {kind.ge} to {kind.le}"
    return "".join(f" {part}" for part in (low, "and" if low and high else "", high) if part)


def to_plain(node: Node) -> Any:
    """The value of a key without a type of its own: null, true/false, an integer, a float, text, a list or a mapping.

    Text that looks like a number but is ambiguous (``007``, ``1:30``) stays text.
    """
    if node.kind == "map":
        return {key.text: to_plain(value) for key, value in node.pairs}
    if node.kind == "list":
        return [to_plain(item) for item in node.items]
    if node.is_null:
        return None
    if not node.plain or node.tag == "str":
        return node.text
    if node.text in ("true", "True", "TRUE"):
        return True
    if node.text in ("false", "False", "FALSE"):
        return False
    kind = types.IntType() if _INT.fullmatch(node.text) else types.FloatType()
    try:
        return _whole(node, kind) if isinstance(kind, types.IntType) else _number(node, kind)
    except Bad:
        return node.text  # 007, 1:30, a very long number
