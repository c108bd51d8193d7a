"""Journal records of notifications, so that a backend that takes over sends each event once. Pure.

Records of the kind ``notify``; ``what`` is one of: ``begin`` (events up to ``upto`` are nobody's news), ``message``
(these events, ``seqs``, are told by this message to these targets), ``try`` (a delivery is about to begin) and ``end``
(the target has it, or will not get it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from liverl.notify.message import Message

KIND = "notify"


class Begin(msgspec.Struct, frozen=True, tag_field="what", tag="begin"):
    """Notifications begin: no event up to number ``upto`` is told."""

    upto: int


class Formed(msgspec.Struct, frozen=True, tag_field="what", tag="message"):
    """A message on the events with the numbers ``seqs``. ``targets``: identities; ``final``: it tells how the run has
    ended; ``at``: Unix time of the record."""

    message: Message
    seqs: tuple[int, ...]
    targets: tuple[str, ...]
    final: bool = False
    at: float = 0.0


class Try(msgspec.Struct, frozen=True, tag_field="what", tag="try"):
    """Delivery number ``n`` of a message to a target is about to begin."""

    id: str
    target: str
    n: int


class End(msgspec.Struct, frozen=True, tag_field="what", tag="end"):
    """A target has a message (``ok``), or never gets it."""

    id: str
    target: str
    ok: bool


Record: TypeAlias = Begin | Formed | Try | End


def journal_record(record: Record) -> dict[str, Any]:
    """A record as the journal has it; the journal adds the time."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    plain.pop("at", None)
    return {"k": KIND, **plain}


@dataclass
class Open:
    """A message that is not delivered to a target. ``tries``: deliveries that have begun; the last one's outcome is not
    known."""

    formed: Formed
    tries: int = 0


@dataclass
class Past:
    """``upto``: events up to this number need not be looked at; None: there were no notifications before. ``told``:
    numbers of the events after it that a message tells. ``open``: by target, what it has yet to get."""

    upto: int | None = None
    told: set[int] = field(default_factory=set)
    open: dict[str, dict[str, Open]] = field(default_factory=dict)


def read_past(records: Iterable[Mapping[str, Any]], *, damaged: bool = False) -> Past:
    """The notifications of a run from its journal. Records of other kinds, and those that cannot be read, are skipped.
    ``damaged``: lines of the journal are lost: then events before the newest record count as told, since nobody must
    be told of an event twice."""
    past, highest = Past(), 0
    for plain in records:
        if plain.get("k") != KIND:
            continue
        try:
            record: Record = msgspec.convert(dict(plain), Record)
        except msgspec.ValidationError:
            damaged = True
            continue
        match record:
            case Begin(upto=upto):
                past.upto = upto
                highest = max(highest, upto)
            case Formed(message=message, seqs=seqs, targets=targets):
                past.told.update(seqs)
                highest = max(highest, *seqs)
                for target in targets:
                    past.open.setdefault(target, {})[message.id] = Open(record)
            case Try(id=name, target=target, n=number):
                if (one := past.open.get(target, {}).get(name)) is not None:
                    one.tries = max(one.tries, number)
            case End(id=name, target=target):
                past.open.get(target, {}).pop(name, None)
    if damaged and (past.upto is not None or highest):
        past.upto = max(past.upto or 0, highest)
    return past
