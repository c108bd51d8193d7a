"""Whether the address on which the run's Ray head listens for other hosts is one of this host's."""

from __future__ import annotations

import ipaddress

from liverl.config.schema import RunConfig
from liverl.external.port_holders import own_addresses
from liverl.model import Check

NAME = "head address"


def here(config: RunConfig) -> Check:
    """``check`` for this host."""
    return check(config.infrastructure.node0_ip, own_addresses())


def check(address: str, own: frozenset[str]) -> Check:
    """``infrastructure.node0_ip`` against the addresses of this host. Pure."""
    usable = sorted(one for one in own if not ipaddress.ip_address(one).is_loopback)
    if address in usable:
        return Check(NAME, "ok", f"Ray's head listens on {address} for the other hosts")
    listed = ", ".join(usable) or "none but loopback"
    if ipaddress.ip_address(address).is_loopback:
        words = "this host has no default route, so the address for the other hosts is not known"
        text = f"{words}; set infrastructure.node0_ip to one of its addresses: {listed}"
        return Check(NAME, "fail", text)
    text = f"infrastructure.node0_ip {address} is not an address of this host, which has {listed}"
    fix = "set it to one of these, or start the run on the host that has it"
    return Check(NAME, "fail", text, fix=fix)
