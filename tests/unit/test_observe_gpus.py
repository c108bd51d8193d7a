"""Owners, allocations and the ledger of GPUs. NVML is SIMULATED here; ``tests/process`` has the real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.model import GpuStatus
from liverl.observe.gpu import sampler as gpus_module
from liverl.observe.gpu.ledger import UNKNOWN_NAMESPACE, GpuLedger, allowed_gpus
from liverl.observe.gpu.owner import FREE_BELOW, owner_of
from liverl.observe.gpu.sampler import GpuSampler
from liverl.observe.gpu.strangers import strangers, told


def gpu(index: int, owner: str = "free", uuid: str | None = None) -> GpuStatus:
    return GpuStatus(
        index=index,
        uuid=uuid or f"GPU-{index:08x}",
        name="H200",
        utilization=None,
        memory_used=0,
        memory_total=1,
        power_w=None,
        power_limit_w=None,
        temperature_c=None,
        owner=owner,
    )


class SimulatedNvml:
    """Two GPUs as pynvml shows them; the errors are pynvml's own."""

    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    nvmlMemory_v2 = pynvml.nvmlMemory_v2

    def __init__(self) -> None:
        self.processes: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        self.lost: set[int] = set()
        self.mig: dict[int, int] = {}
        self.init_error: int | None = None
        self.inits = 0
        self.old = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVMLError"):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        self.inits += 1
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.processes)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if index in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return (index, None)

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        if handle[0] not in self.mig:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, number: int) -> Any:
        if number >= self.mig[handle[0]]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return (handle[0], number)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        index, part = handle
        return f"GPU-{index:08x}" if part is None else f"MIG-{index}-{part}"

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        if version is not None and self.old:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        used = sum(memory for _, memory in self.processes[handle[0]])
        return SimpleNamespace(used=used, total=150_000_000_000)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=55, memory=3)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return 79_930

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return 41

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int) -> int:
        return {pynvml.NVML_CLOCK_SM: 1980}[clock]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        return [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in self.processes[handle[0]]]


def test_simulated_sample_reads_every_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "in_pid_namespace", lambda: False)
    nvml = SimulatedNvml()
    nvml.processes[0] = [(4242, 31_000_000_000)]
    sampler = GpuSampler(nvml)
    found, note = sampler.sample(members={"replica-0": {4242}})
    assert note is None
    first, second = found
    assert (first.index, first.uuid, first.name) == (0, "GPU-00000000", "NVIDIA H200")
    assert (first.utilization, first.power_w, first.power_limit_w, first.temperature_c) == (
        0.55,
        79.93,
        None,
        41.0,
    )
    assert (first.memory_used, first.memory_total) == (31_000_000_000, 150_000_000_000)
    assert (first.owner, first.pids) == ("replica-0", (4242,))
    assert (second.owner, second.pids) == ("free", ())
    assert sampler.pid_memory == {"GPU-00000000": {4242: 31_000_000_000}, "GPU-00000001": {}}


def test_simulated_old_driver_still_tells_its_memory() -> None:
    nvml = SimulatedNvml()
    nvml.old = True
    assert GpuSampler(nvml).sample()[0][0].memory_total == 150_000_000_000


def test_simulated_lost_gpu_hides_no_other() -> None:
    nvml = SimulatedNvml()
    nvml.lost = {0}
    found, note = GpuSampler(nvml).sample()
    assert [g.index for g in found] == [1]
    assert note == "GPU 0: n/a (GPU is lost)"


def test_simulated_mig_instances_stand_for_themselves() -> None:
    nvml = SimulatedNvml()
    nvml.mig = {0: 2}
    found, _ = GpuSampler(nvml).sample()
    assert [(g.index, g.uuid) for g in found] == [(0, "MIG-0-0"), (0, "MIG-0-1"), (1, "GPU-00000001")]
    assert found[0].utilization is None and found[0].power_w == 79.93
    assert allowed_gpus(found, {"CUDA_VISIBLE_DEVICES": "MIG-0-1"})[0] == ("MIG-0-1",)


def test_simulated_driver_error_is_a_note_and_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = SimulatedNvml()
    nvml.init_error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    clock = [1000.0]
    monkeypatch.setattr(gpus_module.time, "monotonic", lambda: clock[0])
    sampler = GpuSampler(nvml)
    assert sampler.sample() == ((), "n/a (Driver Not Loaded)")
    assert sampler.sample() == ((), "n/a (Driver Not Loaded)")
    assert nvml.inits == 1
    nvml.init_error = None
    clock[0] += gpus_module.RETRY_INIT
    assert len(sampler.sample()[0]) == 2


