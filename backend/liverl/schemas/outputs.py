"""The JSON Schema of what this program writes, from the struct that it encodes.

msgspec makes the schema of what it *accepts*. What is written says more: a field with a default is written, too, unless
its struct leaves defaults out. Further fields are allowed, since later versions may add some.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from liverl.model import SCHEMA, Event, Result
from liverl.snapshot_json import FlatSnapshot

_DEFINED = "#/$defs/"


def output(struct: Any) -> dict[str, Any]:
    """The schema of one ``struct`` as it is written, with the structs below it in ``$defs``."""
    return _written((struct,))


def status() -> dict[str, Any]:
    """The schema of ``status --json``: a snapshot, with ``live`` and, of a run without a backend, its last events. Of a
    run whose files hold no state it is short: that is the second branch."""
    whole = _written((FlatSnapshot,))
    snapshot = whole.pop("$ref").removeprefix(_DEFINED)
    definition = whole["$defs"][snapshot]
    definition["description"] = "The whole state of a run at one moment."
    more = {
        "live": {"type": "boolean", "description": "A backend supervises the run; absent in snapshot.json."},
        "events": {
            "type": "array",
            "items": _below(whole, Event),
            "description": "If not live: the last ones.",
        },
    }
    definition["properties"] |= more
    short = {
        "type": "object",
        "description": "A run without a backend, of which no state is recorded.",
        "properties": {
            "schema": {"const": SCHEMA},
            "live": {"const": False},
            "run": {"type": "string"},
            "run_dir": {"type": "string"},
            "state": {"type": "string"},
            "result": {"anyOf": [_below(whole, Result), {"type": "null"}]},
            "events": more["events"],
        },
        "required": ["schema", "live", "run", "run_dir", "state", "result", "events"],
        "not": {"required": ["services"]},
    }
    return {"anyOf": [{"$ref": f"{_DEFINED}{snapshot}"}, short], "$defs": whole["$defs"]}


def _below(whole: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """A reference to ``struct``, whose definition is added where it is missing."""
    own = _written((struct,))
    whole["$defs"] |= {name: body for name, body in own["$defs"].items() if name not in whole["$defs"]}
    return {"$ref": own["$ref"]}


def _written(types: tuple[Any, ...]) -> dict[str, Any]:
    (reference,), definitions = msgspec.json.schema_components(types, ref_template=_DEFINED + "{name}")
    definitions = copy.deepcopy(definitions)
    structs = _structs(types)
    for name, body in definitions.items():
        struct = structs.get(name)
        if struct is None:
            continue
        for field in body.get("properties", {}).values():
            field.pop("default", None)  # a reader fills in nothing
        if not struct.__struct_config__.omit_defaults:
            body["required"] = list(struct.__struct_encode_fields__)
        if "schema" in body["properties"]:
            body["properties"]["schema"] = {"const": SCHEMA}
        body["description"] = " ".join((body.get("description") or "").replace("``", "`").split())
    return {**reference, "$defs": {name: definitions[name] for name in sorted(definitions)}}


def _structs(types: tuple[Any, ...]) -> dict[str, type[msgspec.Struct]]:
    """The structs that a value of ``types`` can hold, by their names."""
    found: dict[str, type[msgspec.Struct]] = {}
    seen: set[int] = set()
    queue: list[Any] = list(msgspec.inspect.multi_type_info(types))
    while queue:
        kind = queue.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        if isinstance(kind, msgspec.inspect.StructType):
            found[kind.cls.__name__] = kind.cls
            queue += [field.type for field in kind.fields]
        elif isinstance(kind, msgspec.inspect.UnionType):
            queue += kind.types
        elif isinstance(kind, msgspec.inspect.DictType):
            queue += [kind.key_type, kind.value_type]
        else:
            queue += [
                inner
                for name in ("type", "item_type", "item_types")
                for inner in _listed(getattr(kind, name, None))
            ]
    return found


def _listed(inner: Any) -> tuple[Any, ...]:
    if inner is None:
        return ()
    return inner if isinstance(inner, tuple) else (inner,)
