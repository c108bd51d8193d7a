"""When a replica that leaves counts as drained: only if it says that it has no requests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.newest import lists_written
from kit.plans import plan_of

from liverl.model import TrialsStatus
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.scaling import Scaling
from liverl.supervise.services import state_machine
from liverl.supervise.services.state_machine import MachineState

REMOVED = state_machine.Stop(why="the replica is removed")

IDLE = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
# What its /metrics answers -> whether it has requests, as far as it is known.
LOADS: dict[str, tuple[Any, bool]] = {
    "none": ((200, IDLE), False),
    "none, and no queue told": ((200, "vllm:num_requests_running 0\n"), False),
    "one runs": ((200, "vllm:num_requests_running 1\n"), True),
    "one waits": ((200, "vllm:num_requests_running 0\nvllm:num_requests_waiting 1\n"), True),
    "two engines, one busy": (
        (200, 'vllm:num_requests_running{engine="0"} 0\nvllm:num_requests_running{engine="1"} 2\n'),
        True,
    ),
    "not told": ((200, "liverl:policy_version 3\n"), False),  # it never will
    "empty": ((200, ""), False),
    "error": ((500, IDLE), True),
    "no key": ((401, ""), True),
    "refused": (ConnectionRefusedError(), True),
    "late": (TimeoutError(), True),
}


class Leaving:
    """A ready replica that is to leave."""

    def __init__(self, run_dir: Path) -> None:
        self.clock, self.fed, self.answer = 1000.0, [], (200, IDLE)  # type: tuple[float, list[Any], Any]
        self.said: list[str] = []
        self.closed, self.journal = ["open"], []  # type: tuple[list[str], list[Any]]
        plan = plan_of("run.replicas=2", "trainer.kind=none", profile="embedded")
        process = SimpleNamespace(pid=5, generation=1, ports={"http": 80}, gpus=())
        machine = MachineState(state="ready", generation=1, leader_gone=False)
        self.slot = slot = SimpleNamespace(
            name="replica-1", state="ready", spec=plan.replica_template, restarts=0, ended=False,
            current=SimpleNamespace(machine=machine, process=process, feed=self.fed.append, close=self.closed.clear),
        )  # fmt: skip
        (run_dir / "secrets").mkdir()
        (run_dir / "secrets/replica_token").write_text("sk-right\n")
        supervisor: Any = SimpleNamespace(
            slots={"replica-1": slot}, stopping=False, run_dir=run_dir, attempt=1, now=lambda: self.clock,
            say=lambda kind, text, *_, **__: self.said.append(text), kick=lambda: None, used_generations={},
            http=SimpleNamespace(poll=self._get), spawn_task=asyncio.ensure_future,
            records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail, journal=self._write),
        )  # fmt: skip
        self.registry = ReplicaRegistry(supervisor, plan, 30.0, 1.0)
        self.scaling = Scaling(supervisor, plan, self.registry, self._look)
        self.scaling.restore((0,), (1,))
        self.timeout = plan.trial_timeout

    async def _look(self) -> None: ...

    async def _write(self, record: Any) -> None:
        self.journal.append(record)

    async def _get(self, *_: Any, **__: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def poll(self, times: int = 8) -> bool:
        """Poll for more seconds than it has to be quiet; whether it was told to stop."""
        for _ in range(times):
            self.clock += 1.0
            await self.registry.look(TrialsStatus(), drain=self.scaling.drain)
            await lists_written(self.registry)
        return self.fed == [REMOVED] * len(self.fed) and bool(self.fed)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("before", ["it had none", "never asked"])
async def test_a_leaving_replica(tmp_path: Path, load: str, before: str) -> None:
    answer, busy = LOADS[load]
    replica = Leaving(tmp_path)
    if before == "it had none":
        await replica.poll(1)  # an answer of which nothing may be concluded later
    replica.answer = answer
    assert await replica.poll() is not busy
    replica.clock += replica.timeout
    assert await replica.poll(1), "it is stopped at the latest when its trials cannot go on"


async def test_a_replica_that_answers_again_drains(tmp_path: Path) -> None:
    replica = Leaving(tmp_path)
    replica.answer = TimeoutError()
    assert not await replica.poll()
    replica.answer = (200, IDLE)
    assert not await replica.poll(1) and await replica.poll()


# --- its trials ---

ADDRESS = "http://127.0.0.1:80"


class Trials:
    """The trials of a run: which replica each lives on, by the proxy's file, and whether it has its result."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        (run_dir / "proxy").mkdir(exist_ok=True)

    def live_on(self, **replicas: str) -> None:
        lines = (json.dumps({"trial": trial, "replica": url}) + "\n" for trial, url in replicas.items())
        (self._run_dir / "proxy/assignments.jsonl").write_text("".join(lines))
        for trial in replicas:
            self._folder(trial).mkdir(parents=True, exist_ok=True)

    def finish(self, trial: str) -> None:
        (self._folder(trial) / "result.json").write_text("{}")

    def _folder(self, trial: str) -> Path:
        return self._run_dir / "trials/step_0001" / trial


