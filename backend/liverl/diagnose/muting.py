"""Which alerts a user has muted: ``diagnosis.mute`` lists their ids. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from liverl.model import Symptom


def mutes(mute: Collection[str], alert: str) -> bool:
    """Whether the alert with this id is muted: by its whole id (``replica_idle:replica-1``), or by the part of it that
    names a kind of alert (``replica_idle``, and of an alert from a log ``log:SIGNATURE``)."""
    return any(alert == one or alert.startswith(f"{one}:") for one in mute)


def muted_words(muted: Iterable[Symptom]) -> str | None:
    """``2 alerts, by diagnosis.mute: truncated_share, replica_idle:replica-1``; None without any."""
    ids = [one.id for one in muted]
    if not ids:
        return None
    return f"{len(ids)} alert{'' if len(ids) == 1 else 's'}, by diagnosis.mute: {', '.join(ids)}"
