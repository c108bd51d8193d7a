"""From the engines' numbers, the trainer's phase and the proxy's list to the verdict on each replica."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.model import ReplicaStatus, StepTrials, TrialsStatus
from liverl.plan.spec import Plan, ServiceSpec
from liverl.serving.registry import ReplicaRegistry
from liverl.supervise.services.state_machine import MachineState


class Fake:
    """Two ready replicas, a trainer and a proxy; ``look`` looks once a second."""

    def __init__(self, run_dir: Path, engine: str = "embedded", environment: str | None = None) -> None:
        self.run_dir, self.clock = run_dir, 1000.0
        self.engines: dict[str, dict[str, float] | None] = {"r0": {"running": 2.0}, "r1": {}}
        self.trials = TrialsStatus()
        self.slots: dict[str, Any] = {
            name: self._slot(name, kind, port)
            for name, kind, port in (("r0", "replica", 80), ("r1", "replica", 81), ("trainer", "trainer", 0))
        }
        supervisor: Any = SimpleNamespace(
            slots=self.slots,
            stopping=False,
            run_dir=run_dir,
            attempt=1,
            now=lambda: self.clock,
            say=lambda *a, **k: None,
            kick=lambda: None,
            http=SimpleNamespace(poll=self._get),
            records=SimpleNamespace(write_failed=lambda text: None, warn=pytest.fail),
        )
        template = ServiceSpec("r{index}", "replica", ("serve",), environment=environment)
        plan = Plan("p/n", str(run_dir), "managed", (), (), template, 2, served_model="m", engine=engine)
        self.replicas = ReplicaRegistry(supervisor, plan, 30.0, 1.0)
        self.tell(phase="rollout", step=4, policy_version=4)

    def _slot(self, name: str, kind: str, port: int) -> Any:
        process = SimpleNamespace(pid=5, generation=1, ports={"http": port}, gpus=(), member=(5, 6))
        current = SimpleNamespace(
            machine=MachineState(state="ready", generation=1, leader_gone=False),
            process=process,
            port=lambda _: port,
        )
        spec = SimpleNamespace(kind=kind, host="127.0.0.1")
        return SimpleNamespace(
            name=name, state="ready", spec=spec, current=current, restarts=0, instances=lambda: [current]
        )

    async def _get(
        self, address: str, timeout: float, headers: object = None, kept: bool = False
    ) -> tuple[int, str]:
        told = self.engines["r0" if address.startswith("http://127.0.0.1:80/") else "r1"]
        if told is None:
            raise TimeoutError
        values = {"running": 0.0, "waiting": 0.0, "tokens": 10.0, "version": 4.0, **told}
        names = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting",
                 "tokens": "vllm:generation_tokens_total", "version": "liverl:policy_version"}  # fmt: skip
        return 200, "".join(f'{names[key]}{{a="b"}} {value}\n' for key, value in values.items())

    def tell(self, **fields: Any) -> None:
        (self.run_dir / "trainer.json").write_text(json.dumps(fields))

    async def look(self, seconds: int, *, held_up: bool = False) -> ReplicaStatus:
        """r1 as it is after so many more looks."""
        for _ in range(seconds):
            self.clock += 1.0
            await self.replicas.look(self.trials, held_up=held_up)
        return self.replicas.status({}).items[1]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


async def test_idle_for_a_minute_beside_a_busy_one(fake: Fake) -> None:
    assert (await fake.look(60)).idle_for is None
    r1 = await fake.look(1)
    assert r1.listed and r1.idle_for == 60.0
    fake.clock += 3.0
    assert fake.replicas.status({}).items[1].idle_for == 63.0
    assert fake.replicas.status({}).items[0].idle_for is None


async def test_what_ends_it(fake: Fake) -> None:
    async def ends_by(change: Any, undo: Any) -> None:
        await fake.look(90)
        assert fake.replicas.status({}).items[1].idle_for is not None
        change()
        assert (await fake.look(1)).idle_for is None
        undo()
        assert (await fake.look(30)).idle_for is None

    await ends_by(lambda: fake.engines.update(r1={"running": 1.0}), lambda: fake.engines.update(r1={}))
    # A request that came and went between two looks.
    await ends_by(lambda: fake.engines.update(r1={"tokens": 11.0}), lambda: None)
    await ends_by(lambda: fake.engines.update(r1=None), lambda: fake.engines.update(r1={"tokens": 11.0}))
    await ends_by(lambda: fake.tell(phase="update", step=4, policy_version=4),
                  lambda: fake.tell(phase="rollout", step=4, policy_version=4))  # fmt: skip
    await ends_by(lambda: fake.tell(phase="rollout", step=5, policy_version=4), lambda: None)
    await ends_by(lambda: fake.engines.update(r1={"tokens": 11.0, "version": 3.0}),
                  lambda: fake.engines.update(r1={"tokens": 11.0}))  # fmt: skip
    await ends_by(lambda: setattr(fake.slots["r1"], "state", "degraded"),
                  lambda: setattr(fake.slots["r1"], "state", "ready"))  # fmt: skip
    fake.replicas.leaving.add("r1")
    fake.replicas.listed.discard("r1")
    r1 = await fake.look(90)
    assert r1.leaving and r1.idle_for is None


async def test_no_work_no_verdict_but_for_what_the_proxy_holds(fake: Fake) -> None:
    fake.engines["r0"] = {}
    assert (await fake.look(120)).idle_for is None
    proxy = fake.slots["proxy"] = fake._slot("proxy", "proxy", 90)
    (fake.run_dir / "proxy").mkdir(exist_ok=True)
    # Written once and not again: the number does not change while the requests hang.
    (fake.run_dir / "proxy" / "status.1.json").write_text('{"pid": 6, "in_flight": 3, "config_sha": ""}')
    assert (await fake.look(70)).idle_for is not None
    proxy.current.machine = MachineState(state="backing_off", generation=1, leader_gone=True)
    assert (await fake.look(30)).idle_for is None


async def test_bursts_that_one_replica_never_gets(fake: Fake) -> None:
    """Agents that run a tool for 15 s send their requests at once: between two looks, and then none for long."""
    fake.engines["r0"] = {"tokens": 10.0}
    await fake.look(2)
    for burst in range(1, 6):
        assert (await fake.look(1)).idle_for is None
        fake.engines["r0"] = {"tokens": 10.0 + 50 * burst}
        assert (await fake.look(14)).idle_for is None or burst == 5
    assert (await fake.look(1)).idle_for is not None


async def test_one_trial_of_a_step_needs_one_replica(fake: Fake) -> None:
    fake.tell(phase="rollout", step=4, policy_version=4, trials_done=0, trials_total=1)
    assert (await fake.look(120)).idle_for is None


async def test_nobody_is_idle_while_what_carries_the_trials_is_down(fake: Fake) -> None:
    fake.slots["proxy"] = fake._slot("proxy", "proxy", 90)
    fake.slots["proxy"].state = "backing_off"
    assert (await fake.look(120)).idle_for is None


async def test_the_tail_of_a_step_is_no_verdict(fake: Fake) -> None:
    fake.tell(phase="rollout", step=4, policy_version=4, trials_done=3, trials_total=8)
    fake.engines["r1"] = {"running": 1.0}
    await fake.look(5)
    fake.engines["r1"] = {}
    fake.trials = TrialsStatus(steps=(StepTrials(5, 8, 3, 0, None),))
    assert (await fake.look(200)).idle_for is None
    fake.trials = TrialsStatus(steps=(StepTrials(5, 7, 3, 0, None),))
    assert (await fake.look(70)).idle_for is not None


def test_who_made_the_replicas(tmp_path: Path) -> None:
    assert Fake(tmp_path).replicas.kind == "embedded"
    assert Fake(tmp_path, "vllm", "vllm").replicas.kind == "managed"
    # a plan of an older version does not name the engine
    assert Fake(tmp_path, "").replicas.kind == "embedded"
    assert Fake(tmp_path, "", "vllm").replicas.kind == "managed"


async def test_the_time_in_which_another_process_stood_still_is_not_idle_time(fake: Fake) -> None:
    assert (await fake.look(62)).idle_for is not None
    assert (await fake.look(90, held_up=True)).idle_for is None
    assert (await fake.look(58)).idle_for is None
    assert (await fake.look(5)).idle_for is not None
