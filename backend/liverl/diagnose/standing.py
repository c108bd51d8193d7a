"""The alerts that stand where a backend ended: those of its last snapshot, which may be seconds old, and what its
events have told since. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import msgspec

from liverl.diagnose.levels import LEVELS
from liverl.model import Event, Symptom

_Severity = Literal["info", "warning", "critical"]
# Level of an event -> severity of its alert
_SEVERITIES: dict[str, _Severity] = {LEVELS[severity]: severity for severity in get_args(_Severity)}


class Standing(NamedTuple):
    """``symptoms``: the alerts; ``muted``: ids of muted ones that were named."""

    symptoms: tuple[Symptom, ...]
    muted: frozenset[str]


def standing(symptoms: Iterable[Symptom], muted: Iterable[str], later: Iterable[Event]) -> Standing:
    """``symptoms`` and ``muted``: of the last snapshot; ``later``: the events after it, oldest first. An alert that
    only an event tells has its words, and no evidence."""
    known, named = {one.id: one for one in symptoms}, set(muted)
    for event in later:
        name = event.data.get("id")
        if not isinstance(name, str):
            continue
        if event.kind == "symptom_muted":
            named.add(name)
        elif event.kind == "symptom" and event.data.get("what") == "cleared":
            known.pop(name, None)
        elif event.kind == "symptom":
            known[name] = _told(event, name, known.get(name))
    return Standing(tuple(known.values()), frozenset(named))


def _told(event: Event, name: str, known: Symptom | None) -> Symptom:
    severity = _SEVERITIES.get(event.level, "info")
    if known is not None:
        return msgspec.structs.replace(known, severity=severity)
    title, fix = (str(event.data.get(key, "")) for key in ("title", "fix"))
    cause = event.text.removeprefix(title).lstrip(":. ")
    return Symptom(name, severity, title or event.text, cause, fix, since=event.at)
