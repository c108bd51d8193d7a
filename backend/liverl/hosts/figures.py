"""What Ray's agents measure on the hosts of a run: added to the hosts' states, and as GPUs.

Nothing is started on the other hosts for it. What cannot be told from here: of which service a process on another
host is, unless Ray itself has started it; so of their GPUs nobody is called foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from liverl.model import GpuStatus, NodeStatus
from liverl.observe.gpu.owner import FREE_BELOW
from liverl.verl.discovery.ray_rest import RayFigures, RayGpu

ELSEWHERE = "unknown (other host)"
_MIB = 1 << 20


class Figures:
    """The newest figures of each node, by node id, and when they were new. A node that has sent none since is not
    forgotten: its figures are old."""

    def __init__(self) -> None:
        self._of: dict[str, RayFigures] = {}
        self._at: dict[str, float] = {}  # on this host's clock: that of a node may differ

    def take(self, told: Mapping[str, RayFigures], now: float) -> None:
        """Take what Ray's dashboard has told at the Unix time ``now``."""
        for node_id, figures in told.items():
            if figures.now is not None and figures.now != getattr(self._of.get(node_id), "now", None):
                self._of[node_id], self._at[node_id] = figures, now

    def added(self, nodes: Iterable[NodeStatus]) -> tuple[NodeStatus, ...]:
        """``nodes`` with their figures."""
        return tuple(self._added(node) for node in nodes)

    def _added(self, node: NodeStatus) -> NodeStatus:
        figures = self._of.get(node.id)
        if figures is None:
            return node
        disk, memory = figures.ray_disk, figures.mem or ()
        return msgspec.structs.replace(
            node,
            cpu_percent=figures.cpu,
            memory_used=int(memory[3]) if len(memory) > 3 else None,
            memory_total=int(memory[0]) if memory else None,
            shm_used=None if figures.shm is None else int(figures.shm),
            disk_free=None if disk is None else disk.free,
            disk_total=None if disk is None else disk.total,
            measured_at=self._at[node.id],
        )

    def gpus(self, nodes: Iterable[NodeStatus], now: float) -> tuple[GpuStatus, ...]:
        """The GPUs of these hosts. Of one whose figures are old what changes by the second is not known: a number that
        stands still would say that the run goes on. ``now``: Unix seconds."""
        found = []
        for node in nodes:
            figures = self._of.get(node.id)
            if figures is not None:
                # Ray drops a host that is gone
                old = node.state == "lost" or node.old(now)
                found += [_gpu(gpu, node.name, figures.workers, old=old) for gpu in figures.gpus or ()]
        return tuple(found)


def _gpu(gpu: RayGpu, node: str, workers: frozenset[int], *, old: bool) -> GpuStatus:
    pids = tuple(sorted(int(pid) for pid in gpu.processes_pids or {} if pid.isdecimal()))
    used = None if gpu.memory_used is None else int(gpu.memory_used * _MIB)
    return GpuStatus(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        utilization=None if old or gpu.utilization_gpu is None else gpu.utilization_gpu / 100,
        memory_used=used,
        memory_total=None if gpu.memory_total is None else int(gpu.memory_total * _MIB),
        power_w=None if old or gpu.power_mw is None else gpu.power_mw / 1000,
        power_limit_w=None,
        temperature_c=None if old else gpu.temperature_c,
        owner=ELSEWHERE if old else _owner(pids, used, workers),
        pids=pids,
        node=node,
    )


def _owner(pids: tuple[int, ...], memory: int | None, workers: frozenset[int]) -> str:
    """Ray's own workers are the trainer's. The processes of an inference engine are not: Ray's actor has started
    them."""
    if any(pid in workers for pid in pids):
        return "trainer"
    return ELSEWHERE if pids or memory is None or memory >= FREE_BELOW else "free"
