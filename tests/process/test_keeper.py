"""The keeper by itself, spoken to over its socket."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kit.keeper_talk import PROGRAM, Talk
from kit.waiting import wait_until

from liverl.plan.spec import BRIDGE, PortSpec
from liverl.procs import procfs
from liverl.supervise.keeper.client import KeeperError
from liverl.supervise.keeper.process.liverl_keeper.processes import descendants
from liverl.supervise.services.asked import Addresses, no_address
from liverl.supervise.services.keeper_manager import KeeperManager
from liverl.supervise.services.prepare import PrepareProblem


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    made = Talk(tmp_path)
    yield made
    made.close()


def test_a_keeper_that_is_dismissed_ends_with_its_last_child(talk: Talk) -> None:
    first, second = talk.spawn("a.1"), talk.spawn("b.1")
    assert talk.ask("exit")["error"] == "service processes still running: 2"
    talk.end(first)
    assert talk.ask("exit")["error"] == "service processes still running: 1"
    talk.end(second)
    wait_until(lambda: "error" not in talk.ask("ends") and talk.written("b.1"), what="the end on disk")
    assert talk.process.poll() is None, "somebody is connected"
    talk.leave()
    assert talk.process.wait(60) == 0
    assert json.loads((talk.run_dir / "exits" / "b.1.json").read_text())["exit"]["signal"] == 9


class Said:
    """Records, as far as keeping needs them."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def say(self, _kind: str, text: str, _level: str = "info", _service: str = "") -> None:
        self.texts.append(text)

    def write_failed(self, why: str) -> None:
        raise AssertionError(why)

    def warn(self, _kind: str, text: str) -> None:
        raise AssertionError(text)


def keeper_manager(run_dir: Path, said: Said, addresses: Addresses = no_address) -> KeeperManager:
    return KeeperManager("p/r", run_dir, cast(Any, said), lambda *_: None, lambda _: None, addresses)


def keepers(run_dir: Path) -> list[int]:
    return [pid for pid in procfs.scan() if procfs.command_line(pid).endswith(f" -I -S {PROGRAM} {run_dir}")]


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


async def started(kept: KeeperManager, run_dir: Path) -> tuple[int, int]:
    """A service of a keeper: pid and start."""
    await kept.connect()
    argv = [sys.executable, "-c", "import time; time.sleep(1000)"]
    log = str(run_dir / "log")
    told = await kept.spawn(token="a.1", argv=argv, env=dict(os.environ), cwd="/", log=log, fds={})
    return told["pid"], told["tick"]


async def test_what_ends_after_a_refused_dismissal_calls_for_no_other_keeper(folder: Path) -> None:
    said = Said()
    kept = keeper_manager(folder, said)
    pid, _ = await started(kept, folder)
    await kept.dismiss()
    assert said.texts == ["the keeper keeps running: service processes still running: 1"]
    os.kill(pid, signal.SIGKILL)
    await until((folder / "exits" / "a.1.json").exists)
    kept.close()
    await until(lambda: not keepers(folder))
    assert len(said.texts) == 1


async def test_whoever_meets_the_end_of_a_dismissed_keeper_gets_another(folder: Path) -> None:
    """At once after its last child is no more, when it may be here, on its way out, or gone."""
    for delay in (0.0, 0.0, 0.0, 0.0005, 0.0005, 0.001, 0.002, 0.02):
        said = Said()
        kept = keeper_manager(folder, said)
        pid, tick = await started(kept, folder)
        with pytest.raises(KeeperError, match="service processes still running: 1"):
            await kept.request("exit")
        kept.close()
        os.kill(pid, signal.SIGKILL)
        while procfs.alive(pid, tick):
            pass
        time.sleep(delay)
        again = keeper_manager(folder, said)
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
    wait_until(lambda: talk.written("a.1"), what="the exit on disk")
    assert "error" not in talk.ask("ends")
    descriptors = len(os.listdir(f"/proc/{talk.process.pid}/fd"))
    talk.leave()
    wait_until(
        lambda: len(os.listdir(f"/proc/{talk.process.pid}/fd")) < descriptors, what="that it sees nobody left"
    )
    talk.connect()
    assert talk.ask("hello")["pid"] == talk.process.pid
    assert "error" not in talk.ask("exit")
    assert talk.process.wait(60) == 0


# --- a run directory that was removed ---

# The keeper with shorter times; the last argument is how long the leaders have.
QUICK_KEEPER = """
import sys
sys.path.insert(0, sys.argv[2])
from liverl_keeper import keeper, removal
keeper.ALONE_MS, keeper.ENDING_MS, removal.LEADERS_GRACE, removal.TREE_GRACE = 20, 20, float(sys.argv[3]), 3.0
keeper.main()
"""
IGNORES_TERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
# It notes the TERM it gets, and lives on.
NOTES_TERM = """
import pathlib, signal, sys
def note(*_):
    with open(sys.argv[1], "a") as file:
        file.write("TERM\\n")
signal.signal(signal.SIGTERM, note)
pathlib.Path(sys.argv[1]).touch()
while True:
    signal.pause()
"""
# Below each leader: one in a session and with an environment of its own.
TREE = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[3:]], start_new_session=True, env={})
exec(sys.argv[2])
"""


def below(pid: int) -> set[int]:
    """The processes below this one that have not ended."""
    return set(descendants(pid))


def free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def looks(pid: int) -> int:
    """How often the process has waited for something."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])


