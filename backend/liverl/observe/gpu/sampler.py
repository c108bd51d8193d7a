"""GPUs as reported by NVML, and their owners."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from liverl.control.gpu_detail import Xid
from liverl.model import GpuStatus
from liverl.observe.gpu.ledger import NO_LEDGER
from liverl.observe.gpu.nvml import open_nvml
from liverl.observe.gpu.owner import in_pid_namespace, owner_of
from liverl.observe.gpu.xid import XidWatch

RETRY_INIT = 60.0  # seconds before a failed NVML initialization is retried


class GpuSampler:
    """Samples all GPUs; MIG instances are listed individually. Call ``sample`` in a thread: a lost GPU can
    block in the driver.

    ``nvml`` is the pynvml module unless given; it is imported only if the NVML library exists.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._given = nvml
        self._nvml: Any = None
        self._why = ""
        self._retry_at = 0.0
        self._xids: XidWatch | None = None
        self.pid_memory: dict[str, dict[int, int | None]] = {}  # last sample: UUID -> pid -> bytes

    def sample(
        self, ledger: Mapping[str, str] = NO_LEDGER, members: Mapping[str, Collection[int]] | None = None
    ) -> tuple[tuple[GpuStatus, ...], str | None]:
        """Return (GPUs, note). ``ledger``: UUID -> service; ``members``: service -> pids of its tree.

        The note says why some or all GPUs are missing: ``n/a (why)``. NVML errors are not raised.
        """
        if self._nvml is None and not self._start():
            self.pid_memory = {}
            return (), f"n/a ({self._why})"
        nvml = self._nvml
        notes: list[str] = []
        gpus: list[GpuStatus] = []
        memory: dict[str, dict[int, int | None]] = {}
        in_namespace = in_pid_namespace()
        try:
            count = int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:  # the driver was unloaded or replaced
            self._stop(str(error))
            return (), f"n/a ({self._why})"
        for index in range(count):
            try:
                for handle, parent in self._devices(index):
                    gpu, pids = self._read(index, handle, parent)
                    memory[gpu.uuid] = pids
                    owner = owner_of(
                        tuple(pids),
                        ledger,
                        members or {},
                        in_namespace,
                        uuid=gpu.uuid,
                        memory=gpu.memory_used,
                    )
                    gpus.append(msgspec.structs.replace(gpu, owner=owner, pids=tuple(pids)))
            except nvml.NVMLError as error:  # one lost GPU must not hide the others
                notes.append(f"GPU {index}: n/a ({error})")
        self.pid_memory = memory
        if self._xids is not None:
            self._xids.look()
        if not gpus and not notes:
            notes.append("n/a (the driver reports no GPU)")
        return tuple(gpus), "; ".join(notes) or None

    def xid(self, uuid: str) -> Xid:
        """The newest XID error of a whole GPU; may be called from any thread."""
        return self._xids.of(uuid) if self._xids is not None else Xid(why=self._why or "not watched")

    def close(self) -> None:
        """Shut NVML down. Raises nothing."""
        if self._nvml is not None:
            self._stop("closed")

    def _start(self) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + RETRY_INIT
        self._nvml, self._why = open_nvml(self._given)
        if self._nvml is None:
            return False
        self._xids = XidWatch(self._nvml)
        return True

    def _stop(self, why: str) -> None:
        nvml, self._nvml, self._why = self._nvml, None, why
        self.pid_memory = {}
        if self._xids is not None:
            self._xids.close()
            self._xids = None
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError as error:
            self._why = f"{why}; {error}"

    def _devices(self, index: int) -> list[tuple[Any, Any]]:
        """Return (handle, handle of the whole GPU or None) of the CUDA devices at ``index``."""
        nvml = self._nvml
        whole = nvml.nvmlDeviceGetHandleByIndex(index)
        if self._xids is not None:
            self._xids.watch(_text(nvml.nvmlDeviceGetUUID(whole)), whole)
        mode = self._ask(nvml.nvmlDeviceGetMigMode, whole)
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return [(whole, None)]
        parts = []
        for number in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(whole))):
            part = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, number)
            if part is not None:
                parts.append((part, whole))
        return parts

    def _read(self, index: int, handle: Any, whole: Any) -> tuple[GpuStatus, dict[int, int | None]]:
        nvml, ask = self._nvml, self._ask
        board = whole if whole is not None else handle  # power and temperature exist per board only
        # version 2 excludes the driver's reserve (615 MiB on an idle H200), as nvidia-smi does
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        memory = memory or ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        utilization = ask(nvml.nvmlDeviceGetUtilizationRates, handle) if whole is None else None
        power = ask(nvml.nvmlDeviceGetPowerUsage, board)
        limit = ask(nvml.nvmlDeviceGetEnforcedPowerLimit, board)
        heat = ask(nvml.nvmlDeviceGetTemperature, board, nvml.NVML_TEMPERATURE_GPU)
        clock = ask(nvml.nvmlDeviceGetClockInfo, board, nvml.NVML_CLOCK_SM)
        processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        gpu = GpuStatus(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(ask(nvml.nvmlDeviceGetName, handle) or "GPU"),
            utilization=None if utilization is None else utilization.gpu / 100,
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            power_w=None if power is None else power / 1000,
            power_limit_w=None if limit is None else limit / 1000,
            temperature_c=None if heat is None else float(heat),
            owner="",
            sm_clock_mhz=None if clock is None else float(clock),
        )
        return gpu, {int(p.pid): p.usedGpuMemory for p in processes}

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """Return the result of an NVML query; None if this GPU or driver does not support it. A lost GPU
        raises NVMLError."""
        nvml = self._nvml
        try:
            return question(*args)
        except (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_NoPermission,
            nvml.NVMLError_NotFound,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_InvalidArgument,
        ):
            return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
