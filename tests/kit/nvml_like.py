"""SIMULATED: pynvml with two H200s, of which one is busy. Errors and structures are pynvml's own."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pynvml

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
STAMP = 1_790_000_000.0


class NvmlLike:
    """Answers of a healthy GPU. ``refuses``: function (or field id) -> error code that it gives instead.
    ``processes``: letter -> (pid, bytes). ``hangs``: UUIDs on which a question blocks until ``released``."""

    def __init__(self) -> None:
        self.refuses: dict[str | int, int] = {}
        self.processes: dict[str, list[tuple[int, int | None]]] = {"C": [], "G": [], "M": []}
        self.sm: list[tuple[int, int, int]] = []  # pid, percent, timestamp in us
        self.mask = 0
        self.link_kib = 0
        self.links_up = 18
        self.events: list[tuple[str, int]] = []  # UUID, XID
        self.registered: list[str] = []
        self.hangs: set[str] = set()
        self.released = threading.Event()
        self.inits = 0
        self.numbers: dict[str, Any] = {
            "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1755, 2: 3201}[kind],
            "nvmlDeviceGetMaxClockInfo": lambda _, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetPerformanceState": lambda _: 0,
            "nvmlDeviceGetTemperatureThreshold": lambda _, kind: {1: 87}[kind],
            "nvmlDeviceGetTotalEccErrors": lambda _, kind, life: 10 * life + kind,
            "nvmlDeviceGetPcieThroughput": lambda _, way: (1_234_000, 56_000)[way],  # KB/s
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 5,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: 5,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 16,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda _: 16,
            "nvmlDeviceGetPcieReplayCounter": lambda _: 3,
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=97, memory=41),
            "nvmlDeviceGetRemappedRows": lambda _: (1, 2, 0, 0),
            "nvmlDeviceGetNvLinkState": lambda _, link: int(link < self.links_up),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: self.mask,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: self.mask,
            "nvmlSystemGetDriverVersion": lambda: b"580.65.06",
            "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(busId=b"00000000:3B:00.0"),
            "nvmlDeviceGetUUID": lambda handle: handle.split("/")[0],
            "nvmlDeviceGetHandleByUUID": self._handle,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda _: "GPU-00000000",
            "nvmlDeviceGetComputeRunningProcesses": lambda _: self._listed("C"),
            "nvmlDeviceGetGraphicsRunningProcesses": lambda _: self._listed("G"),
            "nvmlDeviceGetMPSComputeRunningProcesses": lambda _: self._listed("M"),
            "nvmlDeviceGetProcessUtilization": self._samples,
            "nvmlDeviceGetFieldValues": lambda _, fields: [self._field(*field) for field in fields],
            "nvmlEventSetCreate": lambda: "events",
            "nvmlEventSetFree": lambda _: None,
            "nvmlDeviceRegisterEvents": lambda handle, _kinds, _events: self.registered.append(handle),
            "nvmlEventSetWait_v2": self._event,
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
        }

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("numbers", {}):
            if name.startswith("NVMLError"):
                return getattr(pynvml, name)
            raise AttributeError(name)

        def answer(*args: Any) -> Any:
            if name in self.refuses:
                raise pynvml.NVMLError(self.refuses[name])
            return self.numbers[name](*args)

        return answer

    def _init(self) -> None:
        self.inits += 1

    def _shutdown(self) -> None:
        self.inits -= 1

    def _handle(self, uuid: str) -> str:
        if uuid in self.hangs:
            self.released.wait(60)
        return uuid

    def _listed(self, letter: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.processes[letter]]

    def _samples(self, _handle: str, since: int) -> list[Any]:
        found = [
            SimpleNamespace(pid=p, smUtil=share, timeStamp=at) for p, share, at in self.sm if at >= since
        ]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found

    def _field(self, number: int, link: int) -> Any:
        value = {82: 70, 91: 18, 138: self.link_kib + link, 139: 2 * self.link_kib}[number]
        error = self.refuses.get(number, 0)
        kind, member = (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ullVal")
        if number in (82, 91):
            kind, member = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, "uiVal"
        union = pynvml.c_nvmlValue_t()
        setattr(union, member, value)
        return SimpleNamespace(nvmlReturn=error, valueType=kind, value=union)

    def _event(self, _events: str, _timeout: int) -> Any:
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        uuid, xid = self.events.pop(0)
        return SimpleNamespace(device=uuid, eventType=8, eventData=xid)
