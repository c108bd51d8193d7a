"""What the backend writes of the run as a whole: when, and what it does when it cannot."""

from __future__ import annotations

import errno
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from kit.screens import NOW, replica, service, snapshot
from msgspec.structs import replace

from liverl.daemon import state_writer
from liverl.daemon.state_writer import StateWriter
from liverl.model import Cause, Event, HostStats, ReplicaSet, StepMetrics, Symptom, TreeStats, TrialsStatus
from liverl.observe.history import INTERVAL, read_history
from liverl.plan.spec import Plan, Settings
from liverl.rundir.layout import RunDir
from liverl.supervise.services.state_machine import MachineState
from liverl.util.pace import QUIET_AFTER, QUIET_PERIOD, Pace


class Fake:
    """A chronicle of a run whose ``state`` the test sets."""

    def __init__(self, run_dir: Path) -> None:
        self.state, self.clock = snapshot(), NOW
        self.said: list[str] = []
        self.failed: list[str] = []
        self.looks: list[Any] = []  # diagnoses that were begun at once
        supervisor: Any = SimpleNamespace(
            run_dir=run_dir,
            attempt_dir=run_dir / "attempt_001",
            attempt=1,
            slots={},
            stopping=False,
            end_causes=SimpleNamespace(newest={}, read=AsyncMock()),
            spawn_task=lambda work: self.looks.append(work) or work.close(),
            now=lambda: self.clock,
            say=lambda kind, text, *a, **k: self.said.append(text),
            records=SimpleNamespace(write_failed=self.failed.append),
            pace=Pace(),
            plan=Plan("p/n", "", "managed", (), (), None, 1, served_model="policy"),
        )
        self.supervisor, self.run = supervisor, RunDir(run_dir)
        self.state_writer = StateWriter(
            supervisor, lambda symptoms: replace(self.state, at=self.clock, symptoms=symptoms)
        )

    async def look(self, seconds: float) -> None:
        for _ in range(round(seconds / 2)):
            self.clock += 2.0
            await self.state_writer.look()

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
    await fake.state_writer.close()
    last = fake.run.read_snapshot()
    assert last is not None and last.state == "done"


async def test_a_quiet_run_has_a_line_every_ten_seconds_too(fake: Fake) -> None:
    monotonic = time.monotonic()
    fake.supervisor.pace = Pace(lambda: monotonic)
    monotonic += QUIET_AFTER + 1
    assert fake.supervisor.pace.quiet
    pauses = [await fake.state_writer.look() for _ in range(3)]
    assert QUIET_PERIOD > INTERVAL and max(pauses) < 1.5 * INTERVAL, (
        "a pause is up to half a period longer, to meet the others"
    )
    assert min(pauses) >= 0.5 * INTERVAL


