"""The process tree of a service, from real processes and from made-up ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from kit.waiting import wait_until

from liverl.procs.listing import ProcessTree

_TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int, ppid: int, start: int, ticks: int = 0, name: str = "x", state: str = "S") -> str:
    fields = [state, str(ppid), *["0"] * 9, str(ticks), "0", *["0"] * 4, "3", "0", str(start), "0", "100"]
    return f"{pid} ({name}) {' '.join(fields)}"


def make(proc: Path, pid: int, content: str, command: bytes = b"") -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(content)
    (proc / str(pid) / "cmdline").write_bytes(command)


def test_parents_come_before_children_and_rates_need_two_looks(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1000\n")
    make(tmp_path, 10, stat(10, 1, 100, 50), b"python\0-m\0train\0--api-key\0abc\0")
    make(tmp_path, 30, stat(30, 10, 300, name="a (b) c"))
    make(tmp_path, 20, stat(20, 10, 200), b"vllm worker --api-key abc\0\0\0")
    make(tmp_path, 5, stat(5, 30, 400, state="Z"))
    make(tmp_path, 77, "not a stat file")
    tree = ProcessTree(str(tmp_path))
    found = tree.look([5, 10, 20, 30, 77, 99], now=1.0)
    assert [(p.pid, p.depth) for p in found] == [(10, 0), (20, 1), (30, 1), (5, 2)]
    assert [p.command for p in found] == [
        "python -m train --api-key ***",
        "vllm worker --api-key ***",
        "[a (b) c]",
        "[x]",
    ]
    assert all(p.cpu_percent is None for p in found) and found[3].state == "Z"
    assert found[0].started_at == 1000 + 100 / _TICKS and found[0].threads == 3
    make(tmp_path, 10, stat(10, 1, 100, 50 + _TICKS), b"python\0")
    make(tmp_path, 20, stat(20, 10, 999, 5 * _TICKS), b"another one\0")
    again = {p.pid: p for p in tree.look([10, 20], now=3.0)}
    assert again[10].cpu_percent == 50.0
    assert again[20].cpu_percent is None, "the same pid with another start is another process"


def test_a_real_tree() -> None:
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()']).wait()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        child = int(wait_until(lambda: children.read_text().split(), what="the child")[0])
        tree = ProcessTree()
        found = wait_until(lambda: (t := tree.look([parent.pid, child])) and "input()" in t[-1].command and t)
        assert [(p.pid, p.depth) for p in found] == [(parent.pid, 0), (child, 1)]
        assert found[0].rss_bytes > 1 << 20 and abs(found[0].started_at - time.time()) < 60
    finally:
        parent.communicate(b"\n")
    assert tree.look([parent.pid, child]) == ()


TITLED = """
import setproctitle, sys, threading
setproctitle.setproctitle("ray::worker --api-key abcdefgh")
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
while True:
    pass
"""


def test_a_title_a_zombie_and_a_busy_process_are_told_as_they_are() -> None:
    quick = subprocess.Popen([sys.executable, "-c", ""])
    titled = subprocess.Popen(
        [sys.executable, "-c", TITLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert titled.stdin is not None and titled.stdout is not None
    pids = [quick.pid, titled.pid]
    try:
        assert titled.stdout.readline() == "ready\n"
        tree = ProcessTree()
        settled = {quick.pid: "Z", titled.pid: "S"}
        found = wait_until(
            lambda: (
                (t := {p.pid: p for p in tree.look(pids)})
                and {n: p.state for n, p in t.items()} == settled
                and t
            ),
            what="the end of the one, the waiting of the other",
        )
        assert found[quick.pid].command.startswith("[python"), "nobody has waited for it yet"
        assert found[titled.pid].command == "ray::worker --api-key ***"
        assert found[titled.pid].threads == 2
        titled.stdin.write("go\n")
        titled.stdin.flush()
        wait_until(lambda: any((p.cpu_percent or 0) > 1 for p in tree.look(pids)), what="its CPU")
        assert all(p.cpu_percent is None for p in ProcessTree().look(pids))
    finally:
        titled.kill()
        titled.communicate()
        quick.wait()