def users(*visible: int) -> Any:
    return lambda pid: "ann" if pid in visible else None


MEMBERS = {"replica-0": {10, 11}, "trainer": {20}}


@pytest.mark.parametrize(
    ("pids", "booked", "namespace", "memory", "owner"),
    [
        ((), None, False, 0, "free"),
        ((), None, True, 4 << 20, "free"),
        ((), "replica-1", False, 0, "replica-1"),
        ((11,), None, False, None, "replica-0"),
        ((10, 20), None, False, None, "replica-0 + trainer"),
        ((99,), None, False, None, "foreign pid 99 (ann)"),
        ((10, 99), "replica-0", False, None, "replica-0 + foreign pid 99 (ann)"),
        ((77,), None, False, None, UNKNOWN_NAMESPACE),
        ((77,), "replica-0", False, None, "replica-0"),
        ((99,), None, True, None, UNKNOWN_NAMESPACE),
        ((99,), "trainer", True, None, "trainer"),
        ((10,), None, True, None, "replica-0"),
        ((), None, True, FREE_BELOW, UNKNOWN_NAMESPACE),
    ],
)
def test_owner(
    pids: tuple[int, ...], booked: str | None, namespace: bool, memory: int | None, owner: str
) -> None:
    ledger = {"GPU-x": booked} if booked else {}
    found = owner_of(
        pids, ledger, MEMBERS, namespace, uuid="GPU-x", memory=memory, user_of=users(10, 11, 20, 99)
    )
    assert found == owner


@given(st.sets(st.integers(1, 30)), st.booleans(), st.sampled_from([None, "replica-0"]))
def test_in_a_pid_namespace_nobody_is_foreign(pids: set[int], known: bool, booked: str | None) -> None:
    ledger = {"u": booked} if booked else {}
    owner = owner_of(pids, ledger, MEMBERS if known else {}, True, uuid="u", user_of=users(*pids))
    assert "foreign" not in owner


FOUR = [gpu(i) for i in range(4)]


@pytest.mark.parametrize(
    ("env", "indices"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [0, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00000003, GPU-00000001"}, [1, 3]),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,9,2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0000"}, []),  # names four: ambiguous
        ({"SLURM_JOB_GPUS": "1-2"}, [1, 2]),
        ({"SLURM_JOB_GPUS": "0,1,2", "SLURM_STEP_GPUS": "2", "GPU_DEVICE_ORDINAL": "2"}, [2]),
        ({"SLURM_JOB_GPUS": "4,5,6,7"}, [0, 1, 2, 3]),  # renumbered by cgroups: all that is seen is granted
        ({"SLURM_JOB_GPUS": "6,7"}, [0, 1, 2, 3]),
        ({"SLURM_JOB_GPUS": "gpu:2"}, [0, 1, 2, 3]),
        ({"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "1,2"}, [1]),
    ],
)
def test_allowed(env: dict[str, str], indices: list[int]) -> None:
    assert allowed_gpus(FOUR, env)[0] == tuple(FOUR[i].uuid for i in indices)


def test_what_could_not_be_used_is_said() -> None:
    _, notes = allowed_gpus(FOUR, {"SLURM_JOB_GPUS": "6,7", "CUDA_VISIBLE_DEVICES": "8"})
    assert notes == (
        "CUDA_VISIBLE_DEVICES=8: '8' does not name a GPU of this host",
        "SLURM_JOB_GPUS=6,7 names GPUs that do not exist (4 found) and was ignored",
    )


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_environment_is_survived(visible: str, granted: str) -> None:
    allowed, _ = allowed_gpus(FOUR, {"CUDA_VISIBLE_DEVICES": visible, "SLURM_JOB_GPUS": granted})
    assert set(allowed) <= {g.uuid for g in FOUR}


def test_ledger_grants_free_gpus_and_keeps_them_over_a_restart() -> None:
    ledger = GpuLedger()
    seen = [gpu(0, "foreign pid 9 (bob)"), gpu(1), gpu(2), gpu(3)]
    assert ledger.reserve("replica-0", 2, seen).uuids == (seen[1].uuid, seen[2].uuid)
    busy = [seen[0], gpu(1, "replica-0"), gpu(2, "replica-0"), gpu(3)]
    assert ledger.reserve("replica-0", 2, busy).uuids == (seen[1].uuid, seen[2].uuid)
    refused = ledger.reserve("replica-1", 2, busy)
    assert not refused.ok and refused.uuids == ()
    assert refused.reason == (
        "replica-1 needs 2 GPUs, 1 of 4 free; GPU 0: foreign pid 9 (bob), GPU 1: replica-0, GPU 2: replica-0"
    )
    assert ledger.release("replica-0") == (seen[1].uuid, seen[2].uuid)
    assert ledger.reserve("replica-1", 2, seen).ok


def test_ledger_says_beforehand_who_would_be_refused() -> None:
    ledger = GpuLedger()
    seen = [gpu(0), gpu(1, "foreign pid 9 (bob)"), gpu(2), gpu(3)]
    assert ledger.reserve("replica-0", 1, seen).ok
    assert ledger.refusal(["replica-1", "replica-2"], 1, seen) is None
    assert ledger.refusal(["replica-1"], 2, seen) is None
    assert ledger.refusal(["replica-1", "replica-2"], 2, seen) == (
        "replica-1, replica-2 need 4 GPUs, 2 of 4 free; GPU 0: replica-0, GPU 1: foreign pid 9 (bob)"
    )
    allowed = [seen[0].uuid, seen[2].uuid]
    assert ledger.refusal(["replica-1"], 1, seen, allowed) is None
    assert ledger.refusal(["replica-1"], 2, seen, allowed) == (
        "replica-1 needs 2 GPUs, 1 of 2 free (2 more are outside this job's allocation); GPU 0: replica-0"
    )
    assert dict(ledger.holders) == {seen[0].uuid: "replica-0"}, "asking changes nothing"


def test_ledger_stays_within_the_allocation() -> None:
    refused = GpuLedger().reserve("trainer", 2, FOUR, allowed=[FOUR[3].uuid])
    assert refused.reason == "trainer needs 2 GPUs, 1 of 1 free (3 more are outside this job's allocation)"


def test_ledger_is_restored_from_a_journal() -> None:
    ledger = GpuLedger()
    ledger.restore({"replica-0": ["a", "b"], "trainer": ["c"]})
    assert dict(ledger.holders) == {"a": "replica-0", "b": "replica-0", "c": "trainer"}
    with pytest.raises(ValueError, match="claimed by replica-0 and by trainer"):
        ledger.restore({"replica-0": ["a"], "trainer": ["a"]})
    assert ledger.held_by("trainer") == ("c",), "a refused restore changes nothing"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans()), max_size=30))
