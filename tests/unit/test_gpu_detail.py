"""One GPU in detail: its processes, readings and errors. NVML is SIMULATED (``kit/nvml_like.py``)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml
import pytest
from kit.nvml_like import NOT_SUPPORTED, NvmlLike
from kit.screens import gpu

from liverl.control.gpu_detail import GpuDetail, Reading, Xid
from liverl.control.messages import CommandError
from liverl.daemon import gpu_detail as daemon_gpu_detail
from liverl.daemon.gpu_detail import GpuDetails
from liverl.observe.gpu import clock_events
from liverl.observe.gpu import detail as detail_module
from liverl.observe.gpu.detail import READINGS, DetailReader, Unreadable
from liverl.observe.gpu.processes import whose
from liverl.observe.gpu.rates import Rates
from liverl.observe.gpu.xid import XidWatch

ME = os.getpid()
UUID = "GPU-00000000"


@pytest.fixture(autouse=True)
def first_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detail_module, "in_pid_namespace", lambda: False)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of nobody's run, with a secret in its command."""
    code = "import sys; sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code, "--api-key", "sesame"], stdin=subprocess.PIPE)
    yield child.pid
    child.communicate()


def read(nvml: NvmlLike, uuid: str = UUID, **fields: Any) -> GpuDetail:
    return DetailReader(uuid, nvml).read(**{"members": {"replica-0": {ME}}, **fields})[0]


def test_every_process_is_named_with_its_owner_and_without_its_secrets(stranger: int) -> None:
    nvml = NvmlLike()
    now = int(time.time() * 1e6)
    nvml.processes = {"C": [(stranger, 10), (ME, 70)], "G": [(ME, 60)], "M": [(2**22 + 1, None)]}
    nvml.sm = [
        (ME, 30, now - 100),
        (ME, 55, now),
        (stranger, 9, now - 10_000_000),
        (2**22 + 1, 4_294_967, now),
    ]
    detail = read(nvml, reserved_for="replica-0")
    assert (detail.processes_why, detail.reserved_for) == ("", "replica-0")
    mine, other, gone = detail.processes
    assert (mine.pid, mine.kind, mine.whose, mine.service) == (ME, "C+G", "run", "replica-0")
    assert (mine.memory, mine.sm) == (70, 0.55), "the newest sample counts"
    assert mine.rss_bytes and mine.started_at and mine.user
    assert (other.pid, other.kind, other.whose, other.service, other.memory) == (
        stranger,
        "C",
        "stranger",
        None,
        10,
    )
    assert other.sm is None, "an old sample is no sample"
    assert other.command.endswith("--api-key ***") and "sesame" not in msgspec.json.encode(detail).decode()
    assert (gone.whose, gone.user, gone.command, gone.memory, gone.sm) == ("hidden", None, "", None, None)


