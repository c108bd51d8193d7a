"""The keeper by itself, spoken to over its socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.waiting import wait_until

from liverl.supervise import keeper, procfs


class Talk:
    """A keeper and one connection to it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.process = subprocess.Popen([sys.executable, "-I", "-S", keeper.__file__, str(run_dir)])
        wait_until(self._connected, what="the keeper's socket")
        self.children: list[int] = []

    def _connected(self) -> bool:
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(os.path.relpath(self.run_dir / "keeper.sock"))
        except OSError:
            self.socket.close()
            return False
        self.lines = self.socket.makefile("r")
        return True

    def ask(self, do: str, **args: Any) -> dict[str, Any]:
        self.socket.sendall(json.dumps({"id": 1, "do": do, **args}).encode() + b"\n")
        while True:
            answer: dict[str, Any] = json.loads(self.lines.readline())
            if "id" in answer:  # else an end, which is told to everybody
                return answer

    def spawn(self, token: str) -> int:
        argv = [sys.executable, "-c", "import time; time.sleep(1000)"]
        log = str(self.run_dir / "log")
        told = self.ask("spawn", token=token, argv=argv, env=dict(os.environ), cwd="/", log=log, fds={})
        self.children.append(told["pid"])
        return self.children[-1]

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not procfs.alive(pid, None), what="its end")


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    made = Talk(tmp_path)
    yield made
    for pid in made.children:
        if procfs.alive(pid, None):
            made.end(pid)
    made.process.kill()
    made.process.wait()


def test_a_keeper_that_is_dismissed_ends_with_its_last_child(talk: Talk) -> None:
    first, second = talk.spawn("a.1"), talk.spawn("b.1")
    assert talk.ask("exit")["error"] == "2 services still run"
    talk.end(first)
    assert talk.ask("exit")["error"] == "1 services still run"
    talk.end(second)
    assert talk.process.wait(60) == 0
    assert json.loads((talk.run_dir / "exits" / "b.1.json").read_text())["exit"]["signal"] == 9


def test_a_keeper_that_is_greeted_again_stays(talk: Talk) -> None:
    child = talk.spawn("a.1")
    assert "error" in talk.ask("exit")
    assert [c["token"] for c in talk.ask("hello")["children"]] == ["a.1"]
    talk.end(child)
    wait_until(lambda: talk.ask("hello")["children"][0]["exit"], what="the end, told")
    assert talk.process.poll() is None
    assert "error" not in talk.ask("exit")
    assert talk.process.wait(60) == 0
