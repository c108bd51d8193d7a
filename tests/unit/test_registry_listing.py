"""Which replicas get new trials, how often that is looked at, and what is shown of those that do not yet."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.newest import lists_written
from kit.plans import plan_of

from liverl.model import EngineFacts, TrialsStatus
from liverl.observe.engine.activity import ActivityState
from liverl.plan.spec import PortSpec, ServiceSpec
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.replica_source import ReplicaSource

RIGHT, OTHER = "aa" * 32, "bb" * 32
INTERVAL = 4.0  # seconds between two looks while nothing changes
SOON = 0.5  # seconds below which the next look at a change comes


class Verl:
    """The replicas of a run of verl's trainer. ``endpoints`` of the run are what a test puts here."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}

    def endpoints(self) -> list[ReplicaEndpoint]:
        return [
            ReplicaEndpoint(name, state, "", f"http://127.0.0.1:{80 + number}", 1, 0, 1.0, (), "verl")
            for number, (name, state) in enumerate(self.states.items())
        ]

    def doing(self, endpoint: ReplicaEndpoint, facts: EngineFacts | None, trainer: object) -> ActivityState:
        return ActivityState("asleep" if facts is None else "serving", 0.0, "")

    def ended_unasked(self, name: str) -> bool:
        return False


class Run:
    """A run of which the supervisor's services and the replicas' ``/metrics`` are what a test says."""

    def __init__(self, run_dir: Path, *, verl: bool = False, trainer: bool = True) -> None:
        self.run_dir, self.said = run_dir, cast("list[str]", [])
        self.metrics: dict[int, str] = {}  # port -> what /metrics says
        self.silent: set[int] = set()  # ports on which nothing answers
        (run_dir / "secrets").mkdir()
        (run_dir / "secrets/replica_token").write_text("sk-right\n")
        self.slots: dict[str, Any] = {}
        self.supervisor: Any = SimpleNamespace(
            slots=self.slots, stopping=False, run_dir=run_dir, attempt=1, now=lambda: 1000.0, kick=lambda: None,
            say=lambda kind, *_, **__: self.said.append(kind), http=SimpleNamespace(poll=self._get),
            records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail),
            oom_kills=SimpleNamespace(evidence=lambda now: ""),
        )  # fmt: skip
        self.plan = plan_of("run.replicas=2", profile="embedded")
        if trainer:
            self.slot("trainer", "trainer", 0)
        self.verl = Verl() if verl else None
        self.registry = self.another_backend()
        if self.verl is not None:
            self.registry.complete = False  # as in a plan of verl's topology, which has no replicas of ours

    def another_backend(self) -> ReplicaRegistry:
        source = cast(ReplicaSource, self.verl) if self.verl is not None else None
        self.registry = ReplicaRegistry(self.supervisor, self.plan, 30.0, INTERVAL, source)
        return self.registry

    def slot(self, name: str, kind: str, port: int, state: str = "ready", generation: int = 1) -> Any:
        process = SimpleNamespace(pid=5, generation=generation, ports={"http": port}, gpus=(), started_at=0.0)
        machine = SimpleNamespace(state=state, generation=generation, why="", since=1.0, leader_gone=False)
        current = SimpleNamespace(machine=machine, process=process, port=lambda _: port)
        self.slots[name] = SimpleNamespace(
            name=name, state=state, restarts=0, current=current, instances=list,
            spec=ServiceSpec(name, cast(Any, kind), ("serve",), ports=(PortSpec("http"),)),
        )  # fmt: skip
        return self.slots[name]

    async def _get(self, url: str, *_: Any, **__: Any) -> tuple[int, str]:
        port = int(url.split(":")[2].split("/")[0])
        if port in self.silent:
            raise ConnectionRefusedError
        return 200, self.metrics.get(port, "")

    def serves(self, port: int, version: int, digest: str = RIGHT) -> None:
        info = f'liverl:policy_info{{digest="{digest}",engine="0"}} 1.0\n'
        self.metrics[port] = f"liverl:policy_version {version}\nvllm:num_requests_running 1\n{info}"

    async def look(self, **trainer: Any) -> float:
        """Look once; returns the seconds until the next look."""
        wait = await self.registry.look(TrialsStatus(), {"policy_version": 3, "phase": "rollout"} | trainer)
        await lists_written(self.registry)
        return wait


async def test_verls_replicas_get_trials_only_once_all_of_them_serve(tmp_path: Path) -> None:
    run = Run(tmp_path, verl=True)
    assert run.verl is not None
    for states in ("starting", "starting"), ("ready", "starting"), ("starting", "ready"):
        run.verl.states = dict(zip(("v0", "v1"), states, strict=True))
        run.registry.update()
        assert not run.registry.listed and "replicas_found" not in run.said, states
    run.verl.states = {"v0": "ready", "v1": "ready"}
    run.registry.update()
    assert run.registry.listed == {"v0", "v1"} and run.said.count("replicas_found") == 1
    run.verl.states = {"v0": "ready", "v1": "starting"}
    run.registry.update()
    assert run.registry.listed == {"v0"} and run.said.count("replicas_found") == 1, "from then on, one by one"