def test_no_sample_of_any_process_is_said_and_is_not_zero() -> None:
    nvml = NvmlLike()
    nvml.processes["C"] = [(ME, 1)]
    detail = read(nvml)
    assert detail.processes[0].sm is None and "in the last 5 s" in detail.sm_why
    nvml.refuses["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    assert read(nvml).sm_why == "not supported"


def test_a_driver_that_lists_no_processes_says_why() -> None:
    nvml = NvmlLike()
    nvml.refuses["nvmlDeviceGetGraphicsRunningProcesses"] = NOT_SUPPORTED
    assert read(nvml).processes_why == "", "a GPU for computing has no list of graphics processes"
    nvml.refuses["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVML_ERROR_NO_PERMISSION
    assert read(nvml).processes_why == "no permission"


# -- whose it is


def fake_proc(tmp_path: Path, pid: int, *links: str) -> str:
    fd = tmp_path / str(pid) / "fd"
    fd.mkdir(parents=True)
    for number, target in enumerate(links):
        (fd / str(number)).symlink_to(target)
    return str(tmp_path)


MEMBERS = {"replica-0": {10}, "trainer": {20}}


@pytest.mark.parametrize(
    ("pid", "own_namespace", "links", "expected"),
    [
        (10, False, (), ("run", "replica-0")),
        (30, False, (), ("stranger", None)),
        (10, True, ("/dev/null", "/dev/nvidia3"), ("run", "replica-0")),
        (30, True, ("/dev/nvidiactl",), ("stranger", None)),
        # its pid is by chance that of another process here, which has no GPU open
        (10, True, ("/dev/null",), ("hidden", None)),
        (30, True, ("/dev/null",), ("hidden", None)),
    ],
)
def test_whose_a_pid_is(
    tmp_path: Path, pid: int, own_namespace: bool, links: tuple[str, ...], expected: tuple[str, str | None]
) -> None:
    proc = fake_proc(tmp_path, pid, *links)
    assert whose(pid, MEMBERS, own_namespace=own_namespace, proc=proc) == expected


def test_in_a_container_only_members_are_believed_without_a_look(tmp_path: Path) -> None:
    """Files of another user's process cannot be looked at: without its ``fd`` here."""
    for pid in (10, 30):
        (tmp_path / str(pid)).mkdir()
    assert whose(10, MEMBERS, own_namespace=True, proc=str(tmp_path)) == ("run", "replica-0")
    assert whose(30, MEMBERS, own_namespace=True, proc=str(tmp_path)) == ("hidden", None)
    assert whose(20, MEMBERS, own_namespace=False, proc=str(tmp_path)) == ("hidden", None), "it has ended"


# -- readings


def test_every_reading_of_a_healthy_gpu() -> None:
    nvml = NvmlLike()
    nvml.mask = 0x4 | 0x20
    detail = read(nvml)
    values = {name: reading.value for name, reading in detail.readings.items()}
    assert set(values) == set(READINGS)
    assert values | {"nvlink_sends": None, "nvlink_receives": None} == {
        "sm_clock": 1755,
        "sm_clock_max": 1980,
        "memory_clock": 3201,
        "memory_clock_max": 3201,
        "performance_state": 0,
        "slowdown_temperature": 87,
        "ecc_corrected": 0,
        "ecc_uncorrected": 1,
        "ecc_life_corrected": 10,
        "ecc_life_uncorrected": 11,
        "pcie_sends": 1_234_000_000,
        "pcie_receives": 56_000_000,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_replays": 3,
        "memory_utilization": 0.41,
        "memory_temperature": 70,
        "remaps_correctable": 1,
        "remaps_uncorrectable": 2,
        "remap_pending": 0,
        "remap_failed": 0,
        "nvlinks": 18,
        "nvlinks_active": 18,
        "nvlink_sends": None,
        "nvlink_receives": None,
    }
    assert detail.clock_events == ("power_cap", "software_thermal")
    assert (detail.driver, detail.bus_id) == ("580.65.06", "00000000:3B:00.0")
    assert nvml.inits == 0, "each use of the library is given back"


@pytest.mark.parametrize(
    ("refused", "reading"),
    [
        ("nvmlDeviceGetPcieThroughput", "pcie_sends"),
        ("nvmlDeviceGetTotalEccErrors", "ecc_corrected"),
        ("nvmlDeviceGetRemappedRows", "remap_failed"),
        ("nvmlDeviceGetUtilizationRates", "memory_utilization"),
        ("nvmlDeviceGetFieldValues", "nvlinks"),
        ("nvmlDeviceGetFieldValues", "nvlink_sends"),
        ("nvmlDeviceGetNvLinkState", "nvlinks_active"),
        (82, "memory_temperature"),
        (91, "nvlink_receives"),
        (138, "nvlink_sends"),
    ],
)
def test_what_a_driver_refuses_is_unknown_and_not_zero(refused: str | int, reading: str) -> None:
    nvml = NvmlLike()
    for code, words in (
        (NOT_SUPPORTED, "not supported"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no permission"),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "the driver is too old"),
        (pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
    ):
        nvml.refuses[refused] = code
        assert read(nvml).readings[reading] == Reading(None, words)


def test_a_function_that_the_package_lacks_is_said() -> None:
    nvml = NvmlLike()
    del nvml.numbers["nvmlDeviceGetPcieReplayCounter"]
    assert read(nvml).reading("pcie_replays") == Reading(why="the package nvidia-ml-py is too old")


def test_an_older_driver_knows_the_clock_events_by_their_old_name() -> None:
    nvml = NvmlLike()
    nvml.mask = 0x8
    nvml.refuses["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert read(nvml).clock_events == ("hardware_slowdown",)
    nvml.refuses["nvmlDeviceGetCurrentClocksThrottleReasons"] = NOT_SUPPORTED
    detail = read(nvml)
    assert (detail.clock_events, detail.clock_events_why) == ((), "the driver is too old")


def test_an_unknown_clock_event_is_not_dropped() -> None:
    assert clock_events.names(0x1) == ("idle",)
    assert clock_events.names(0x81) == ("idle", "power_brake")
    assert clock_events.names(0x8000) == ("0x8000",)


def test_links_have_a_rate_from_the_second_reading_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(detail_module.time, "monotonic", lambda: clock[0])
    nvml, members = NvmlLike(), {"replica-0": {ME}}
    reader = DetailReader(UUID, nvml)
    first = reader.read(members)[0]
    assert first.reading("nvlink_sends") == Reading(why="known from the second reading on")
    clock[0], nvml.link_kib = 102.0, 1000  # KiB more on each of 18 links in two seconds
    second = reader.read(members)[0]
    assert second.reading("nvlink_sends").value == 18 * 1000 * 1024 / 2
    assert second.reading("nvlink_receives").value == 2 * 18 * 1000 * 1024 / 2


def test_a_rate_is_that_of_now() -> None:
    rates = Rates()
    rates.of("a", 0.0, Reading(100.0))
    assert rates.of("a", 1.0, Reading(300.0)) == Reading(200.0)
    assert rates.of("a", 1.2, Reading(999.0)) == Reading(200.0), "two clients that ask at once get one rate"
    assert rates.of("a", 3.0, Reading(300.0)) == Reading(0.0)
    assert rates.of("a", 4.0, Reading(10.0)) == Reading(why="the counter was reset")
    assert rates.of("a", 5.0, Reading(15.0)) == Reading(5.0)
    assert rates.of("a", 4000.0, Reading(1e9)).value is None, "no mean over an hour"
    assert rates.of("a", 4001.0, Reading(why="x")) == Reading(why="x")
    assert rates.of("a", 4002.0, Reading(2e9)).value is None


def test_a_mig_part_has_its_own_processes_and_the_boards_readings() -> None:
    nvml = NvmlLike()
    part, boards = "MIG-7", []
    nvml.numbers["nvmlDeviceGetComputeRunningProcesses"] = lambda handle: [
        SimpleNamespace(pid=ME, usedGpuMemory={part: 5}[handle])
    ]
    nvml.numbers["nvmlDeviceGetPerformanceState"] = lambda handle: boards.append(handle) or 0
    detail, board = DetailReader(part, nvml).read({})
    assert detail.mig and detail.processes[0].memory == 5
    assert boards == [UUID] and board == UUID


@pytest.mark.parametrize("where", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_a_lost_gpu_is_an_error_in_words(where: str) -> None:
    nvml = NvmlLike()
    nvml.refuses[where] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(Unreadable, match=r"(?i)gpu is lost"):
        read(nvml)
    assert nvml.inits == 0


# -- XID


def test_xids_are_counted_from_the_first_look_on() -> None:
    nvml = NvmlLike()
    watch = XidWatch(nvml)
    assert watch.of(UUID).why == "not watched"
    watch.watch(UUID, UUID)
    watch.watch(UUID, UUID)
    assert nvml.registered == [UUID], "registered once"
    watch.look()
    healthy = watch.of(UUID)
    assert healthy.watched_since is not None and healthy.code is None and healthy.count == 0
    nvml.events = [(UUID, 31), ("GPU-other", 79), (UUID, 94)]
    watch.look()
    found = watch.of(UUID)
    assert (found.code, found.count) == (94, 2) and found.at is not None
    assert found.watched_since == healthy.watched_since


@pytest.mark.parametrize("refused", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
def test_xids_that_cannot_be_watched_are_not_none(refused: str) -> None:
    nvml = NvmlLike()
    nvml.refuses[refused] = NOT_SUPPORTED
    watch = XidWatch(nvml)
    watch.watch(UUID, UUID)
    watch.look()
    assert watch.of(UUID) == Xid(why="not supported")


# -- the command


class Backend:
    """What ``GpuDetails`` needs of supervisor and sampler."""

    def __init__(self, nvml: NvmlLike) -> None:
        ledger = SimpleNamespace(holders={UUID: "replica-0"})
        scan = SimpleNamespace(members=lambda: {"replica-0": [ME]})
        supervisor: Any = SimpleNamespace(ledger=ledger, process_scan=scan)
        self.facts = SimpleNamespace(gpus=(gpu(0), gpu(1)), gpu_note=None)
        self.asked_xid: list[str] = []
        sampler: Any = SimpleNamespace(
            facts=self.facts, gpu_members=lambda members: members, xid=lambda board: Xid(why=f"of {board}")
        )
        self.details = GpuDetails(supervisor, sampler, nvml)

    def ask(self, name: str) -> GpuDetail:
        return msgspec.convert(asyncio.run(self.details.of(name)), GpuDetail)


@pytest.mark.parametrize("name", [UUID, "0"])
def test_a_gpu_is_asked_for_by_uuid_or_index(name: str) -> None:
    nvml = NvmlLike()
    nvml.processes["C"] = [(ME, 5)]
    found = Backend(nvml).ask(name)
    assert (found.uuid, found.reserved_for, found.xid.why) == (UUID, "replica-0", f"of {UUID}")
    assert found.processes[0].service == "replica-0"


def test_a_wrong_name_lists_the_gpus() -> None:
    backend = Backend(NvmlLike())
    with pytest.raises(CommandError, match="no GPU '7'; GPUs: 0, 1") as caught:
        backend.ask("7")
    assert caught.value.code == "unknown_gpu"
    backend.facts.gpus, backend.facts.gpu_note = (), "n/a (Driver Not Loaded)"
    with pytest.raises(CommandError, match=r"no GPU '0'; no GPUs: n/a \(Driver Not Loaded\)"):
        backend.ask("0")


def test_a_gpu_that_is_lost_says_so() -> None:
    nvml = NvmlLike()
    nvml.refuses["nvmlDeviceGetHandleByUUID"] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(CommandError, match=r"GPU 0: n/a \(the GPU is lost"):
        Backend(nvml).ask("0")


def test_a_gpu_that_blocks_in_the_driver_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_gpu_detail, "PATIENCE", 0.2)
    nvml = NvmlLike()
    nvml.hangs = {UUID}
    details = Backend(nvml).details

    async def asked() -> dict[str, Any]:
        with pytest.raises(CommandError, match=r"GPU 0: n/a \(the GPU driver has not responded for 0.2 s\)"):
            await details.of("0")
        monkeypatch.setattr(daemon_gpu_detail, "PATIENCE", 60.0)
        return await details.of("1")

    try:
        assert asyncio.run(asked())["uuid"] == "GPU-00000001"
    finally:
        nvml.released.set()
