"""Which GPUs a run may use, and which of its services holds them. Pure: NVML is read in ``sampler``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from liverl.model import GpuStatus

UNKNOWN_NAMESPACE = "unknown (pid namespace)"
NO_LEDGER: Mapping[str, str] = MappingProxyType({})
# GPUs granted by a batch system. Slurm's JOB and STEP lists number the node's GPUs, GPU_DEVICE_ORDINAL those that
# the step sees; with ConstrainDevices NVML sees only the granted ones, renumbered from 0.
_BATCH = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL")
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


class Grant(msgspec.Struct, frozen=True):
    """Result of a reservation: ``uuids``, or ``reason`` if there are not enough."""

    uuids: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the reservation succeeded."""
        return self.reason is None


def allowed_gpus(
    gpus: Sequence[GpuStatus], env: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (UUIDs that the inherited environment permits, in NVML's order; notes on unreadable settings).

    CUDA_VISIBLE_DEVICES holds indices, (abbreviated) GPU UUIDs or MIG UUIDs. As in CUDA, entries after the
    first invalid one are ignored, and an empty value means none. Indices are NVML's (PCI order).
    """
    allowed = [gpu.uuid for gpu in gpus]
    notes: list[str] = []
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        chosen, note = _visible(gpus, visible)
        allowed = [uuid for uuid in allowed if uuid in chosen]
        notes.extend(note)
    for name in _BATCH:
        value = env.get(name, "").strip()
        if not value:
            continue
        wanted = _indices(value)
        boards = {gpu.index for gpu in gpus}
        if wanted is None:
            notes.append(f"{name}={value} is not a list of indices and was ignored")
        elif len(wanted) == len(boards):
            continue  # covers all that NVML shows; its numbers may be the node's
        elif not wanted <= boards:
            notes.append(f"{name}={value} names GPUs that do not exist ({len(boards)} found) and was ignored")
        else:
            granted = {gpu.uuid for gpu in gpus if gpu.index in wanted}
            allowed = [uuid for uuid in allowed if uuid in granted]
    return tuple(allowed), tuple(notes)


def _visible(gpus: Sequence[GpuStatus], value: str) -> tuple[set[str], list[str]]:
    chosen: set[str] = set()
    for entry in (part.strip() for part in value.split(",")) if value.strip() else ():
        if entry.isascii() and entry.isdigit():
            matches = [gpu.uuid for gpu in gpus if gpu.index == int(entry)]
        else:
            matches = [gpu.uuid for gpu in gpus if len(entry) > 4 and gpu.uuid.startswith(entry)]
            if len(matches) > 1:
                matches = []
        if not matches:
            return chosen, [f"CUDA_VISIBLE_DEVICES={value}: {entry!r} does not name a GPU of this host"]
        chosen.update(matches)
    return chosen, []


def _indices(value: str) -> set[int] | None:
    indices: set[int] = set()
    for part in value.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first = int(match.group(1))
        last = int(match.group(2) or first)
        if last - first > 1024:
            return None
        indices.update(range(first, last + 1))
    return indices


class GpuLedger:
    """Whole GPUs by UUID, each held by at most one service."""

    def __init__(self) -> None:
        self._holder: dict[str, str] = {}

    @property
    def holders(self) -> Mapping[str, str]:
        """UUID -> service, as ``GpuSampler.sample`` takes it."""
        return MappingProxyType(self._holder)

    def held_by(self, service: str) -> tuple[str, ...]:
        """Return the UUIDs that ``service`` holds."""
        return tuple(uuid for uuid, holder in self._holder.items() if holder == service)

    def reserve(
        self, service: str, count: int, gpus: Sequence[GpuStatus], allowed: Collection[str] | None = None
    ) -> Grant:
        """Reserve ``count`` free GPUs among ``allowed`` (UUIDs; None = all) for ``service``, all or none.

        A service that already holds exactly ``count`` keeps them across restarts. On failure nothing changes
        and ``reason`` lists the holders.
        """
        held = self.held_by(service)
        if len(held) == count:
            return Grant(uuids=held)
        pool = [gpu for gpu in gpus if allowed is None or gpu.uuid in allowed]
        free = [gpu.uuid for gpu in pool if gpu.uuid in held or self._is_free(gpu)]
        if len(free) < count:
            return Grant(reason=self._refusal(service, count, len(free), pool, len(gpus)))
        self.release(service)
        chosen = tuple(free[:count])
        self._holder.update(dict.fromkeys(chosen, service))
        return Grant(uuids=chosen)

    def refusal(
        self,
        services: Sequence[str],
        each: int,
        gpus: Sequence[GpuStatus],
        allowed: Collection[str] | None = None,
    ) -> str | None:
        """Return why ``services``, none of which holds a GPU, cannot get ``each`` GPUs each; None if they
        can."""
        pool = [gpu for gpu in gpus if allowed is None or gpu.uuid in allowed]
        free = sum(self._is_free(gpu) for gpu in pool)
        count = each * len(services)
        return self._refusal(", ".join(services), count, free, pool, len(gpus)) if free < count else None

    def _is_free(self, gpu: GpuStatus) -> bool:
        return gpu.owner == "free" and gpu.uuid not in self._holder

    def release(self, service: str) -> tuple[str, ...]:
        """Release all GPUs of ``service`` and return their UUIDs."""
        uuids = self.held_by(service)
        for uuid in uuids:
            del self._holder[uuid]
        return uuids

    def restore(self, mapping: Mapping[str, Sequence[str]]) -> None:
        """Replace all reservations by ``mapping`` (service -> UUIDs), as recorded in a journal.

        Raises:
            ValueError: two services hold the same GPU.
        """
        holder: dict[str, str] = {}
        for service, uuids in mapping.items():
            for uuid in uuids:
                if holder.setdefault(uuid, service) != service:
                    raise ValueError(f"{uuid} is claimed by {holder[uuid]} and by {service}")
        self._holder = holder

    def _refusal(self, service: str, count: int, free: int, pool: Sequence[GpuStatus], total: int) -> str:
        need = "need" if ", " in service else "needs"
        text = f"{service} {need} {count} GPU{'' if count == 1 else 's'}, {free} of {len(pool)} free"
        if len(pool) < total:
            text += f" ({total - len(pool)} more are outside this job's allocation)"
        taken = [
            f"GPU {gpu.index}: {self._holder.get(gpu.uuid, gpu.owner)}"
            for gpu in pool
            if not self._is_free(gpu)
        ]
        return f"{text}; {', '.join(taken)}" if taken else text