@pytest.mark.parametrize("verl", [False, True])
@pytest.mark.parametrize("trainer", ["ready", "stopped", None])
async def test_only_with_a_trainer_of_ours_a_replica_waits_for_weights(
    tmp_path: Path, verl: bool, trainer: str | None
) -> None:
    """verl updates its own; without a trainer there are no other weights than those of the start."""
    run = Run(tmp_path, verl=verl, trainer=trainer is not None)
    if trainer is not None:
        run.slots["trainer"].state = trainer
    if run.verl is not None:
        run.verl.states = {"v0": "ready", "v1": "ready"}
    else:
        run.slot("v0", "replica", 80)
        run.slot("v1", "replica", 81)
    run.registry.update()
    waits = not verl and trainer == "ready"
    assert run.registry.listed == (set() if waits else {"v0", "v1"})


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_other_weights_than_the_first_of_a_version_are_noticed_in_any_version(
    tmp_path: Path, version: int
) -> None:
    """Also in version 0, the weights with which verl's training begins."""
    run = Run(tmp_path, verl=True)
    assert run.verl is not None
    run.verl.states = {"v0": "ready", "v1": "ready"}
    for port in (80, 81):
        run.serves(port, version)
    for _ in range(2):
        await run.look(policy_version=version)
    assert run.registry.listed == {"v0", "v1"}
    run.serves(81, version, OTHER)
    await run.look(policy_version=version)
    assert run.registry.listed == {"v0"}


async def test_what_verls_replicas_do_is_told_by_those_that_answer_now(tmp_path: Path) -> None:
    """What one answered before says nothing of it while it is silent."""
    run = Run(tmp_path, verl=True)
    assert run.verl is not None
    run.verl.states = {"v0": "ready", "v1": "ready"}
    for port in (80, 81):
        run.serves(port, 3)
    for silent, shown in (
        (set[int](), ["serving"] * 2),
        ({81}, ["serving", "asleep"]),
        (set[int](), ["serving"] * 2),
    ):
        run.silent = silent
        await run.look()
        assert [each.activity for each in run.registry.status({}).items] == shown


async def test_a_change_is_looked_at_soon_and_nothing_else_is(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.slot("r0", "replica", 80)
    run.serves(80, 3)
    assert await run.look() > SOON and run.registry.listed == {"r0"}, "all of them have their trials"
    run.slot("r1", "replica", 81)
    assert await run.look() < SOON, "r1 waits for its weights"
    run.serves(81, 3)
    assert await run.look() > SOON and run.registry.listed == {"r0", "r1"}
    run.registry.leaving = {"r1"}
    assert await run.look() < SOON, "r1 leaves"
    run.registry.leaving = set()
    assert await run.look() > SOON


async def test_a_service_with_an_older_list_is_looked_at_soon(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.slot("r0", "replica", 80)
    run.slot("sessions", "sessions", 90)
    run.serves(80, 3)
    assert await run.look() > SOON, "it has reported nothing"
    run.registry.sessions.reports[1] = {"pid": 5, "config_sha": "of an older list"}
    assert run.registry.sessions.behind
    file = run.registry.sessions
    file.reader = lambda: lambda: lambda: None  # type: ignore[method-assign, assignment]
    assert await run.look() < SOON
    file.reports[1] = {"pid": 5, "config_sha": file._sha}
    assert await run.look() > SOON


async def test_reports_that_cannot_be_read_in_time_leave_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.slot("r0", "replica", 80)
    run.serves(80, 3)
    await run.look()

    async def hangs(*_: Any) -> None:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(run.registry._reading, "call", hangs)
        await run.look(policy_version=4)
    (fact,) = run.registry.unreadable
    assert (
        "longer than 10 s" in fact.why and run.registry.policy_version == 3 and run.registry.listed == {"r0"}
    )
    await run.look()
    assert run.registry.unreadable == ()


async def test_the_next_backend_keeps_each_listed_replica_whose_process_is_the_same(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number, name in enumerate(("r0", "r2", "r4", "r5")):
        run.slot(name, "replica", 80 + number, generation=2)
    states = {"r0": ("joining", 2), "r1": ("listed", 2), "r2": ("listed", 2), "r3": ("leaving", 2),
              "r4": ("listed", 1), "r5": ("listed", 2)}  # fmt: skip
    stored = [
        {"name": name, "url": f"http://h:{name}", "state": state, "generation": generation}
        for name, (state, generation) in states.items()
    ]
    (tmp_path / "replicas.json").write_text(json.dumps({"version": 7, "replicas": stored}))
    run.registry.restore_listing()
    assert run.registry.listed == {"r2", "r5"}


async def test_how_far_the_start_of_a_replica_is(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.slot("r0", "replica", 80, state="starting")
    run.slot("r1", "replica", 81)
    stages = dict.fromkeys(("r0", "r1"), ("loading weights", 0.25))
    starting, ready = run.registry.status(stages).items
    assert (starting.stage, starting.progress) == ("loading weights", 0.25)
    assert (ready.stage, ready.progress) == (None, None), "it has started"
