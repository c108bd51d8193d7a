"""What is added to the cause of an end from beside the logs: who else holds GPU memory."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.signature import Signature
from liverl.daemon.end_causes import EndCauses
from liverl.model import Cause, Exit
from liverl.observe.gpu.strangers import Stranger
from liverl.supervise.services.state_machine import MachineState

ANN = Stranger(48 << 30, 0, 7, "ann", "python train.py")
STRANGER = "Not of this run: pid 7 of ann (python train.py) holds 48.0 GiB of GPU 0."
HELD = (
    "ValueError: Free memory on device cuda:0 (28.53/79.18 GiB) on startup is less than desired GPU memory "
    "utilization (0.9, 71.26 GiB)."
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 864.00 MiB. GPU 0 has a total capacity of 79.18 GiB "
    "of which 754.19 MiB is free. Including non-PyTorch memory, this process has 78.43 GiB memory in use.{} Of the "
    "allocated memory 77.77 GiB is allocated by PyTorch, and 1.67 MiB is reserved by PyTorch but unallocated."
)
PORT = "OSError: [Errno 98] Address already in use"


async def cause(
    tmp_path: Path,
    line: str,
    why: str = "",
    strangers: tuple[Stranger, ...] = (ANN,),
    load: float = 0.0,
    ray_dir: str = "",
) -> Cause:
    """Of a replica whose log ends with this line; without one it was not started, for the reason ``why``."""
    log = tmp_path / "replica-0.1.log"
    log.write_text(f"Traceback (most recent call last):\n{line}\n")
    process = SimpleNamespace(generation=1, log=log, log_start=0, started_at=0.0) if line else None
    ended = Exit(code=1, at=1.0) if line else None
    machine = MachineState(state="gave_up", generation=1, exit=ended, last_failure=why or "exit 1")
    instance: Any = SimpleNamespace(name="replica-0", machine=machine, process=process)
    records: Any = SimpleNamespace(cannot_read=pytest.fail)
    kills: Any = SimpleNamespace(evidence=lambda now: "")
    ends = EndCauses(tmp_path, records, lambda: iter((instance,)), lambda: 2.0, kills)
    ends.strangers = lambda: strangers
    ends.load, ends.ray_dir = lambda: load, ray_dir
    return await ends.of(instance)


# As an H200 printed it, with another user's process and with the run's own engine on the same GPU
SYNC = (
    '  File "/srv/verl/workers/engine_workers.py", line 1001, in update_weights\n    await self.rollout.sync()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 139.80 "
    "GiB of which 23.88 MiB is free. Including non-PyTorch memory, this process has {own} GiB memory in use. Process "
    "15021 has 818.00 MiB memory in use. Process 7 has {other} GiB memory in use. Of the allocated memory 71.75 MiB is "
    "allocated by PyTorch, and 18.25 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("own", "other", "pid", "others"),
    [
        ("1.36", "137.60", 7, True),
        ("1.36", "137.60", 8, False),  # it is the run's own engine
        ("100.36", "37.60", 7, False),  # the run itself had most
        ("60.00", "78.00", 7, True),
    ],
)
async def test_what_another_s_process_took_changes_no_setting_of_the_run(
    own: str, other: str, pid: int, others: bool, tmp_path: Path
) -> None:
    found = await cause(tmp_path, SYNC.format(own=own, other=other), strangers=(ANN._replace(pid=pid),))
    assert found.id == "cuda-oom-weight-sync"
    assert (f"process 7, which is not of this run, held {float(other):.2f} GiB" in found.text) == others
    assert ("vllm.gpu_memory_utilization" in found.fix) == (not others)
    assert not found.patch or not others
    assert f"pid {pid} of ann" in found.why


RAY_LATE = "Exception: The current node timed out during startup. This could happen because some of the raylet failed"


@pytest.mark.parametrize(("per_cpu", "busy"), [(10.0, True), (4.0, True), (3.9, False), (0.5, False)])
async def test_a_host_with_too_much_load_is_said_first_and_the_run_s_own_ray_is_named(
    per_cpu: float, busy: bool, tmp_path: Path
) -> None:
    """Ray's time to start was over while other processes had the CPUs."""
    found = await cause(tmp_path, RAY_LATE, load=per_cpu * (os.cpu_count() or 1), ray_dir="/tmp/liverl-ray-7")
    assert found.id == "ray-node-start-timeout"
    assert found.why.startswith("This host was overloaded") == busy and "raylet did not come up" in found.why
    assert found.fix.startswith("End what else runs on this host") == busy and "raylet.out" in found.fix
    assert found.command == "uptime; " * busy + "ls -t /tmp/liverl-ray-7/session_latest/logs | head"
    other = await cause(tmp_path, PORT, load=1e6)
    assert "overloaded" not in other.why, "it has nothing to do with time"


@pytest.mark.parametrize(
    "row", [row for row in rows() if "/tmp/ray" in row.command + row.fix], ids=lambda row: row.id
)
async def test_no_row_sends_to_another_ray_s_logs(row: Signature, tmp_path: Path) -> None:
    found = await cause(tmp_path, row.fires, load=0.0, ray_dir="/tmp/liverl-ray-7")
    assert "/tmp/ray" not in f"{found.command} {found.fix} {found.guesses}"


async def test_who_else_holds_gpu_memory_is_told_where_it_was_short(tmp_path: Path) -> None:
    found = await cause(tmp_path, HELD)
    assert found.id == "gpu-memory-held" and found.why.endswith(STRANGER)
    assert (await cause(tmp_path, HELD, strangers=())).why.endswith("another process holds the rest.")
    assert STRANGER not in (await cause(tmp_path, PORT)).why, "it has nothing to do with a port"


@pytest.mark.parametrize("row", [row for row in rows() if row.gpu_memory], ids=lambda row: row.id)
async def test_whoever_prints_that_memory_was_short(row: Signature, tmp_path: Path) -> None:
    found = await cause(tmp_path, row.fires)
    alone = "this process has" in row.fires  # torch has listed who was on it
    assert alone or (found.id == row.id and found.why.endswith(STRANGER))


async def test_who_came_to_a_gpu_after_its_memory_was_used_up_has_no_part_in_it(tmp_path: Path) -> None:
    alone = await cause(tmp_path, OOM.format(""))
    assert alone.id == "cuda-oom" and STRANGER not in alone.why
    shared = await cause(tmp_path, OOM.format(" Process 7 has 48.51 GiB memory in use."))
    assert shared.why.endswith(STRANGER)


async def test_who_holds_the_gpus_is_told_where_a_replica_got_none(tmp_path: Path) -> None:
    held = "replica-0 needs 1 GPU, 0 of 1 free; GPU 0: foreign pid 7 (ann)"
    found = await cause(tmp_path, "", held)
    assert found.id == "gpus-held" and found.why.endswith(STRANGER) and found.fix
    assert found.text == held.removeprefix("replica-0 "), "it is shown behind the name"
    few = await cause(tmp_path, "", "replica-0 needs 2 GPUs, 1 of 1 free")
    assert few.id == "gpus-too-few" and STRANGER not in few.why
