"""CPU and memory from a written /proc: rates, reused pids, odd names. Real ones: ``tests/process``."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from liverl.procs.stats import ProcSampler

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def write(proc: Path, pid: int, *, cpu: float, start: int = 5, rss: int = 3, state: str = "S") -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    ticks = int(cpu * TICKS)
    fields = [state, "1", *["0"] * 9, str(ticks), "0", *["0"] * 6, str(start), "0", str(rss), *["0"] * 28]
    (proc / str(pid) / "stat").write_text(f"{pid} (a) b (c) {' '.join(fields)}\n")


def test_percent_is_over_the_interval_and_counts_each_core(tmp_path: Path) -> None:
    write(tmp_path, 7, cpu=1.0)
    write(tmp_path, 8, cpu=5.0)
    sampler = ProcSampler(str(tmp_path))
    first = sampler.sample({"trainer": [7, 8], "proxy": [99]}, now=100.0)
    assert first["trainer"].cpu_percent is None
    assert (first["trainer"].processes, first["trainer"].rss_bytes) == (2, 6 * PAGE)
    assert first["proxy"].processes == 0
    write(tmp_path, 7, cpu=3.0)
    write(tmp_path, 8, cpu=6.0)
    second = sampler.sample({"trainer": [7, 8]}, now=102.0)
    assert second["trainer"].cpu_percent == pytest.approx(150.0)


def test_a_reused_pid_brings_no_leap(tmp_path: Path) -> None:
    write(tmp_path, 7, cpu=1.0)
    sampler = ProcSampler(str(tmp_path))
    sampler.sample({"a": [7]}, now=0.0)
    write(tmp_path, 7, cpu=900.0, start=6)
    assert sampler.sample({"a": [7]}, now=1.0)["a"].cpu_percent == 0.0


def test_a_process_that_joins_counts_from_then_on(tmp_path: Path) -> None:
    write(tmp_path, 7, cpu=1.0)
    write(tmp_path, 8, cpu=500.0)
    sampler = ProcSampler(str(tmp_path))
    sampler.sample({"a": [7]}, now=0.0)
    assert sampler.sample({"a": [7, 8]}, now=1.0)["a"].cpu_percent == 0.0
    write(tmp_path, 8, cpu=501.0)
    assert sampler.sample({"a": [7, 8]}, now=2.0)["a"].cpu_percent == pytest.approx(100.0)


def test_zombies_are_no_processes(tmp_path: Path) -> None:
    write(tmp_path, 7, cpu=1.0, state="Z")
    assert ProcSampler(str(tmp_path)).sample({"a": [7]})["a"].processes == 0


def stalled(sampler: ProcSampler, at: float) -> list[tuple[int, str, float]]:
    sampler.sample({"a": [7, 8]}, now=at)
    return [(p.pid, p.state, p.since) for p in sampler.stalled.get("a", ())]


def test_a_process_that_is_stopped_is_named_at_the_first_sample(tmp_path: Path) -> None:
    sampler = ProcSampler(str(tmp_path))
    write(tmp_path, 7, cpu=1.0, state="T")
    write(tmp_path, 8, cpu=1.0)
    assert stalled(sampler, 10.0) == [(7, "T", 10.0)]
    assert stalled(sampler, 12.0) == [(7, "T", 10.0)]
    write(tmp_path, 7, cpu=1.0, start=6, state="T")
    assert stalled(sampler, 14.0) == [(7, "T", 14.0)], "another process with the same pid"
    write(tmp_path, 7, cpu=1.0, start=6)
    assert stalled(sampler, 16.0) == []


@pytest.mark.parametrize("state", ["t", "D"])
def test_a_moment_of_debugging_or_of_a_disk_is_no_stall(tmp_path: Path, state: str) -> None:
    sampler = ProcSampler(str(tmp_path))
    write(tmp_path, 7, cpu=1.0, state=state)
    assert stalled(sampler, 10.0) == []
    assert stalled(sampler, 12.0) == [(7, state, 10.0)]
    assert stalled(sampler, 70.0) == [(7, state, 10.0)]
    write(tmp_path, 7, cpu=1.01, state=state)
    assert stalled(sampler, 72.0) == [], "it has used CPU time"
    write(tmp_path, 7, cpu=1.01, rss=9, state=state)
    assert stalled(sampler, 74.0) == [(7, state, 72.0)]


def test_a_process_that_reads_or_writes_in_state_D_makes_progress(tmp_path: Path) -> None:
    sampler = ProcSampler(str(tmp_path))
    write(tmp_path, 7, cpu=1.0, state="D")
    io = tmp_path / "7" / "io"
    io.write_text("rchar: 1\n")
    stalled(sampler, 10.0)
    io.write_text("rchar: 2\n")
    assert stalled(sampler, 12.0) == []
    assert stalled(sampler, 14.0) == [(7, "D", 12.0)]


def test_only_a_process_that_waits_costs_a_second_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = ProcSampler._file
    monkeypatch.setattr(ProcSampler, "_file", lambda self, name: read.append(name) or real(self, name))
    for pid, state in ((7, "S"), (8, "T")):
        write(tmp_path, pid, cpu=1.0, state=state)
    ProcSampler(str(tmp_path)).sample({"a": [7, 8]})
    assert sorted(read) == ["7/stat", "8/stat"]


def test_host(tmp_path: Path) -> None:
    sampler = ProcSampler(str(tmp_path))
    assert sampler.host().memory_total is None
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 40 0\ncpu0 1\n")
    others = "".join(f"{name}: 7 kB\n" for name in ("Buffers", "Cached", "Shmem", "Active", "Inactive"))
    (tmp_path / "meminfo").write_text(f"MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n{others}")
    first = sampler.host()
    assert first.cpu_percent is None
    assert (first.memory_used, first.memory_total) == (600 * 1024, 1000 * 1024)
    (tmp_path / "stat").write_text("cpu  150 0 100 725 125 0 0 0 80 0\n")
    assert sampler.host().cpu_percent == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("stat", "meminfo"),
    [
        (b"cpu 1 2 3\n", b"MemTotal: 2 kB\nMemAvailable: 1 kB\n"),
        (b"intr 1 2 3 4 5 6 7 8\n", b"MemTotal: 2 kB\nMemAvailable: 1 kB\n"),
        (b"cpu 1 2 3 4 5 6 7 x\n", b"MemTotal: 2 kB\nMemAvailable: 1 kB\n"),
        (b"cpu 1 2 3 4 5 6 7 8\n", b"MemTotal: 2 kB\n"),
        (b"cpu 1 2 3 4 5 6 7 8\n", b"MemTotal: two kB\nMemAvailable: 1 kB\n"),
    ],
)
def test_a_host_that_says_something_else_has_no_numbers(tmp_path: Path, stat: bytes, meminfo: bytes) -> None:
    (tmp_path / "stat").write_bytes(stat)
    (tmp_path / "meminfo").write_bytes(meminfo)
    found = ProcSampler(str(tmp_path)).host()
    assert (found.cpu_percent, found.memory_used, found.memory_total) == (None, None, None)


def test_the_host_as_another_program_sees_it() -> None:
    ours, theirs = ProcSampler().host(), psutil.virtual_memory()
    assert ours.memory_total == theirs.total
    assert ours.memory_used == pytest.approx(theirs.total - theirs.available, abs=0.2 * theirs.total)
