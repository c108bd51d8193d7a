"""Regular looks at trees do not read again what is nobody's of ours, and miss nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from kit.waiting import wait_until

from liverl.procs import procfs
from liverl.procs.tree import Trees

SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]


def test_known_processes_are_taken_over_and_new_ones_read() -> None:
    first = procfs.scan_again({})
    child = subprocess.Popen(SLEEP)
    try:
        second = procfs.scan_again(first)
        assert child.pid not in first and second[child.pid][1].ppid == os.getpid()
        assert second[os.getpid()] is first[os.getpid()]
        assert {pid: entry[1].tick for pid, entry in second.items() if pid in first}.items() <= {
            pid: entry[1].tick for pid, entry in first.items()
        }.items()
    finally:
        child.kill()
        child.wait()
    assert child.pid not in procfs.scan_again(second)


def test_another_inode_is_another_process() -> None:
    inode, proc = procfs.scan_again({})[os.getpid()]
    stale = procfs.Proc(proc.pid, 1, 1, 1, proc.tick - 1, "S", "earlier")
    again = procfs.scan_again({os.getpid(): (inode + 1, stale)})
    assert again[os.getpid()][1].tick == proc.tick


def test_foreign_processes_are_read_once_and_ours_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = Trees("p/n", keeper_pid=os.getpid(), not_ours=frozenset({os.getpid()}))
    leader = subprocess.Popen(SLEEP, start_new_session=True)
    read: list[int] = []
    real = procfs.read_proc

    def counting(pid: int) -> procfs.Proc | None:
        read.append(pid)
        return real(pid)

    try:
        leaders = {"a.1": (leader.pid, procfs.start_tick(leader.pid) or 0)}
        assert trees.look(leaders)["a.1"] == {leaders["a.1"]}
        monkeypatch.setattr(procfs, "read_proc", counting)
        assert trees.look(leaders)["a.1"] == {leaders["a.1"]}
        assert leader.pid in read and os.getppid() not in read
    finally:
        leader.kill()
        leader.wait()
    wait_until(lambda: trees.look({}).get("a.1") in (None, set()))
