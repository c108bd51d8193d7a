"""The network interface over which the hosts of a run talk."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.config import conditions
from liverl.config.schema import RunConfig
from liverl.external.port_holders import interface_of, own_interfaces
from liverl.hosts.lacks import no_interface
from liverl.model import Check

NAME = "network interface"


def interface(config: RunConfig) -> Check | None:
    """``check`` for this host."""
    head = config.infrastructure.node0_ip if conditions.joined_hosts(config) else ""
    return check(config.network.interface, own_interfaces(), head, interface_of(head) if head else "")


def check(name: str, own: Mapping[str, bool], head: str, of_head: str) -> Check | None:
    """``network.interface`` against those of this host; None without it. ``head``: the address of the run's own Ray
    head for other hosts, "" if there is none; ``of_head``: the interface that has it, "" if that is not known. Pure."""
    if not name:
        return None
    if wrong := no_interface(name, own):
        return Check(
            NAME, "fail", wrong, fix="set it to one that every host has under the same name: ip -br addr"
        )
    if of_head and of_head != name:
        text = f"network.interface is {name}, but the other hosts reach Ray at {head}, which is an address of {of_head}"
        return Check(NAME, "warn", text, fix=f"set infrastructure.node0_ip to an address of {name}")
    return Check(NAME, "ok", f"{name}, for NCCL, gloo and TensorPipe")
