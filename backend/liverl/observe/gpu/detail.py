"""Everything that NVML says of one GPU, read when somebody asks: too much, and too slow, for every sample.

``READINGS`` names what ``GpuDetail.readings`` holds. Bytes and bytes per second, MHz, degrees Celsius, ratios 0..1.
"""

from __future__ import annotations

import time
from typing import Any

from liverl.control.gpu_detail import GpuDetail, Reading
from liverl.observe.gpu import clock_events, processes
from liverl.observe.gpu.nvml import Questions, open_nvml
from liverl.observe.gpu.owner import in_pid_namespace
from liverl.observe.gpu.rates import Rates
from liverl.procs.listing import ProcessTree

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_SINCE_DRIVER, _FOR_LIFE = 0, 1  # nvmlEccCounterType_t: volatile and aggregate
_MEMORY_TEMPERATURE, _LINK_COUNT, _LINK_SENT, _LINK_RECEIVED = 82, 91, 138, 139  # field ids
_SLOWDOWN = 1  # nvmlTemperatureThresholds_t
_SENDS, _RECEIVES = 0, 1  # nvmlPcieUtilCounter_t
KIB = 1024.0

# Reading -> (function of NVML, arguments behind the handle, scale)
_NUMBERS: dict[str, tuple[str, tuple[int, ...], float]] = {
    "sm_clock": ("nvmlDeviceGetClockInfo", (_SM,), 1),
    "sm_clock_max": ("nvmlDeviceGetMaxClockInfo", (_SM,), 1),
    "memory_clock": ("nvmlDeviceGetClockInfo", (_MEMORY,), 1),
    "memory_clock_max": ("nvmlDeviceGetMaxClockInfo", (_MEMORY,), 1),
    "performance_state": ("nvmlDeviceGetPerformanceState", (), 1),
    "slowdown_temperature": ("nvmlDeviceGetTemperatureThreshold", (_SLOWDOWN,), 1),
    "ecc_corrected": ("nvmlDeviceGetTotalEccErrors", (_CORRECTED, _SINCE_DRIVER), 1),
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _SINCE_DRIVER), 1),
    "ecc_life_corrected": ("nvmlDeviceGetTotalEccErrors", (_CORRECTED, _FOR_LIFE), 1),
    "ecc_life_uncorrected": ("nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _FOR_LIFE), 1),
    "pcie_sends": ("nvmlDeviceGetPcieThroughput", (_SENDS,), 1000),  # each takes 20 ms
    "pcie_receives": ("nvmlDeviceGetPcieThroughput", (_RECEIVES,), 1000),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", (), 1),
    "pcie_generation_max": ("nvmlDeviceGetMaxPcieLinkGeneration", (), 1),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", (), 1),
    "pcie_width_max": ("nvmlDeviceGetMaxPcieLinkWidth", (), 1),
    "pcie_replays": ("nvmlDeviceGetPcieReplayCounter", (), 1),
}
_REMAPS = ("remaps_correctable", "remaps_uncorrectable", "remap_pending", "remap_failed")
_LINKS = ("nvlinks", "nvlinks_active", "nvlink_sends", "nvlink_receives")
READINGS = (*_NUMBERS, "memory_utilization", "memory_temperature", *_REMAPS, *_LINKS)


class Unreadable(Exception):
    """The driver does not give the GPU at all; ``str()`` says why, in words."""


