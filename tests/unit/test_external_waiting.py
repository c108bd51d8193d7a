"""How long the end of somebody else's proxy is waited for, on a clock that only pauses move."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.external import restart
from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.procs.tree import Member

ROOT = HolderProcess(10, 100, 1, 0, ("litellm", "--port", "4000"))
WORKER = HolderProcess(11, 101, 10, 0, ("python", "-c", "worker"))
LATE = HolderProcess(12, 102, 10, 0, ("python", "-c", "late worker"))
HELD = PortHolders(frozenset({7}), "127.0.0.1:4000", (ROOT, WORKER), (ROOT,))


class World:
    """Processes that die a while after a signal, and the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.dies: dict[int, float] = {}  # pid -> when it is dead
        self.after: dict[
            tuple[int, signal.Signals], float
        ] = {}  # what a signal does: seconds until it is dead
        self.sent: list[tuple[float, int, signal.Signals]] = []
        self.refused: list[str] = []
        self.found: Callable[[float], PortHolders | None] = lambda now: None
        self.taken_until = 0.0

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0, "a pause in which others may go on"
        self.now += seconds

    async def to_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    def alive(self, pid: int, tick: int) -> bool:
        assert tick == 90 + pid
        return self.now < self.dies.get(pid, float("inf"))

    def send(self, member: Member, number: signal.Signals) -> bool:
        pid = member[0]
        self.sent.append((round(self.now, 3), pid, number))
        if (pid, number) in self.after:
            self.dies[pid] = min(self.dies.get(pid, float("inf")), self.now + self.after[pid, number])
        return True

    def send_all(self, members: Iterable[Member], number: signal.Signals) -> list[str]:
        for member in members:
            self.send(member, number)
        return self.refused

    def when(self, number: signal.Signals, pid: int) -> list[float]:
        return [at for at, to, sent in self.sent if (to, sent) == (pid, number)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(restart, "asyncio", SimpleNamespace(sleep=found.sleep, to_thread=found.to_thread))
    monkeypatch.setattr(restart, "time", SimpleNamespace(monotonic=lambda: found.now))
    monkeypatch.setattr(restart.procfs, "alive", found.alive)
    monkeypatch.setattr(
        restart.procfs, "listeners", lambda port: [1] if found.now < found.taken_until else []
    )
    monkeypatch.setattr(restart.tree, "send", found.send)
    monkeypatch.setattr(restart.tree, "send_all", found.send_all)
    monkeypatch.setattr(restart.port_holders, "look_again", lambda held: found.found(found.now))
    monkeypatch.setattr(
        restart.port_holders, "look", lambda port: HELD if found.now < found.taken_until else None
    )
    return found


async def test_those_that_end_when_asked_are_not_killed(world: World) -> None:
    world.after = {(10, signal.SIGTERM): 2.0}
    world.dies = {11: 3.0}
    assert await restart.end(HELD, grace=5.0) == [10, 11]
    assert world.sent == [(0.0, 10, signal.SIGTERM)], "the parent ends its workers"
    assert 3.0 <= world.now < 5.0


async def test_those_that_stay_are_killed_after_their_time(world: World) -> None:
    world.after = {(10, signal.SIGTERM): 1.0, (11, signal.SIGKILL): 0.2}
    assert await restart.end(HELD, grace=5.0) == [10, 11]
    (killed,) = world.when(signal.SIGKILL, 11)
    assert 5.0 <= killed < 6.5 and world.when(signal.SIGKILL, 10) == [] and world.now < 8.0


async def test_a_worker_that_came_meanwhile_is_ended_as_well(world: World) -> None:
    world.after = {(10, signal.SIGTERM): 1.0, (12, signal.SIGKILL): 0.2}
    world.dies = {11: 1.0}
    world.found = lambda now: PortHolders(frozenset({7}), "", (LATE,), (LATE,)) if 0.5 < now < 5.0 else None
    assert await restart.end(HELD, grace=5.0) == [10, 11, 12]
    assert len(world.when(signal.SIGKILL, 12)) == 1


async def test_what_cannot_be_killed_is_given_up_after_five_seconds(world: World) -> None:
    world.found = lambda now: PortHolders(frozenset({7}), "", (LATE, WORKER), (LATE,))
    with pytest.raises(restart.RestartProblem) as problem:
        await restart.end(HELD, grace=2.0)
    assert str(problem.value).endswith(" could not be killed")
    names = [str(problem.value).index(f"pid {pid} ") for pid in (10, 11, 12)]
    assert names == sorted(names), "the oldest first"
    assert 7.0 < world.now < 8.0
    kills = world.when(signal.SIGKILL, 10)
    assert len(kills) > 3 and kills == world.when(signal.SIGKILL, 11) == world.when(signal.SIGKILL, 12)


async def test_what_may_not_be_signalled_is_a_problem(world: World) -> None:
    world.refused = ["no permission to signal pid 10", "nor pid 11"]
    with pytest.raises(restart.RestartProblem, match=r"^no permission to signal pid 10; nor pid 11$"):
        await restart.end(HELD)


@pytest.mark.parametrize(("until", "taken"), [(0.0, None), (3.0, None), (9.5, None), (60.0, HELD)])
async def test_a_port_is_waited_for_ten_seconds(
    world: World, until: float, taken: PortHolders | None
) -> None:
    world.taken_until = until
    assert await restart.until_free(4000) is taken
    assert min(until, 10.0) <= world.now < min(until, 10.0) + 1.5


def processes(*rows: tuple[int, int]) -> dict[int, SimpleNamespace]:
    """(pid, parent); the start tick of each is 90 + pid."""
    return {pid: SimpleNamespace(pid=pid, ppid=parent, tick=90 + pid) for pid, parent in rows}


@pytest.mark.parametrize(("dies", "ended"), [(1.0, 1.0), (60.0, 4.0)])
async def test_a_tree_of_our_own_is_ended_whole(
    world: World, monkeypatch: pytest.MonkeyPatch, dies: float, ended: float
) -> None:
    table = processes((1, 0), (12, 11), (10, 1), (11, 10), (13, 1), (14, 13))
    monkeypatch.setattr(restart.procfs, "scan", lambda: table)
    world.dies = {10: 0.5, 11: 0.5, 12: dies}
    await restart.end_tree((10, 100), grace=4.0)
    assert world.when(signal.SIGTERM, 10) == [0.0]
    assert {pid for _, pid, number in world.sent if number == signal.SIGTERM} == {10}
    assert {pid for _, pid, number in world.sent if number == signal.SIGKILL} == {10, 11, 12}
    assert ended <= world.now < ended + 1.5
    world.sent.clear()
    for gone in ((10, 99), (99, 100)):
        await restart.end_tree(gone)
    assert world.sent == [], "another process has its pid"


def answers(world: World, at: float) -> Callable[[], Awaitable[str | None]]:
    async def healthy() -> str | None:
        return None if world.now >= at else "refused"

    return healthy


async def test_a_new_proxy_is_waited_for_until_it_answers(world: World, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n" + "".join(f"new {n}\n" for n in range(14)) + "key: sk-1234567890abcdef\n")
    await restart.until_up((10, 100), answers(world, 7.0), log, 4, limit=10.0)
    assert 7.0 <= world.now < 8.5
    with pytest.raises(restart.RestartProblem) as problem:
        await restart.until_up((10, 100), answers(world, 99.0), log, 4, limit=10.0)
    begin = f"the new proxy, pid 10, has not responded within 10 s (refused); last lines of {log}:\n"
    text = str(problem.value)
    assert text.startswith(begin + "new 3\n") and text.count("\n") == 12 and "1234567890" not in text
    assert 17.0 < world.now < 20.0
    world.dies = {10: world.now + 1.0}
    with pytest.raises(
        restart.RestartProblem, match=r"pid 10, has exited; last lines of .*:\n\(no new lines\)$"
    ):
        await restart.until_up((10, 100), answers(world, 0.0 + 99.0), log, log.stat().st_size, limit=60.0)
    with pytest.raises(restart.RestartProblem, match=r"\(cannot read the log: No such file or directory\)$"):
        await restart.until_up((10, 100), answers(world, 0.0), tmp_path / "none", 0)


def test_another_users_process_is_refused() -> None:
    uid = restart.os.geteuid()
    mine = HolderProcess(10, 100, 1, uid)
    other = HolderProcess(11, 101, 1, uid + 1, ("x",))
    assert restart.refusal(PortHolders(frozenset(), "", (mine,), (mine,))) is None
    refused = restart.refusal(PortHolders(frozenset(), "", (mine, other), (mine,)))
    assert refused is not None and refused.startswith("pid 11 ") and "another user" in refused


def test_pid_files_that_exist_are_written(tmp_path: Path) -> None:
    there, link = tmp_path / "a.pid", tmp_path / "link.pid"
    there.write_text("1\n")
    there.chmod(0o640)
    link.symlink_to(there)
    assert restart.write_pid([there, tmp_path / "none.pid", link, tmp_path, there], 77) == [there]
    assert there.read_text() == "77\n" and there.stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "none.pid").exists() and link.is_symlink()
