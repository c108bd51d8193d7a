"""What the backend writes of the run as a whole: when, and what it does when it cannot."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.screens import NOW, snapshot
from msgspec.structs import replace

from liverl.model import HostStats, TreeStats
from liverl.observe.history import read_history
from liverl.rundir import RunDir
from liverl.supervise import chronicle
from liverl.supervise.chronicle import Chronicle


class Fake:
    """A chronicle of a run whose ``state`` the test sets."""

    def __init__(self, run_dir: Path) -> None:
        self.state, self.clock = snapshot(), NOW
        self.said: list[str] = []
        self.failed: list[str] = []
        supervisor: Any = SimpleNamespace(
            run_dir=run_dir,
            attempt=1,
            slots={},
            now=lambda: self.clock,
            say=lambda kind, text, *a, **k: self.said.append(text),
            records=SimpleNamespace(write_failed=self.failed.append),
            plan=SimpleNamespace(served_model="policy"),
        )
        self.run = RunDir(run_dir)
        self.chronicle = Chronicle(supervisor, lambda: replace(self.state, at=self.clock))

    async def look(self, seconds: float) -> None:
        for _ in range(round(seconds / 2)):
            self.clock += 2.0
            await self.chronicle.look()

    @property
    def inode(self) -> int:
        return self.run.snapshot.stat().st_ino


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


async def test_a_line_every_ten_seconds_and_a_snapshot_when_it_has_news(fake: Fake) -> None:
    await fake.look(2)
    assert not fake.run.snapshot.exists()
    await fake.look(60)
    times = [s.at for s in read_history(fake.run.path)]
    assert len(times) == 6 and {b - a for a, b in pairwise(times)} == {10.0}
    assert set(read_history(fake.run.path)[0].services) >= {"r0", "r1", "proxy", "trainer"}
    first = fake.inode
    moved = tuple(replace(s, tree=TreeStats(9, 9.0, 9)) for s in fake.state.services)
    fake.state = replace(fake.state, host=HostStats(1.0), services=moved)
    await fake.look(20)
    assert fake.inode == first, "numbers that always move are no news"
    fake.state = replace(fake.state, step=8)
    await fake.look(10)
    assert fake.inode != first
    last = fake.run.read_snapshot()
    assert last is not None and last.step == 8
    fake.state = replace(fake.state, state="done")
    await fake.chronicle.close()
    last = fake.run.read_snapshot()
    assert last is not None and last.state == "done"


async def test_a_disk_that_takes_nothing_is_told_and_asked_again(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(chronicle, "write_atomic", full)
        patch.setattr(fake.chronicle._history, "append", full)
        await fake.look(10)
    assert set(fake.failed) == {
        f"{name}: No space left on device" for name in ("history.jsonl", "snapshot.json")
    }
    await fake.look(10)
    assert fake.run.read_snapshot() is not None and read_history(fake.run.path)


async def test_symptoms_are_told_and_stand_in_the_snapshot(fake: Fake) -> None:
    fake.state = replace(fake.state, proxy=replace(fake.state.proxy, cooled_down=("http://127.0.0.1:8001",)))
    await fake.look(20)
    (said,) = fake.said
    assert said.startswith("the proxy leaves r1 alone: requests to it failed")
    last = fake.run.read_snapshot()
    assert last is not None and [s.id for s in last.symptoms] == ["proxy_cooled_down:r1"]
    fake.state = snapshot()
    await fake.look(60)
    assert fake.said[1:] == ["cleared after 0m50s: the proxy leaves r1 alone"]
