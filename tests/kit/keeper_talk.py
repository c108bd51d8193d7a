"""A keeper by itself, and a connection to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from kit.waiting import wait_until
from liverl.procs import procfs
from liverl.supervise.keeper import process as keeper_program

PROGRAM = Path(keeper_program.__file__).parent


class Talk:
    """A keeper and one connection to it. ``before``: a command that starts the keeper."""

    def __init__(self, run_dir: Path, *argv: str, before: tuple[str, ...] = ()) -> None:
        self.run_dir = run_dir
        argv = argv or (str(PROGRAM), str(run_dir))
        self.process = subprocess.Popen([*before, sys.executable, "-I", "-S", *argv])
        self.connect()
        self.children: list[int] = []

    def close(self) -> None:
        """End the keeper and its services."""
        for pid in self.children:
            if procfs.alive(pid, None):
                self.end(pid)
        self.process.kill()
        self.process.wait()

    def connect(self) -> None:
        wait_until(self._connected, what="the keeper's socket")

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

    def leave(self) -> None:
        self.lines.close()
        self.socket.close()

    def spawn(self, token: str, argv: list[str] | None = None) -> int:
        argv = argv or [sys.executable, "-c", "import time; time.sleep(1000)"]
        log = str(self.run_dir / "log")
        told = self.ask("spawn", token=token, argv=argv, env=dict(os.environ), cwd="/", log=log, fds={})
        assert "error" not in told, told["error"]
        self.children.append(told["pid"])
        return self.children[-1]

    def written(self, token: str) -> bool:
        return (self.run_dir / "exits" / f"{token}.json").exists()

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not procfs.alive(pid, None), what="its end")