async def test_a_disk_that_takes_nothing_is_told_and_asked_again(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(state_writer, "write_atomic", full)
        patch.setattr(fake.state_writer._history, "append", full)
        await fake.look(10)
    assert set(fake.failed) == {
        f"{name}: No space left on device" for name in ("history.jsonl", "snapshot.json")
    }
    await fake.look(10)
    assert fake.run.read_snapshot() is not None and read_history(fake.run.path)


@pytest.mark.parametrize("stopping", [False, True])
async def test_symptoms_are_told_and_stand_in_the_snapshot(fake: Fake, stopping: bool) -> None:
    fake.state = replace(fake.state, proxy=replace(fake.state.proxy, cooled_down=("http://127.0.0.1:8001",)))
    await fake.look(20)
    (said,) = fake.said
    assert said.startswith("the proxy has put r1 in cooldown: requests to r1 failed")
    last = fake.run.read_snapshot()
    assert last is not None and [s.id for s in last.symptoms] == ["proxy_cooled_down:r1"]
    fake.state, fake.supervisor.stopping = snapshot(), stopping
    await fake.look(60)
    how = "ended with the run after 0m50s" if stopping else "resolved after 0m50s"
    assert fake.said[1:] == [f'{how}: "the proxy has put r1 in cooldown"']


@pytest.mark.parametrize("stopped", [True, False])
async def test_what_was_wrong_when_somebody_stopped_the_run_stays(fake: Fake, stopped: bool) -> None:
    """Nobody has resolved it, and it may be why the run was stopped: doctor, status and lists show it afterwards."""
    fake.state_writer._stopped = lambda: stopped
    fake.state = replace(fake.state, proxy=replace(fake.state.proxy, cooled_down=("http://127.0.0.1:8001",)))
    await fake.look(20)
    fake.supervisor.stopping = True
    fake.state = replace(snapshot(), services=())
    await fake.look(60)
    fake.state = replace(fake.state, state="stopped" if stopped else "done")
    await fake.state_writer.close()
    last = fake.run.read_snapshot()
    assert last is not None and [s.id for s in last.symptoms] == ["proxy_cooled_down:r1"] * stopped


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_replica_that_somebody_stopped_is_not_missing(fake: Fake, wanted: bool) -> None:
    slot = SimpleNamespace(name="r1", current=SimpleNamespace(machine=MachineState("stopped", wanted=wanted)))
    fake.state_writer._supervisor.slots["r1"] = slot  # type: ignore[assignment]
    gone = replica(1, "stopped", address=None, listed=False, why="x")
    fake.state = replace(fake.state, replicas=ReplicaSet(2, 1, 1, (replica(0), gone)))
    await fake.look(20)
    assert fake.said == (["r1 is missing: x"] if wanted else [])


async def test_why_a_service_ended_is_asked_once_for_each_process(fake: Fake) -> None:
    process = SimpleNamespace(generation=1)
    current = SimpleNamespace(machine=MachineState("gave_up", 1), process=process)
    supervisor: Any = fake.state_writer._supervisor
    supervisor.slots["r1"] = SimpleNamespace(name="r1", current=current)
    supervisor.end_causes = SimpleNamespace(
        of=AsyncMock(return_value=Cause("r1", "GPU 0 out of memory", 1.0)), read=AsyncMock()
    )
    fallen = service("r1", "replica", "gave_up", why="exit 1", pid=None)
    fake.state = replace(fake.state, services=(*fake.state.services[:2], fallen))
    await fake.look(6)
    assert fake.said == ["r1 failed too often: GPU 0 out of memory"]
    assert supervisor.end_causes.of.await_count == 1


async def test_an_alert_of_an_earlier_backend_keeps_its_cause(fake: Fake) -> None:
    fake.supervisor.end_causes = SimpleNamespace(newest={}, read=AsyncMock())
    name, cause = "service_restarted:proxy", "its log says nothing about it"
    fake.state_writer._earlier = {name: Symptom(name, "warning", "t", cause, "look at dmesg", since=NOW - 9)}
    proxy = service("proxy", "proxy", "ready", failed_at=NOW - 10, failure="killed by SIGKILL", restarts=1)
    others = tuple(s for s in snapshot().services if s.name != "proxy")
    fake.state = replace(fake.state, services=(*others, proxy))
    await fake.look(2)
    assert [s.cause for s in fake.state_writer.symptoms if s.id == name] == [cause]


async def test_the_cause_of_an_earlier_failure_is_not_that_of_the_newest(fake: Fake) -> None:
    cause = Cause("proxy", "ran out of memory", NOW - 9)
    fake.supervisor.end_causes = SimpleNamespace(newest={"proxy": cause}, read=AsyncMock())

    async def said(state: str, failed_at: float) -> str:
        proxy = service("proxy", "proxy", state, failed_at=failed_at, failure="killed by SIGKILL", restarts=1)
        others = tuple(s for s in snapshot().services if s.name != "proxy")
        fake.state = replace(fake.state, services=(*others, proxy))
        await fake.look(2)
        found = [s for s in fake.state_writer.symptoms if s.id == "service_restarted:proxy"]
        return found[0].cause if found else ""

    assert (await said("ready", NOW - 10)).startswith("ran out of memory; it was restarted 1 time")
    assert (await said("ready", NOW - 8)).startswith("by somebody or by the kernel's")
    assert fake.state_writer._causes_of_restarts(replace(fake.state, services=())) == {}
    assert await said("stopping", NOW - 10) == ""
    assert fake.state_writer._causes_of_restarts(fake.state) == {}, "its newest process has no cause yet"


def test_a_failure_is_diagnosed_as_soon_as_its_cause_is_known(fake: Fake) -> None:
    """A replica that fails while it starts never served, so that nothing stops serving."""
    changed, causes = fake.state_writer.services_changed, fake.supervisor.end_causes.newest
    changed()
    assert not fake.looks
    causes["replica-0"] = Cause("replica-0", "GPU out of memory", NOW)
    changed()
    changed()
    assert len(fake.looks) == 1, "once for each end"
    causes["replica-0"] = Cause("replica-0", "GPU out of memory", NOW + 30)
    changed()
    assert len(fake.looks) == 2
    fake.supervisor.stopping = True
    causes["replica-1"] = Cause("replica-1", "GPU out of memory", NOW + 31)
    changed()
    assert len(fake.looks) == 2, "the end of the run tells it"


async def test_a_failure_is_told_with_its_cause_the_first_time(fake: Fake) -> None:
    """The look comes while the log of the process that has ended is still being read."""
    again = service("trainer", "trainer", "starting", failed_at=NOW, failure="exit 1", restarts=1)
    fake.state = snapshot(services=(again,))
    ends = fake.supervisor.end_causes

    async def read() -> None:
        ends.newest["trainer"] = Cause("trainer", "GPU 0 out of memory", NOW, id="cuda-oom")

    ends.read = read
    await fake.look(2)
    (said,) = [text for text in fake.said if "trainer failed" in text]
    assert "GPU 0 out of memory" in said


async def test_a_muted_alert_is_an_event_and_stands_in_the_snapshot(fake: Fake) -> None:
    fake.supervisor.plan = replace(fake.supervisor.plan, settings=Settings(mute=("learning_rate_zero",)))
    fake.state = replace(fake.state, metrics=StepMetrics(7, {"actor/lr": 0.0}), trials=TrialsStatus())
    await fake.look(30)
    assert [text for text in fake.said if "learning_rate_zero" in text] == [
        "muted by diagnosis.mute: learning_rate_zero: the policy does not learn"
    ]
    assert [one.id for one in fake.state_writer.muted] == ["learning_rate_zero"]
    assert fake.state_writer.diagnosis is None, "a run's result does not name it"
    last = fake.run.read_snapshot()
    assert last is not None and [one.id for one in last.muted] == ["learning_rate_zero"]
    again = Fake(fake.run.path)
    again.supervisor.plan, again.state = fake.supervisor.plan, fake.state
    await again.look(4)
    assert not [text for text in again.said if "learning_rate_zero" in text], "a later backend"
    fake.supervisor.plan = replace(fake.supervisor.plan, settings=Settings())
    await fake.look(4)
    assert any(text.startswith("the policy does not learn") for text in fake.said), "no longer muted"


async def test_an_alert_that_ended_after_the_last_snapshot_does_not_come_back(fake: Fake) -> None:
    """A backend is killed some seconds after it wrote its snapshot; its events are newer."""
    cooled = replace(fake.state.proxy, cooled_down=("http://127.0.0.1:8001",))
    whole, fake.state = fake.state, replace(fake.state, proxy=cooled)
    await fake.look(20)
    last = fake.run.read_snapshot()
    assert last is not None and [s.id for s in last.symptoms] == ["proxy_cooled_down:r1"]
    ended = Event(
        last.seq + 1, NOW, "symptom", "resolved", data={"id": "proxy_cooled_down:r1", "what": "cleared"}
    )
    fake.run.events.write_bytes(msgspec.json.encode(ended) + b"\n")
    after = Fake(fake.run.path)
    after.state, after.clock = whole, fake.clock
    await after.look(2)
    assert after.state_writer.symptoms == () and after.said == []
