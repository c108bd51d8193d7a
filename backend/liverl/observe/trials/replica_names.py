"""The names of replicas by their addresses, as the records of trials have these. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from liverl.model import Event, ReplicaSet, ServiceStatus


def replica_names(services: Iterable[ServiceStatus], replicas: ReplicaSet) -> dict[str, str]:
    """Root address -> name of each replica."""
    known = {one.address: one.name for one in services if one.kind == "replica" and one.address}
    return known | {one.address: one.name for one in replicas.items if one.address}


_REPORTED = " reported its address "


def reported(name: str, address: str) -> str:
    """The text of the event with which a replica of verl's tells its address."""
    return f"{name}{_REPORTED}{address}"


def addresses_told(events: Iterable[Event]) -> dict[str, str]:
    """Root address -> name of each replica of verl's that an event tells: an ended one has no address."""
    return {
        event.text.partition(_REPORTED)[2]: event.service
        for event in events
        if event.kind == "discovery" and event.service and _REPORTED in event.text
    }


def replica_name(address: str, names: Mapping[str, str]) -> str:
    """A replica's name for ``address`` as the proxy recorded it: root address, api base, or a name already. An unknown
    address is returned without its scheme. ``names``: see ``replica_names``."""
    bare = address.removesuffix("/chat/completions").rstrip("/").removesuffix("/v1")
    return names.get(bare, bare.partition("://")[2] or bare)
