"""The JSON form of a snapshot: ``snapshot.json``, ``status --json`` and the control socket.

Inside, a replica nests what its engine says (``ReplicaStatus.engine``); in JSON these fields stand beside the
replica's own, without those that are marked as the backend's own. Both directions go by the fields of the structs, so a
new field needs no edit here. ``FlatSnapshot`` is the form as a type.
"""

from __future__ import annotations

from typing import Any

import msgspec

from liverl.model import EngineFacts, ReplicaSet, ReplicaStatus, Snapshot, published_facts

_ENGINE = "engine"
_OWN = tuple(field for field in ReplicaStatus.__struct_fields__ if field != _ENGINE)
_ALL_FACTS = EngineFacts.__struct_fields__
_FACTS = published_facts()


def _definitions(struct: type[msgspec.Struct], **types: Any) -> list[Any]:
    """The fields of ``struct`` for ``defstruct``; ``types`` replaces the types of some of them."""
    found: list[Any] = []
    for field in msgspec.structs.fields(struct):
        kind = types.get(field.name, field.type)
        if field.required:
            found.append((field.name, kind))
        elif field.default is msgspec.NODEFAULT:
            found.append((field.name, kind, msgspec.field(default_factory=field.default_factory)))
        else:
            found.append((field.name, kind, field.default))
    return found


_FlatReplica = msgspec.defstruct(
    "_FlatReplica",
    [field for field in _definitions(ReplicaStatus) if field[0] != _ENGINE]
    + [field for field in _definitions(EngineFacts) if field[0] in _FACTS],
    frozen=True,
)
_items: Any = tuple[_FlatReplica, ...]  # type: ignore[valid-type]  # made above by the structs' fields
_FlatReplicas = msgspec.defstruct("_FlatReplicas", _definitions(ReplicaSet, items=_items), frozen=True)
FlatSnapshot = msgspec.defstruct("FlatSnapshot", _definitions(Snapshot, replicas=_FlatReplicas), frozen=True)
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(FlatSnapshot)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """``snapshot`` as JSON."""
    return msgspec.json.encode(_flat(snapshot))


def plain_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """``snapshot`` as the dictionaries and lists that its JSON form holds."""
    plain: dict[str, Any] = msgspec.to_builtins(_flat(snapshot))
    return plain


def decode_snapshot(data: bytes | msgspec.Raw) -> Snapshot:
    """A snapshot from JSON, also of an older version.

    Raises:
        msgspec.DecodeError: it is no JSON, or no snapshot (ValidationError).
    """
    flat = _decoder.decode(data)
    items = tuple(
        replica_of({name: getattr(item, name) for name in item.__struct_fields__})
        for item in flat.replicas.items
    )
    values = {name: getattr(flat, name) for name in Snapshot.__struct_fields__}
    replicas = {name: getattr(flat.replicas, name) for name in ReplicaSet.__struct_fields__}
    return Snapshot(**{**values, "replicas": ReplicaSet(**{**replicas, "items": items})})


def replica_of(fields: dict[str, Any]) -> ReplicaStatus:
    """A replica from the fields of its JSON form, the engine's among them. Values are not checked.

    Raises:
        TypeError: a field of neither, or one without a default is missing.
    """
    own = {name: value for name, value in fields.items() if name not in _ALL_FACTS}
    facts = {name: value for name, value in fields.items() if name in _ALL_FACTS}
    return ReplicaStatus(**own, engine=EngineFacts(**facts))


def _flat(snapshot: Snapshot) -> Snapshot:
    """``snapshot`` with flat replicas, which only an encoder may see."""
    items: Any = tuple(
        _FlatReplica(
            **{name: getattr(replica, name) for name in _OWN},
            **{name: getattr(replica.engine, name) for name in _FACTS},
        )
        for replica in snapshot.replicas.items
    )
    replicas = msgspec.structs.replace(snapshot.replicas, items=items)
    return msgspec.structs.replace(snapshot, replicas=replicas)
