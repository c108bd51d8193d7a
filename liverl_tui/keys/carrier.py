"""The words of the key that restarts what carries the trials of this run: the proxy or the sessions. Pure."""

from __future__ import annotations

from dataclasses import replace

from liverl.model import IN_WORKERS, Snapshot
from liverl_tui.keys.key import Key

RESTARTS_CARRIER = "app.restart_carrier"


def has_carrier_service(snapshot: Snapshot | None) -> bool:
    """Whether the key has something to restart: in topology in_process verl's workers host the sessions. True before
    the first snapshot."""
    return snapshot is None or snapshot.topology != "in_process"


def worded(key: Key, snapshot: Snapshot | None) -> Key:
    """``key`` as this run's key bar, help and palette show it. ``snapshot``: None before the first one, where the proxy
    is meant."""
    if key.id != RESTARTS_CARRIER or snapshot is None or snapshot.carrier == "proxy":
        return key
    if not has_carrier_service(snapshot):
        return replace(key, label="restart sessions", help=f"Not in this run: {IN_WORKERS}")
    return replace(key, label="restart sessions", help="Restart the sessions, which carry the trials (asks)")
