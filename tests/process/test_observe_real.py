"""The observers against this machine: real processes, real NVML or its absence, real writers."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.waiting import PATIENCE_S

from liverl.logs.last_lines import last_lines
from liverl.observe.gpu.detail import READINGS, DetailReader, Unreadable
from liverl.observe.gpu.owner import in_pid_namespace, pid_user
from liverl.observe.gpu.sampler import GpuSampler
from liverl.observe.trials.scanner import TrialScanner
from liverl.procs.stats import ProcSampler

BUSY = """
import time
input()
end = time.process_time() + 0.2
while time.process_time() < end:
    pass
print('done', flush=True)
input()
"""
WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
data = (sys.argv[2] + '\\n').encode() * 200
for i in range(0, len(data), 7001):
    os.write(fd, data[i : i + 7001])
"""


def has_nvml() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def test_cpu_and_memory_of_a_real_process() -> None:
    sampler = ProcSampler()
    child = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert sampler.sample({"a": [child.pid]})["a"].cpu_percent is None
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        stats = sampler.sample({"a": [child.pid], "none": [2**22 + 1]})
        assert stats["a"].processes == 1 and stats["a"].rss_bytes > 1 << 20
        assert stats["a"].cpu_percent is not None and stats["a"].cpu_percent > 0
        assert stats["none"].processes == 0
    finally:
        child.kill()
        child.communicate()
    assert sampler.sample({"a": [child.pid]})["a"].processes == 0


def test_host_of_this_machine() -> None:
    host = ProcSampler().host()
    assert host.memory_total is not None and host.memory_used is not None
    assert 0 < host.memory_used < host.memory_total
    assert host.cpu_count == os.cpu_count()


def test_gpus_or_the_reason_why_not() -> None:
    sampler = GpuSampler()
    gpus, note = sampler.sample()
    if not has_nvml():
        assert (gpus, note) == ((), "n/a (no NVIDIA driver)")
        return
    assert gpus or note
    for gpu in gpus:
        assert gpu.uuid.startswith(("GPU-", "MIG-"))
        assert gpu.owner
        assert gpu.memory_total is None or gpu.memory_total > 1 << 30
    sampler.close()


def test_details_of_each_gpu_or_the_reason_why_not() -> None:
    if not has_nvml():
        with pytest.raises(Unreadable, match="no NVIDIA driver"):
            DetailReader("GPU-0").read({})
        return
    sampler = GpuSampler()
    for gpu in sampler.sample()[0]:
        detail, board = DetailReader(gpu.uuid).read({})
        assert detail.uuid == gpu.uuid and board.startswith("GPU-")
        assert set(detail.readings) == set(READINGS)
        assert all((reading.value is None) == bool(reading.why) for reading in detail.readings.values())
    sampler.close()


def test_pids_and_their_users() -> None:
    assert pid_user(os.getpid()) is not None
    assert pid_user(2**22 + 1) is None
    assert in_pid_namespace() in (True, False)


def test_observing_needs_neither_a_loop_nor_a_terminal() -> None:
    modules = [
        *("liverl.observe.gpu.sampler", "liverl.observe.gpu.ledger", "liverl.procs.stats"),
        *("liverl.observe.metrics.steps", "liverl.observe.engine.metrics", "liverl.observe.trials.scanner"),
        *("liverl.causes.inputs.ended", "liverl.observe.boot.stages"),
    ]
    code = (
        "import sys, importlib\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "sys.modules['liverl.observe.gpu.sampler'].GpuSampler()\n"
        "print([m for m in ('textual', 'rich', 'aiohttp', 'ray', 'litellm', 'pynvml') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout == "[]\n"


def test_a_trajectory_that_another_process_writes(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": None}
    line = json.dumps(
        {
            "success": True,
            "request_body": {"messages": ["y" * 5000], "tools": [{"name": "bash"}]},
            "response_body": {"choices": [{"finish_reason": "stop", "message": message}]},
        }
    )
    folder = tmp_path / "trials" / "step_0001" / "a"
    folder.mkdir(parents=True)
    path = folder / "litellm-trajectory.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), line])
    scanner = TrialScanner(tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    turns = 0
    while turns < 200 and time.monotonic() < deadline:
        newest = scanner.scan().newest
        turns = newest[0].turns if newest else 0
    assert writer.wait(60) == 0
    assert turns == 200
    assert scanner.bad_lines == 0
    assert scanner.status.newest[0].flags == ("zero_tool_calls",)


def test_a_log_of_a_gigabyte_costs_its_end_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast line\n")
    began = time.process_time()
    assert last_lines(log, 1) == ["last line"]
    assert time.process_time() - began < 0.2
