"""How many networks a Docker daemon can still create: each trial has one of its own. Pure but for ``routes``."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Network

import msgspec

from liverl.util.kernel_file import read_kernel

# Address ranges of a daemon that is configured with none, and the size of the networks in them (libnetwork
# ``ipamutils``: PredefinedLocalScopeDefaultNetworks; the same in 20.10 and 28).
DEFAULT_POOLS = (
    ("172.17.0.0/16", 16), ("172.18.0.0/16", 16), ("172.19.0.0/16", 16), ("172.20.0.0/14", 16),
    ("172.24.0.0/14", 16), ("172.28.0.0/14", 16), ("192.168.0.0/16", 20),
)  # fmt: skip
LARGER = "base=10.200.0.0/16,size=24"  # a value of ``dockerd --default-address-pool``: 256 networks
_MOST = 1 << 16  # networks of a range that are counted


class Network(msgspec.Struct, frozen=True):
    """A network as ``docker network inspect`` has it. ``run_id``: of the run of ours that it belongs to, "" if it is
    not ours; ``used``: whether a running container is in it."""

    id: str
    name: str
    subnets: tuple[str, ...] = ()
    run_id: str = ""
    used: bool = False


class Networks(msgspec.Struct, frozen=True):
    """``free``: networks that can still be created, None if that is not known; ``total``: of the daemon's ranges;
    ``idle``: networks of ours without a running container."""

    free: int | None
    total: int
    idle: tuple[Network, ...] = ()


class Pool(msgspec.Struct, frozen=True, rename="pascal"):
    """A range of addresses, as ``docker info`` tells it."""

    base: str
    size: int


def counted(
    pools: Iterable[Pool] | None, networks: Iterable[Network], taken: Iterable[IPv4Network]
) -> Networks:
    """How many networks are free. ``pools``: None for Docker's own; ``taken``: what the daemon's host routes
    elsewhere, where the daemon makes no network."""
    found = list(networks)
    used = [net for one in found for net in map(_network, one.subnets) if net is not None]
    used += [net for net in taken if net.prefixlen]
    ranges = [(p.base, p.size) for p in pools] if pools else list(DEFAULT_POOLS)
    free = total = 0
    for base, size in ranges:
        whole = _network(base)
        if whole is None or not whole.prefixlen <= size <= 32 or 1 << (size - whole.prefixlen) > _MOST:
            continue  # of IPv6, from which networks of trials get nothing, or too large to be used up
        near = [net for net in used if net.overlaps(whole)]
        for part in whole.subnets(new_prefix=size):
            total += 1
            free += not any(net.overlaps(part) for net in near)
    return Networks(free if total else None, total, tuple(n for n in found if n.run_id and not n.used))


def routes() -> list[IPv4Network]:
    """What this machine routes; empty if it does not say."""
    try:
        lines = read_kernel("/proc/net/route").decode().splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        address, mask = (socket.inet_ntoa(struct.pack("<I", int(fields[i], 16))) for i in (1, 7))
        found.append(IPv4Network((address, mask), strict=False))
    return found


def _network(text: str) -> IPv4Network | None:
    try:
        return IPv4Network(text, strict=False)
    except (ipaddress.AddressValueError, ValueError):
        return None