def test_no_gpu_has_two_holders(actions: list[tuple[str, int, bool]]) -> None:
    ledger = GpuLedger()
    for service, count, give_back in actions:
        before = dict(ledger.holders)
        if give_back:
            ledger.release(service)
            assert ledger.held_by(service) == ()
            continue
        grant = ledger.reserve(service, count, FOUR)
        if grant.ok:
            assert len(grant.uuids) == count and set(grant.uuids) == set(ledger.held_by(service))
        else:
            assert dict(ledger.holders) == before
        held = [uuid for name in "abc" for uuid in ledger.held_by(name)]
        assert len(held) == len(set(held))


def held(memory: dict[int, int | None], members: dict[str, list[int]], *, hidden: bool = False) -> str:
    users = {7: "ann", 8: "root", 9: "bob", 10: "bob", 11: "bob", 12: None}
    commands = {7: "python train.py --api-key sk-0123456789abcdef", 8: "python\n-m vllm", 9: "x" * 200}
    return told(
        strangers(
            [gpu(0)],
            {gpu(0).uuid: memory, "GPU-of-another-run": {7: 1 << 30}},
            members,
            hidden=lambda: hidden,
            user_of=users.get,
            command_of=lambda pid: commands.get(pid, "python"),
        )
    )


def test_who_else_holds_gpu_memory_is_named_with_user_command_and_amount() -> None:
    said = held({7: 48 << 30, 8: None, 5: 1 << 30}, {"replica-0": [5]})
    assert said == (
        "Not of this run: pid 7 of ann (python train.py --api-key ***) holds 48.0 GiB of GPU 0, "
        "pid 8 of root (python -m vllm) holds memory of GPU 0."
    )


def test_processes_of_the_run_and_those_that_cannot_be_seen_are_no_strangers() -> None:
    assert held({5: 1 << 30, 12: 1 << 30}, {"replica-0": [5]}) == ""
    assert held({}, {}) == ""
    assert held({7: 1 << 30}, {}, hidden=True) == "", "NVML's pids may be those of another namespace"


def test_many_strangers_and_long_commands_are_cut() -> None:
    said = held({pid: (20 - pid) << 30 for pid in (11, 10, 9, 8, 7)}, {})
    assert said.index("pid 7") < said.index("pid 8") < said.index("pid 9") and "pid 10" not in said
    assert said.endswith(f"pid 9 of bob ({'x' * 80} ...) holds 11.0 GiB of GPU 0, 2 more hold the rest.")