async def test_a_replica_waits_for_its_trials_between_two_of_their_requests(tmp_path: Path) -> None:
    replica, trials = Leaving(tmp_path), Trials(tmp_path)
    trials.live_on(mine=ADDRESS, other="http://127.0.0.1:81")
    assert not await replica.poll()
    trials.finish("other")
    assert not await replica.poll(), "that lives on another one"
    trials.finish("mine")
    assert await replica.poll() and "drained; stopping this replica" in replica.said


async def test_a_trial_that_was_there_when_it_began_to_leave_is_waited_for_whatever_the_file_says_later(
    tmp_path: Path,
) -> None:
    """The proxy may move it, and its last request to this replica goes on all the same. The file may be large, too."""
    replica, trials = Leaving(tmp_path), Trials(tmp_path)
    trials.live_on(mine=ADDRESS)
    assert not await replica.poll()
    trials.live_on(mine="http://127.0.0.1:81")
    assert not await replica.poll()
    trials.finish("mine")
    assert await replica.poll()


@pytest.mark.parametrize("sessions", [1, 2])
async def test_a_replica_waits_for_each_session_that_lives_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: int
) -> None:
    replica = Leaving(tmp_path)
    placed = {ADDRESS: sessions, "http://127.0.0.1:81": 3}
    monkeypatch.setattr(replica.registry.sessions, "placed_on", lambda address: placed.get(address, 0))
    assert not await replica.poll()
    del placed[ADDRESS]
    assert await replica.poll()


async def test_trials_that_cannot_be_read_are_said_and_keep_no_replica(tmp_path: Path) -> None:
    replica = Leaving(tmp_path)
    (tmp_path / "trials").write_text("no folder")
    assert await replica.poll()
    assert any("cannot read the trials of replica-1" in text for text in replica.said)


@pytest.mark.parametrize("wanted", [False, True])
async def test_a_replica_that_has_ended_is_no_longer_part_of_the_run(tmp_path: Path, wanted: bool) -> None:
    replica = Leaving(tmp_path)
    replica.slot.state, replica.slot.ended = "failed", True
    replica.slot.current.machine = MachineState("failed", 1, wanted=wanted)
    await replica.scaling.drain()
    await asyncio.sleep(0)
    slots = replica.registry.supervisor.slots
    if wanted:  # it would be started again: it has to be stopped first
        assert "replica-1" in slots and replica.fed == [REMOVED]
        return
    assert not slots and not replica.fed and replica.closed == []
    assert replica.registry.leaving == set() and replica.journal[-1]["leaving"] == []
    await replica.scaling.drain()  # the next one is not in its way


async def test_a_replica_whose_service_is_gone_no_longer_leaves(tmp_path: Path) -> None:
    """As after a backend that was killed between the two."""
    replica = Leaving(tmp_path)
    replica.registry.supervisor.slots.clear()
    await replica.scaling.drain()
    await asyncio.sleep(0)
    assert replica.registry.leaving == set() and replica.journal == [
        {"k": "replicas", "indices": [0], "leaving": []}
    ]
