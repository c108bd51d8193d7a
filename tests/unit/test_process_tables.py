"""The process table that services which end look at: what is read for it, and how often."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from liverl.procs import procfs
from liverl.supervise.services import process_scan
from liverl.supervise.services.process_scan import ProcessScan
from liverl.util.pace import Pace

KWORKER = b"46 (kworker/R-xfsalloc) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 0 -20 1 0 49 0 0 1"
SHELL = b"61 (bash) S 60 61 61 0 -1 4194560 24735 1520765 0 290 7 20 9 3 20 0 1 0 117 5246976 1001 1"


@dataclass
class Keeper:
    run: str = "p/n"
    run_dir: Path = Path("/nowhere")
    spawning: bool = False


@pytest.fixture
def scan() -> ProcessScan:
    return ProcessScan(cast(Any, Keeper()), 1, cast(Any, None), lambda: (), 1.0, Pace())


def test_a_thread_of_the_kernel_is_told_from_a_process() -> None:
    assert procfs.parse_stat(KWORKER).kernel
    assert not procfs.parse_stat(SHELL).kernel
    own = procfs.read_proc(os.getpid())
    assert own is not None and not own.kernel


def test_threads_of_the_kernel_are_read_once_and_processes_for_each_table(
    scan: ProcessScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, shell = procfs.parse_stat(KWORKER), procfs.parse_stat(SHELL)
    known: list[dict[int, tuple[int, procfs.Proc]]] = []

    def again(before: Mapping[int, tuple[int, procfs.Proc]]) -> dict[int, tuple[int, procfs.Proc]]:
        known.append(dict(before))
        return {46: (7, thread), 61: (8, shell)}

    monkeypatch.setattr(process_scan.procfs, "scan_again", again)
    monkeypatch.setattr(process_scan.time, "monotonic", iter(range(1, 100)).__next__)
    for _ in range(2):
        scan._table_cost = 0.0
        assert scan._processes() == {46: thread, 61: shell}
    assert known == [{}, {46: (7, thread)}]


def test_a_table_lasts_until_another_one_is_read(scan: ProcessScan, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it costs, not by how long others held it up: two tables in a row that show no process of a service are
    what its next start waits for."""
    now, cpu = [10.0], [1.0]

    def slow(before: object) -> dict[int, tuple[int, procfs.Proc]]:
        now[0] += 20.0
        cpu[0] += 2.0
        return {}

    monkeypatch.setattr(process_scan.procfs, "scan_again", slow)
    monkeypatch.setattr(process_scan.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(process_scan.time, "thread_time", lambda: cpu[0])
    scan._processes()
    assert (scan.tables, scan.table_lasts) == (1, 6.0)
    now[0] += 6.0
    scan._processes()
    assert (scan.tables, scan.table_lasts) == (1, 0.0)
    now[0] += 0.1
    scan._processes()
    assert scan.tables == 2