@pytest.fixture
def quick(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Talk]:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    grace = str(getattr(request, "param", 0.5))
    made = Talk(run_dir, "-c", QUICK_KEEPER, str(run_dir), str(PROGRAM), grace)
    yield made
    for pid in below(made.process.pid) | {pid for pid in made.children if procfs.alive(pid, None)}:
        os.kill(pid, signal.SIGKILL)
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize("leader", ["import time; time.sleep(1000)", IGNORES_TERM])
def test_a_keeper_whose_directory_was_removed_ends_what_it_keeps(
    quick: Talk, tmp_path: Path, leader: str
) -> None:
    """A leader that obeys TERM or ignores it, and below it a process that notes TERM and lives on."""
    port = quick.ask("listen", name="p.http", host="127.0.0.1", port=0)["port"]
    note = tmp_path / "note"
    child = quick.spawn("a.1", [sys.executable, "-c", TREE, NOTES_TERM, leader, str(note)])
    wait_until(note.exists, what="what is below it")
    kept = below(quick.process.pid)
    assert len(kept) == 2 and child in kept and not free(port)
    quick.leave()
    shutil.rmtree(quick.run_dir)
    assert quick.process.wait(60) == 0
    assert not any(procfs.alive(pid, None) for pid in kept)
    assert note.read_text() == "TERM\n", "once, before it was killed"
    assert free(port)


@pytest.mark.parametrize("quick", [600.0], indirect=True)
def test_what_ends_by_term_is_not_killed(quick: Talk, tmp_path: Path) -> None:
    note = tmp_path / "note"
    script = NOTES_TERM.replace(
        "pause()", "pause(); file = open(sys.argv[1], 'a'); file.write('bye'); sys.exit()"
    )
    quick.spawn("a.1", [sys.executable, "-c", script, str(note)])
    wait_until(note.exists, what="its start")
    quick.leave()
    shutil.rmtree(quick.run_dir)
    assert quick.process.wait(60) == 0
    assert note.read_text() == "TERM\nbye"


def test_a_keeper_whose_directory_was_moved_stays(quick: Talk, tmp_path: Path) -> None:
    child = quick.spawn("a.1")
    quick.leave()
    quick.run_dir.rename(tmp_path / "moved")
    before = looks(quick.process.pid)
    wait_until(lambda: looks(quick.process.pid) > before + 10, what="ten looks")
    assert quick.process.poll() is None and procfs.alive(child, None)
    quick.run_dir = tmp_path / "moved"
    quick.connect()
    assert [c["pid"] for c in quick.ask("hello")["children"]] == [child]
    quick.leave()
    shutil.rmtree(tmp_path / "moved")
    assert quick.process.wait(60) == 0
    assert not procfs.alive(child, None)


def test_while_a_backend_is_connected_the_keeper_leaves_its_services_to_it(quick: Talk) -> None:
    child = quick.spawn("a.1")
    shutil.rmtree(quick.run_dir)
    for _ in range(10):  # before each answer but the first it has looked
        assert quick.ask("hello")["children"][0]["exit"] is None
    assert procfs.alive(child, None)
    quick.leave()
    assert quick.process.wait(60) == 0
    assert not procfs.alive(child, None)


async def test_the_bridge_of_docker_as_listen_address_is_asked_for_once(folder: Path) -> None:
    answers = [("", "no daemon"), ("", "no daemon"), ("127.0.0.2", ""), ("", "it has gone")]
    asked: list[str] = []

    async def addresses(host: str) -> tuple[str, str]:
        asked.append(host)
        return answers[len(asked) - 1]

    said = Said()
    kept = keeper_manager(folder, said, addresses)
    await kept.connect()
    port = PortSpec("sandboxes", 0, BRIDGE, held=True)
    assert [await kept.hold_port("sessions", port) for _ in range(2)] == [
        None,
        None,
    ] and kept.held_hosts() == {}
    assert said.texts == [
        "sandboxes in Docker cannot reach sessions, which listens on 127.0.0.1 only: no daemon"
    ]
    number = await kept.hold_port("sessions", port)
    assert kept.held_hosts() == {"sessions.sandboxes": "127.0.0.2"}
    assert kept.held_ports() == {"sessions.sandboxes": number}
    with socket.create_connection(("127.0.0.2", number or 0), 60):
        pass
    assert await kept.hold_port("sessions", port) == number, "an open socket stays where it is"
    assert asked == [BRIDGE] * 3
    await kept.dismiss()
    kept.close()


async def test_a_name_as_listen_address_is_looked_up_by_the_backend(folder: Path) -> None:
    kept = keeper_manager(folder, Said())
    await kept.connect()
    number = await kept.hold_port("proxy", PortSpec("http", 0, "localhost", held=True))
    assert not free(number)
    with pytest.raises(PrepareProblem, match=r"cannot look up the address of no\.such\.host\.invalid"):
        await kept.hold_port("other", PortSpec("http", 0, "no.such.host.invalid", held=True))
    await kept.dismiss()
    kept.close()
