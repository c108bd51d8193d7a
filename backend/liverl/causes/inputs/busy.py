"""A host that was too busy, as the likeliest cause of what did not start in time on it. Pure."""

from __future__ import annotations

import msgspec

from liverl.model import Cause

# Processes that want to run, per CPU: with four, each gets a quarter of one, and what takes 10 s alone takes 40 s. Ray
# waits 30 s for a node to start (ray/_private/node.py).
HIGH = 4.0


def with_load(found: Cause, load: float, cpus: int) -> Cause:
    """``found``, of something that was too late, with the load of its host said first where that is at least ``HIGH``
    per CPU. ``load``: the mean of one minute, as of ``uptime``."""
    if load < HIGH * cpus:
        return found
    busy = f"This host was overloaded: {load:.0f} processes wanted to run on {cpus} CPU{'' if cpus == 1 else 's'}"
    return msgspec.structs.replace(
        found,
        why=f"{busy} (load of the last minute), so the start took too long. If that was not it: {found.why}",
        fix=f"End what else runs on this host, or wait until its load (uptime) is below {cpus}, and start again. If "
        f"it then happens again: {found.fix}",
        command=f"uptime; {found.command}" if found.command else "uptime",
    )
