"""The JSON form of a snapshot: ``snapshot.json``, ``status --json`` and the control socket.

In Python a replica holds its engine's values in ``ReplicaStatus.engine``; in JSON these fields are on the same level as
the replica's own, except for those that only the backend uses. Both directions use the fields of the structs, so a
new field needs no edit here. ``FlatSnapshot`` is the type of the JSON form.
"""

from __future__ import annotations

import re
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from liverl.model import (
    EngineFacts,
    Evidence,
    ReplicaSet,
    ReplicaStatus,
    Snapshot,
    Symptom,
    TrialHead,
    published_facts,
)
from liverl.util import redact, redacted_json
from liverl.util.decode import JsonDecoder
from liverl.util.late_pattern import late_pattern

_ENGINE = "engine"
_OWN = tuple(field for field in ReplicaStatus.__struct_fields__ if field != _ENGINE)
_FACTS = published_facts()


# Of a struct; to find the types of all fields takes milliseconds.
_fields = cache(msgspec.structs.fields)


def _definitions(struct: type[msgspec.Struct], **types: Any) -> list[Any]:
    """The fields of ``struct`` as ``defstruct`` takes them; ``types`` replaces the types of some."""
    definitions: list[Any] = []
    for field in _fields(struct):
        kind = types.get(field.name, field.type)
        if field.required:
            definitions.append((field.name, kind))
        elif field.default is msgspec.NODEFAULT:
            definitions.append((field.name, kind, msgspec.field(default_factory=field.default_factory)))
        else:
            definitions.append((field.name, kind, field.default))
    return definitions


# The values of a replica's flat form, in the order of ``_replica``.
_flat_values = attrgetter(*_OWN, *(f"{_ENGINE}.{name}" for name in _FACTS))
_own_values, _fact_values = attrgetter(*_OWN), attrgetter(*_FACTS)  # and back, of the flat form
_replica = [field for field in _definitions(ReplicaStatus) if field[0] != _ENGINE]
_replica += [field for field in _definitions(EngineFacts) if field[0] in _FACTS]
_FlatReplica = msgspec.defstruct("_FlatReplica", _replica, frozen=True, gc=False)
_items: Any = tuple[_FlatReplica, ...]  # type: ignore[valid-type]  # built at run time above
_FlatReplicas = msgspec.defstruct("_FlatReplicas", _definitions(ReplicaSet, items=_items), frozen=True)
FlatSnapshot = msgspec.defstruct("FlatSnapshot", _definitions(Snapshot, replicas=_FlatReplicas), frozen=True)
# With schema 1 evidence was text, which named a log in this form.
_OLD_PLACE = late_pattern(r"(attempt_\d+/logs/[^/\n]+\.\d+\.log)(?: at byte (\d{1,18}): (.*)|$)", re.DOTALL)
_evidence: Any = tuple[Evidence | str, ...]
_ReadSymptom = msgspec.defstruct("_ReadSymptom", _definitions(Symptom, evidence=_evidence), frozen=True)
_symptoms: Any = tuple[_ReadSymptom, ...]  # type: ignore[valid-type]  # built at run time above
_ReadSnapshot = msgspec.defstruct(
    "_ReadSnapshot", _definitions(Snapshot, replicas=_FlatReplicas, symptoms=_symptoms), frozen=True
)
_decoder: JsonDecoder[Any] = JsonDecoder(_ReadSnapshot, bounded=False)  # changes and values of an alert
_clean = redacted_json.CleanTexts()


# As a replica and a head above, for views: what has its default, which is most of it, is left out, and comes back when
# they decode it. Made at the first use: those who only read need them not.


@cache
def _small_replica() -> Any:
    return msgspec.defstruct("_SmallReplica", _replica, frozen=True, omit_defaults=True, gc=False)


@cache
def _small_head() -> Any:
    return msgspec.defstruct("_SmallHead", _definitions(TrialHead), frozen=True, omit_defaults=True, gc=False)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """``snapshot`` as JSON text in UTF-8, without secrets: a cause may quote a log, a message an address."""
    return redacted_json.encode(_flat(snapshot, _FlatReplica), _clean)


def encode_for_views(snapshot: Snapshot) -> bytes:
    """As ``encode_snapshot``, for ``decode_snapshot`` alone: trials and replicas without what has its default. On 64
    hosts that is two thirds of the bytes, which may be sent twice a second."""
    flat = _flat(snapshot, _small_replica())
    heads = msgspec.convert(flat.trials.newest, tuple[_small_head(), ...], from_attributes=True)  # type: ignore[misc]
    trials = msgspec.structs.replace(flat.trials, newest=heads)
    return redacted_json.encode(msgspec.structs.replace(flat, trials=trials), _clean)


def plain_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """``snapshot`` as dictionaries and lists, in the shape of its JSON form, and without secrets as that one."""
    plain: dict[str, Any] = redact.document(msgspec.to_builtins(_flat(snapshot, _FlatReplica)))
    return plain


def decode_snapshot(data: bytes | msgspec.Raw, *, shallow: bool = False) -> Snapshot:
    """The snapshot in ``data``, also one that an older version wrote. ``shallow``: see ``JsonDecoder.decode``.

    Raises:
        msgspec.DecodeError: ``data`` is not JSON, or not a snapshot (ValidationError).
    """
    flat = _decoder.decode(data, shallow=shallow)
    items = tuple(map(_replica_read, flat.replicas.items))
    values = {name: getattr(flat, name) for name in Snapshot.__struct_fields__}
    replicas = {name: getattr(flat.replicas, name) for name in ReplicaSet.__struct_fields__}
    symptoms = tuple(_symptom(read) for read in flat.symptoms)
    return Snapshot(
        **{**values, "replicas": ReplicaSet(**{**replicas, "items": items}), "symptoms": symptoms}
    )


def _replica_read(item: Any) -> ReplicaStatus:
    facts = EngineFacts(**dict(zip(_FACTS, _fact_values(item), strict=True)))
    return ReplicaStatus(**dict(zip(_OWN, _own_values(item), strict=True)), engine=facts)


def _symptom(read: Any) -> Symptom:
    values = {name: getattr(read, name) for name in Symptom.__struct_fields__}
    evidence = tuple(_older(one) if isinstance(one, str) else one for one in read.evidence)
    return Symptom(**{**values, "evidence": evidence})


def _older(line: str) -> Evidence:
    """What an older version wrote as one line: a log with a byte and its text, a log alone, or any other text."""
    match = _OLD_PLACE.fullmatch(line)
    if match is None:
        return Evidence(line)
    return Evidence(match[3] or "", match[1], None if match[2] is None else int(match[2]))


def _flat(snapshot: Snapshot, replica: Any) -> Snapshot:
    """``snapshot`` with replicas in their flat form ``replica``. Only for the encoder: the types do not fit
    ``Snapshot``."""
    items: Any = tuple(replica(*_flat_values(item)) for item in snapshot.replicas.items)
    replicas = msgspec.structs.replace(snapshot.replicas, items=items)
    return msgspec.structs.replace(snapshot, replicas=replicas)
