"""The keys as one run has them: which of them have nothing to act on in it, and what they are called in it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from liverl.model import IN_WORKERS, Snapshot
from liverl_tui.keys.key import Key

RESTARTS_CARRIER = "app.restart_carrier"
ADDS_REPLICA = "app.add_replica"
REMOVES_REPLICA = "app.remove_replica"
BY_VERL = "verl manages its replicas, and how many there are stays as it is while the run lasts"


def unusable(snapshot: Snapshot | None) -> dict[str, str]:
    """Id of each key that can do nothing in this run -> why. Empty before the first snapshot."""
    if snapshot is None:
        return {}
    whys = {}
    if snapshot.carrier == "workers":
        whys[RESTARTS_CARRIER] = IN_WORKERS
    if snapshot.topology != "managed":
        whys[REMOVES_REPLICA] = BY_VERL
        if not _adds_to_proxy(snapshot):
            whys[ADDS_REPLICA] = BY_VERL
    return whys


def _adds_to_proxy(snapshot: Snapshot) -> bool:
    """Whether a replica that verl has started can be added to the configuration of a proxy that is not ours."""
    proxy = snapshot.carrier_service
    return proxy is not None and proxy.owner != "ours"


def worded(key: Key, snapshot: Snapshot | None) -> Key:
    """``key`` as this run's key bar, help and palette show it. ``snapshot``: None before the first one, where the proxy
    is meant."""
    if snapshot is None:
        return key
    if key.id == RESTARTS_CARRIER and snapshot.carrier != "proxy":
        key = replace(
            key, label="restart sessions", help="Restart the sessions, which carry the trials (asks)"
        )
    why = unusable(snapshot).get(key.id)
    return key if why is None else replace(key, help=f"Not in this run: {why}")
