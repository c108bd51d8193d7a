"""Answers what clients ask about one GPU. Each GPU is read in a thread of its own: one that blocks in the driver delays
neither the others nor anything else."""

from __future__ import annotations

from typing import Any

import msgspec

from liverl.config.errors import shown
from liverl.control.gpu_detail import GpuDetail
from liverl.control.messages import CommandError
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.daemon.sampler import Sampler
from liverl.model import GpuStatus
from liverl.observe.gpu.detail import DetailReader, Unreadable
from liverl.util.blocking_call import BlockingCalls
from liverl.util.nearest import nearest

PATIENCE = 5.0  # seconds that one reading may take; it takes about 50 ms


class GpuDetails:
    """Reads a GPU when it is asked for. ``nvml``: the pynvml module unless given."""

    def __init__(self, supervisor: RunSupervisor, sampler: Sampler, nvml: Any = None) -> None:
        self._supervisor = supervisor
        self._sampler = sampler
        self._nvml = nvml
        self._readers: dict[str, tuple[DetailReader, BlockingCalls[tuple[GpuDetail, str]]]] = {}

    async def of(self, name: str) -> dict[str, Any]:
        """The ``GpuDetail`` of a GPU as plain data. ``name``: its UUID, or its index.

        Raises:
            CommandError: there is no such GPU, or the driver does not give it or does not respond.
        """
        gpu = self._find(name)
        uuid, supervisor = gpu.uuid, self._supervisor
        if uuid not in self._readers:
            self._readers[uuid] = (DetailReader(uuid, self._nvml), BlockingCalls())
        reader, calls = self._readers[uuid]
        members = self._sampler.gpu_members(supervisor.process_scan.members())
        reserved_for = supervisor.ledger.holders.get(uuid)
        try:
            detail, board = await calls.call(lambda: reader.read(members, reserved_for), PATIENCE)
        except TimeoutError:
            text = f"GPU {gpu.index}: n/a (the GPU driver has not responded for {PATIENCE:g} s)"
            raise CommandError("gpu_blocked", text) from None
        except Unreadable as error:
            raise CommandError("gpu_unreadable", f"GPU {gpu.index}: n/a ({error})") from None
        data: dict[str, Any] = msgspec.to_builtins(
            msgspec.structs.replace(detail, xid=self._sampler.xid(board))
        )
        return data

    def _find(self, name: str) -> GpuStatus:
        gpus = self._sampler.facts.gpus
        for gpu in gpus:
            if name in (gpu.uuid, str(gpu.index)):
                return gpu
        names = [*(str(gpu.index) for gpu in gpus), *(gpu.uuid for gpu in gpus)]
        why = self._sampler.facts.gpu_note or "they have not been sampled yet"
        known = f"GPUs: {', '.join(str(gpu.index) for gpu in gpus)}" if gpus else f"no GPUs: {why}"
        raise CommandError("unknown_gpu", f"no GPU {shown(name)}; {known}", nearest(name, names))
