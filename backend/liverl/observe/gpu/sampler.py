"""GPUs as reported by NVML, and their owners."""

from __future__ import annotations

import ctypes
import importlib
import os
import pwd
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from liverl.model import GpuStatus
from liverl.observe.gpu.ledger import NO_LEDGER, UNKNOWN_NAMESPACE

# An idle H200 shows 0 to 4 MiB (driver 580), or 615 MiB with older drivers that include their reserve.
# A CUDA context takes about 500 MiB more, a loaded engine gigabytes.
FREE_BELOW = 1 << 30  # bytes
RETRY_INIT = 60.0  # seconds before a failed NVML initialization is retried
_INIT_PID_NAMESPACE = 4026531836  # PROC_PID_INIT_INO of the kernel: inode of the first pid namespace


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
        if not gpus and not notes:
            notes.append("n/a (the driver reports no GPU)")
        return tuple(gpus), "; ".join(notes) or None

    def close(self) -> None:
        """Shut NVML down. Raises nothing."""
        if self._nvml is not None:
            self._stop("closed")

    def _start(self) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + RETRY_INIT
        nvml = self._given
        if nvml is None:
            try:
                ctypes.CDLL("libnvidia-ml.so.1")  # do not import pynvml on machines without NVML
                nvml = importlib.import_module("pynvml")
            except OSError:
                self._why = "NVML Shared Library Not Found"
                return False
            except ImportError:
                self._why = "the Python package nvidia-ml-py is not installed"
                return False
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._why = str(error)
            return False
        self._nvml = nvml
        return True

    def _stop(self, why: str) -> None:
        nvml, self._nvml, self._why = self._nvml, None, why
        self.pid_memory = {}
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError as error:
            self._why = f"{why}; {error}"

    def _devices(self, index: int) -> list[tuple[Any, Any]]:
        """Return (handle, handle of the whole GPU or None) of the CUDA devices at ``index``."""
        nvml = self._nvml
        whole = nvml.nvmlDeviceGetHandleByIndex(index)
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


def owner_of(
    pids: Collection[int],
    ledger: Mapping[str, str],
    members: Mapping[str, Collection[int]],
    in_pid_namespace: bool,
    *,
    uuid: str = "",
    memory: int | None = None,
    user_of: Callable[[int], str | None] | None = None,
) -> str:
    """Return the owner of a GPU: a service (several joined by `` + ``), ``free``, ``foreign pid N (user)`` or
    ``unknown (pid namespace)``.

    Outside a pid namespace pids take precedence over the ledger. Inside one NVML may report the host's pids,
    which can equal ours by chance: the ledger takes precedence and no process is called foreign. ``memory``
    (bytes in use) of FREE_BELOW or more without any pid means not free. ``user_of`` returns the user of a
    pid, None if /proc does not show it.
    """
    user_of = user_of or pid_user
    booked = ledger.get(uuid)
    ours = [service for service, tree in members.items() if any(pid in tree for pid in pids)]
    if in_pid_namespace:
        if booked is not None:
            return booked
        if ours:
            return " + ".join(ours)
    elif pids:
        trees = {pid for service in ours for pid in members[service]}
        others = [pid for pid in pids if pid not in trees]
        users = {pid: user_of(pid) for pid in others}
        foreign = [f"foreign pid {pid} ({user})" for pid, user in users.items() if user is not None]
        named = ours + foreign
        if named:
            return " + ".join(named)
        return booked if booked is not None else UNKNOWN_NAMESPACE
    if booked is not None:
        return booked
    if pids or (memory is not None and memory >= FREE_BELOW):
        return UNKNOWN_NAMESPACE
    return "free"


def in_pid_namespace() -> bool:
    """Whether this process is in a pid namespace of its own (a container), where NVML's pids may be the
    host's."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != _INIT_PID_NAMESPACE
    except OSError:  # without /proc no pid can be resolved either
        return True


def pid_user(pid: int) -> str | None:
    """Return the user of a process; None if /proc does not show the pid."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
