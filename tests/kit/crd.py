"""Whether a manifest fits a definition of Kubernetes: types, values, what is required, and keys that Kubernetes would
drop in silence. Without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def faults(value: Any, schema: dict[str, Any], path: str = "spec") -> Iterator[str]:
    """Each place of ``value`` that does not fit ``schema`` (OpenAPI v3, as in a CustomResourceDefinition)."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield f"{path}: {value!r} is neither a number nor a text"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{path}: {value!r} is not {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, dict):
        yield from _of_object(value, schema, path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), f"{path}[{index}]")


def _of_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    properties, more = schema.get("properties"), schema.get("additionalProperties")
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}: {name} is required"
    for name, inner in value.items():
        if properties and name in properties:
            yield from faults(inner, properties[name], f"{path}.{name}")
        elif isinstance(more, dict):
            yield from faults(inner, more, f"{path}.{name}")
        elif properties is not None and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}: unknown, and dropped in silence"
