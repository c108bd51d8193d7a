"""How many replicas a machine can carry. A mistyped number must not take the machine, and with it the command that
stops the run.

Replicas on GPUs are bounded by these (``GpuLedger``). Those without share the CPUs and the memory.
"""

from __future__ import annotations

import os

import msgspec

from liverl.plan.spec import Plan
from liverl.procs.memory_limit import MemoryLimit
from liverl.util.cpu_limits import cpu_limits
from liverl.util.plural import plural, quantity

MOST = 256  # replicas of one run
# An estimate: an embedded replica takes half a CPU while a step's trials run, and little between them.
PER_CPU = 4
LEAST = 4  # on any machine
REPLICA_BYTES = 150 << 20  # of an embedded replica; one that runs is measured instead
SPARE = 0.1  # share of the memory that stays free


class Machine(msgspec.Struct, frozen=True):
    """What replicas share. ``cpus``: that this process may use; ``limited_by``: what sets them, "" for the machine;
    ``free``: bytes of memory that can still be used, ``total``: of all."""

    cpus: float
    limited_by: str
    free: int
    total: int


def machine() -> Machine:
    """This host, with the limits of this process's control group."""
    import psutil  # takes memory that a run which never asks does not need

    limits, memory, group = cpu_limits(os.environ), psutil.virtual_memory(), MemoryLimit().look()
    total, free = memory.total, memory.available
    if group is not None:
        total, free = min(total, group.total), min(free, max(0, group.total - group.used))
    return Machine(limits.allowed, limits.who, free, total)


def most_replicas(host: Machine, configured: int | None) -> int:
    """The replicas without a GPU that a run may have without further question. ``configured``:
    ``supervise.max_replicas``."""
    return min(MOST, max(LEAST, int(PER_CPU * host.cpus)) if configured is None else configured)


def too_many(
    plan: Plan, host: Machine, wanted: int, now: int = 0, replica_bytes: int | None = None
) -> str | None:
    """Why the run is not to have ``wanted`` replicas, of which it has ``now``; None if it may. ``replica_bytes``:
    memory that one takes, None: not known.

    Fewer than there are now are always allowed."""
    template, configured = plan.replica_template, plan.settings.max_replicas
    if template is None or template.gpus or wanted <= now:
        return None
    most = most_replicas(host, configured)
    if wanted > most:
        if configured is not None:
            return f"supervise.max_replicas allows {most}"
        who = f", as {host.limited_by} allows" if host.limited_by else ""
        return (
            f"they take no GPU and share {host.cpus:g} {plural(host.cpus, 'CPU')}{who}: at most {most} here, "
            f"{PER_CPU} for each CPU"
        )
    each, more = replica_bytes or REPLICA_BYTES, wanted - now
    if configured is None:
        room = host.free - int(SPARE * host.total)
        if more * each > room:
            return (
                f"{quantity(more, 'further replica')} would take {more * each / 1e9:.1f} GB of memory, "
                f"{each / 1e9:.2f} GB each, and {max(0, room) / 1e9:.1f} GB may be used ({SPARE:.0%} stay free)"
            )
    return None