class DetailReader:
    """Reads the details of one GPU. Blocking: a lost GPU can block in the driver for ever.

    ``nvml`` is the pynvml module unless given. Rates and the CPU of processes are relative to the reading before.
    """

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        self._uuid = uuid
        self._given = nvml
        self._rates = Rates()
        self._tree = ProcessTree()

    def read(self, members: processes.Members, reserved_for: str | None = None) -> tuple[GpuDetail, str]:
        """Return (the detail now, UUID of the whole board). ``members``: service -> pids of its tree.

        Raises:
            Unreadable: NVML cannot be used, or does not know this GPU.
        """
        nvml, reason = open_nvml(self._given)
        if nvml is None:
            raise Unreadable(reason)
        try:
            return self._read(Questions(nvml), members, reserved_for)
        finally:
            nvml.nvmlShutdown()  # NVML counts its users: the sampler keeps using it

    def _read(
        self, questions: Questions, members: processes.Members, reserved_for: str | None
    ) -> tuple[GpuDetail, str]:
        handle, reason = questions.ask("nvmlDeviceGetHandleByUUID", self._uuid)
        if reason:
            raise Unreadable(reason)
        mig = self._uuid.startswith("MIG")
        board, reason = (
            questions.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) if mig else (handle, "")
        )
        if reason:
            raise Unreadable(reason)
        listed, unlisted = processes.running(questions, handle)
        sm, sm_why = processes.sm_utilization(questions, handle)
        own_namespace = in_pid_namespace()
        mask, events_why = _clock_events(questions, board)
        driver, _ = questions.ask("nvmlSystemGetDriverVersion")
        pci, _ = questions.ask("nvmlDeviceGetPciInfo", board)
        board_uuid, _ = questions.ask("nvmlDeviceGetUUID", board)
        detail = GpuDetail(
            uuid=self._uuid,
            at=time.time(),
            processes=processes.described(listed, sm, members, self._tree, own_namespace=own_namespace),
            processes_why=unlisted,
            sm_why=sm_why,
            own_namespace=own_namespace,
            reserved_for=reserved_for,
            clock_events=clock_events.names(mask),
            clock_events_why=events_why,
            driver=_text(driver),
            bus_id=_text(pci.busId) if pci is not None else "",
            mig=mig,
            readings=self._readings(questions, board),
        )
        return detail, _text(board_uuid)

    def _readings(self, questions: Questions, board: Any) -> dict[str, Reading]:
        found = {
            name: questions.reading(function, board, *arguments, scale=scale)
            for name, (function, arguments, scale) in _NUMBERS.items()
        }
        rates, reason = questions.ask("nvmlDeviceGetUtilizationRates", board)
        found["memory_utilization"] = Reading(why=reason) if reason else Reading(rates.memory / 100)
        (found["memory_temperature"],) = questions.fields(board, [(_MEMORY_TEMPERATURE, 0)])
        rows, reason = questions.ask("nvmlDeviceGetRemappedRows", board)
        for place, name in enumerate(_REMAPS):
            found[name] = Reading(why=reason) if reason else Reading(float(rows[place]))
        return found | dict(zip(_LINKS, self._links(questions, board), strict=True))

    def _links(self, questions: Questions, board: Any) -> tuple[Reading, Reading, Reading, Reading]:
        """Number of NVLinks, how many are up, and what they send and receive together, in bytes per second."""
        (count,) = questions.fields(board, [(_LINK_COUNT, 0)])
        if not count.value:
            none = count if count.value is None else Reading(why="no NVLink")
            return count, none, none, none
        links = range(int(count.value))
        states = [questions.reading("nvmlDeviceGetNvLinkState", board, link) for link in links]
        up = [state.value for state in states if state.value is not None]
        active = Reading(sum(up)) if up else states[0]
        # One call for both, so that all counters are of the same moment.
        counters = questions.fields(
            board, [(f, link) for f in (_LINK_SENT, _LINK_RECEIVED) for link in links]
        )
        sent, received = _sum(counters[: len(links)]), _sum(counters[len(links) :])
        now = time.monotonic()
        return count, active, self._rates.of("sent", now, sent), self._rates.of("received", now, received)


def _clock_events(questions: Questions, board: Any) -> tuple[int, str]:
    mask, reason = questions.ask("nvmlDeviceGetCurrentClocksEventReasons", board)
    if reason:  # drivers before 535 know it by its old name only
        old, still = questions.ask("nvmlDeviceGetCurrentClocksThrottleReasons", board)
        mask, reason = (old, "") if not still else (mask, reason)
    return (0, reason) if reason else (int(mask), "")


def _sum(counters: list[Reading]) -> Reading:
    """Bytes of all links that count; without one, why the first does not. NVML counts KiB."""
    known = [counter.value for counter in counters if counter.value is not None]
    return Reading(sum(known) * KIB) if known else counters[0]


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
