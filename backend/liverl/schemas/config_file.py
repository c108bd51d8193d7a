"""The JSON Schema of a configuration file, for editors: names, types, ranges, choices, defaults and meanings.

Every key may be missing, and every value that the loader takes fits (``config/coerce.py``); the loader also checks what
a schema cannot say, such as conditions between keys. Descriptions are the comments of ``default.yaml``. Draft 7, which
every YAML language server knows.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect as types

from liverl.config import packaged_defaults
from liverl.config.coerce import expected, plain_type
from liverl.config.layers import KEPT, WORD_LISTS, WRAPPER
from liverl.config.profiles import default_text
from liverl.config.schema import Path, RunConfig, fields, root_type, value_of

_KEY = re.compile(r"( *)([A-Za-z_]\w*):(?: +(?P<value>.*))?")
_COMMENT = re.compile(r"( *)# ?(.*)")
_RULER = re.compile(r"-{3,}.*")
_BEHIND = re.compile(r"(?:^|\s)# (.*)$")
# Text that a number key or a switch takes, where the reader of YAML gives text for it: 1_000, 1e-6, off.
_INT = r"^[+-]?[0-9][0-9_]*$"
_FLOAT = r"^[+-]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][+-]?[0-9]+)?$"
_SWITCH = r"^([Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF)$"
_SWITCHES = {"on": True, "yes": True, "off": False, "no": False}


def config_file() -> dict[str, Any]:
    """The schema of a configuration file of ours, or of LiveRL (``runtime_info.input``)."""
    told, defaults = comments(default_text()), packaged_defaults()
    sections = {name: _shape(kind, (name,), told, defaults) for name, kind in fields(root_type()).items()}
    references = {name: {"$ref": f"#/definitions/{name}"} for name in sections}
    wrapped = {
        "type": ["object", "null"],
        "description": "LiveRL's form of a configuration file.",
        "properties": {
            "input": {"type": ["object", "null"], "properties": references, "additionalProperties": False},
            "output": {},
        },
        "additionalProperties": False,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": ["object", "null"],
        "properties": {**references, WRAPPER: wrapped, **{name: {} for name in KEPT}},
        "additionalProperties": False,
        "definitions": sections,
    }


def comments(text: str) -> dict[Path, str]:
    """What the comments of ``default.yaml`` say of each key: those above it, behind it, and their further lines. A line
    keeps the spaces before its text, since entries of lists go on in indented lines."""
    said: dict[Path, list[str]] = {}
    stack: list[tuple[int, str]] = []
    above: list[str] = []
    # The key whose comment may go on in the next line, and that comment's column
    last: tuple[Path, int] | None = None
    for line in text.splitlines():
        if comment := _COMMENT.fullmatch(line):
            if last is not None and len(comment[1]) == last[1]:
                said[last[0]].append(comment[2].rstrip())
            elif not _RULER.fullmatch(comment[2]):
                above.append(comment[2].rstrip())
                last = None
            continue
        key = _KEY.match(line)
        if key is None:
            above, last = [], None
            continue
        stack = [(indent, name) for indent, name in stack if indent < len(key[1])]
        stack.append((len(key[1]), key[2]))
        path = tuple(name for _, name in stack)
        behind = _BEHIND.search(line, key.end(2))
        said[path] = [*above, *([behind[1].strip()] if behind else [])]
        above, last = [], (path, line.index("# ", behind.start())) if behind else None
    return {path: "\n".join(lines) for path, lines in said.items() if lines}


def _shape(kind: types.Type, path: Path, told: dict[Path, str], defaults: RunConfig) -> dict[str, Any]:
    """The schema of the value of ``path``; of a key its default and what it means are with it."""
    kind = plain_type(kind)
    shape: dict[str, Any]
    if isinstance(kind, types.StructType):
        shape = {
            "type": ["object", "null"],
            "properties": {
                name: _shape(inner, (*path, name), told, defaults) for name, inner in fields(kind).items()
            },
            "additionalProperties": False,
        }
    elif isinstance(kind, types.DictType):
        shape = {
            "type": ["object", "null"],
            "additionalProperties": _shape(kind.value_type, (*path, "*"), told, defaults),
        }
        if path in WORD_LISTS:
            shape["type"] = ["object", "array", "null"]
            shape["items"] = {"type": ["string", "object"]}
    else:
        shape = _value(kind)
        # null is left out: yaml-language-server offers a section with the defaults of its keys, and takes that of a
        # text for a text; with null it fails, and offers neither this section nor any behind it.
        if "*" not in path and (default := value_of(defaults, ".".join(path))) is not None:
            shape["default"] = default
    if path in told:
        shape["description"] = told[path]
    return shape


def _value(kind: types.Type) -> dict[str, Any]:
    """The schema of a value that ``config/coerce.py`` converts as a whole."""
    kind = plain_type(kind)
    match kind:
        case types.UnionType():
            members = [plain_type(one) for one in kind.types]
            shapes = [_value(one) for one in members if not isinstance(one, types.NoneType)]
            either = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
            return _or_null(either) if len(shapes) < len(members) else either
        case types.AnyType():
            return {}
        case types.StrType():
            shape: dict[str, Any] = {"type": ["string", "number", "boolean"]}
            return {**shape, "minLength": kind.min_length} if kind.min_length else _or_null(shape)
        case types.LiteralType():
            # YAML 1.1 reads the words on, off, yes and no as switches.
            return {"enum": [*kind.values, *(_SWITCHES[str(v)] for v in kind.values if v in _SWITCHES)]}
        case types.BoolType():
            return _text_too("boolean", _SWITCH, kind)
        case types.IntType():
            return {**_text_too("integer", _INT, kind), **_range(kind)}
        case types.FloatType():
            return {**_text_too("number", _FLOAT, kind), **_range(kind)}
        case types.VarTupleType():
            return {"type": "array", "items": _value(kind.item_type)}
        case types.DictType():
            return {"type": ["object", "null"], "additionalProperties": _value(kind.value_type)}
        case types.StructType():
            required = [field.name for field in kind.fields if field.required]
            return {
                "type": "object",
                "properties": {name: _value(inner) for name, inner in fields(kind).items()},
                "additionalProperties": False,
                **({"required": required} if required else {}),
            }
    raise TypeError(f"no schema for {kind!r}")  # a new type of the configuration


def _text_too(name: str, pattern: str, kind: types.Type) -> dict[str, Any]:
    return {"type": [name, "string"], "pattern": pattern, "patternErrorMessage": f"expected {expected(kind)}"}


def _or_null(shape: dict[str, Any]) -> dict[str, Any]:
    if "enum" in shape:
        return {**shape, "enum": [*shape["enum"], None]}
    if "type" not in shape:
        return shape
    found = shape["type"] if isinstance(shape["type"], list) else [shape["type"]]
    return {**shape, "type": [*(one for one in found if one != "null"), "null"]}


def _range(kind: types.IntType | types.FloatType) -> dict[str, Any]:
    words = {"minimum": kind.ge, "exclusiveMinimum": kind.gt, "maximum": kind.le, "exclusiveMaximum": kind.lt}
    return {word: bound for word, bound in words.items() if bound is not None}
