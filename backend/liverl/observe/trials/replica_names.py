"""The names of replicas by their addresses, as the records of trials have these. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from liverl.model import ReplicaSet, ServiceStatus


def replica_names(services: Iterable[ServiceStatus], replicas: ReplicaSet) -> dict[str, str]:
    """Root address -> name of each replica."""
    known = {one.address: one.name for one in services if one.kind == "replica" and one.address}
    return known | {one.address: one.name for one in replicas.items if one.address}


def replica_name(address: str, names: Mapping[str, str]) -> str:
    """A replica's name for ``address`` as the proxy recorded it: root address, api base, or a name already. An unknown
    address is returned without its scheme. ``names``: see ``replica_names``."""
    bare = address.removesuffix("/chat/completions").rstrip("/").removesuffix("/v1")
    return names.get(bare, bare.partition("://")[2] or bare)
