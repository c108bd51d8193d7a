"""The keeper by itself, spoken to over its socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kit.waiting import wait_until

from liverl.supervise import keeper, procfs
from liverl.supervise.keeperlink import KeeperError
from liverl.supervise.keeping import Keeping


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

    def written(self, token: str) -> bool:
        return (self.run_dir / "exits" / f"{token}.json").exists()

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
    wait_until(lambda: "error" not in talk.ask("ends") and talk.written("b.1"), what="the end on disk")
    assert talk.process.poll() is None, "somebody is connected"
    talk.lines.close()
    talk.socket.close()
    assert talk.process.wait(60) == 0
    assert json.loads((talk.run_dir / "exits" / "b.1.json").read_text())["exit"]["signal"] == 9


class Said:
    """Records, as far as keeping needs them."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def say(self, _kind: str, text: str, _level: str = "info") -> None:
        self.texts.append(text)

    def write_failed(self, why: str) -> None:
        raise AssertionError(why)


def keeping(run_dir: Path, said: Said) -> Keeping:
    return Keeping("p/r", run_dir, cast(Any, said), lambda *_: None, lambda _: None)


def keepers(run_dir: Path) -> list[int]:
    return [pid for pid in procfs.scan() if procfs.command_line(pid).endswith(f"keeper.py {run_dir}")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for pid in keepers(tmp_path):
        os.kill(pid, signal.SIGKILL)


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.02)


async def started(kept: Keeping, run_dir: Path) -> tuple[int, int]:
    """A service of a keeper: pid and start."""
    await kept.connect()
    argv = [sys.executable, "-c", "import time; time.sleep(1000)"]
    log = str(run_dir / "log")
    told = await kept.spawn(token="a.1", argv=argv, env=dict(os.environ), cwd="/", log=log, fds={})
    return told["pid"], told["tick"]


async def test_what_ends_after_a_refused_dismissal_calls_for_no_other_keeper(folder: Path) -> None:
    said = Said()
    kept = keeping(folder, said)
    pid, _ = await started(kept, folder)
    await kept.dismiss()
    assert said.texts == ["the keeper stays until they have ended: 1 services still run"]
    os.kill(pid, signal.SIGKILL)
    await until((folder / "exits" / "a.1.json").exists)
    kept.close()
    await until(lambda: not keepers(folder))
    assert len(said.texts) == 1


async def test_whoever_meets_the_end_of_a_dismissed_keeper_gets_another(folder: Path) -> None:
    """At once after its last child is no more, when it may be here, on its way out, or gone."""
    for delay in (0.0, 0.0, 0.0, 0.0005, 0.0005, 0.001, 0.002, 0.02):
        said = Said()
        kept = keeping(folder, said)
        pid, tick = await started(kept, folder)
        with pytest.raises(KeeperError, match="1 services still run"):
            await kept.request("exit")
        kept.close()
        os.kill(pid, signal.SIGKILL)
        while procfs.alive(pid, tick):
            pass
        time.sleep(delay)
        again = keeping(folder, said)
        _, children = await again.connect()
        assert [c["token"] for c in children] in ([], ["a.1"])
        await again.dismiss()
        again.close()
        await until(lambda: not keepers(folder))
        (folder / "exits" / "a.1.json").unlink(missing_ok=True)


def test_a_keeper_that_is_greeted_again_stays(talk: Talk) -> None:
    child = talk.spawn("a.1")
    assert "error" in talk.ask("exit")
    assert [c["token"] for c in talk.ask("hello")["children"]] == ["a.1"]
    talk.end(child)
    wait_until(lambda: talk.ask("hello")["children"][0]["exit"], what="the end, told")
    assert talk.process.poll() is None
    assert "error" not in talk.ask("exit")
    assert talk.process.wait(60) == 0
