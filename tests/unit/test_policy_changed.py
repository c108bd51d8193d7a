"""A replica that has other weights than the trainer's under the trainer's version."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.newest import lists_written
from kit.plans import plan_of
from kit.symptoms import proof

from liverl.diagnose.catalogue import serving
from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import BackendInfo, EngineFacts, ReplicaSet, ReplicaStatus, Snapshot, TrialsStatus
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.replica_source import ReplicaSource

RIGHT, OTHER = "aa" * 32, "bb" * 32


class Replica:
    """The registry of a run with one ready replica, whose ``/metrics`` and trainer say what a test wants."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.machine = SimpleNamespace(state="ready", generation=1, why="", since=1.0, leader_gone=False)
        process = SimpleNamespace(pid=5, generation=1, ports={"http": 80}, gpus=())
        plan = plan_of("run.replicas=1", profile="embedded")
        slot = SimpleNamespace(
            name="replica-0",
            state="ready",
            spec=plan.replica_template,
            current=SimpleNamespace(machine=self.machine, process=process),
            restarts=0,
        )
        trainer = SimpleNamespace(
            spec=SimpleNamespace(kind="trainer"),
            state="ready",
            current=SimpleNamespace(machine=SimpleNamespace(generation=1)),
        )
        (run_dir / "secrets").mkdir(exist_ok=True)
        (run_dir / "secrets/replica_token").write_text("sk-right\n")
        self.text = ""
        self.supervisor: Any = SimpleNamespace(
            slots={"replica-0": slot, "trainer": trainer},
            stopping=False,
            run_dir=run_dir,
            attempt=1,
            now=lambda: 1000.0,
            say=lambda *a, **k: None,
            kick=lambda: None,
            http=SimpleNamespace(poll=self._get),
            records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail),
        )
        self.plan = plan
        self.registry = self.another_backend()

    def another_backend(self) -> ReplicaRegistry:
        self.registry = ReplicaRegistry(self.supervisor, self.plan, 30.0, 1.0)
        return self.registry

    async def _get(
        self, url: str, timeout: float, *, headers: dict[str, str], kept: bool = False
    ) -> tuple[int, str]:
        return 200, self.text

    async def look(
        self, digest: str | None, *, version: int = 3, phase: str = "rollout", trainers: str | None = RIGHT
    ) -> ReplicaStatus:
        """Poll once. ``trainers``: the digest that the trainer reports for version 3."""
        self.text = f"liverl:policy_version 0{version}\nvllm:num_requests_running 1\n"
        if digest is not None:
            self.text += f'liverl:policy_info{{digest="{digest}",engine="0"}} 1.0\n'
        report = {"policy_version": 3, "phase": phase, "step": 3} | (
            {} if trainers is None else {"policy_digest": trainers}
        )
        (self.run_dir / "trainer.json").write_text(json.dumps(report))
        await self.registry.look(TrialsStatus())
        await lists_written(self.registry)
        (shown,) = self.registry.status({}).items
        return shown

    def managed_by_verl(self) -> None:
        """As under verl: the trainer reports no digest, and the replicas are not services of ours."""
        place = ReplicaEndpoint("replica-0", "ready", "", "http://127.0.0.1:80", 1, 0, 1.0, (), kind="verl")
        quiet = SimpleNamespace(endpoints=lambda: [place], doing=lambda *a: None)
        self.registry.source = cast(ReplicaSource, quiet)
        self.registry.complete = True
        del self.supervisor.slots["replica-0"]

    def published(self) -> dict[str, Any]:
        (item,) = json.loads((self.run_dir / "replicas.json").read_text())["replicas"]
        return dict(item)


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


async def test_it_is_listed_only_with_the_trainers_weights(replica: Replica) -> None:
    assert not (await replica.look(OTHER)).listed, "the version alone does not do"
    assert not (await replica.look(RIGHT, version=2)).listed
    shown = await replica.look(RIGHT)
    assert (shown.listed, shown.policy_changed, shown.engine.policy_digest) == (True, None, RIGHT)


async def test_a_process_that_took_anothers_place_unseen_has_no_weights_until_it_says_so(
    replica: Replica,
) -> None:
    """Between two looks: the list is that of the process before."""
    assert (await replica.look(RIGHT)).listed
    replica.machine.generation = 2
    replica.registry.update()
    assert not replica.registry.listed
    await lists_written(replica.registry)
    assert replica.published()["state"] == "joining"
    assert not (await replica.look(RIGHT, version=2)).listed
    assert (await replica.look(RIGHT)).listed and replica.published()["generation"] == 2


@pytest.mark.parametrize(("digest", "trainers"), [(None, RIGHT), (OTHER, None), (None, None), (OTHER, "")])
async def test_where_one_side_reports_no_digest_the_version_decides(
    replica: Replica, digest: str | None, trainers: str | None
) -> None:
    """As in runs whose trainer or replica is of an older version."""
    for _ in range(2):
        shown = await replica.look(digest, trainers=trainers)
        assert (shown.listed, shown.policy_changed) == (True, None)


async def test_other_weights_take_it_off_the_list_until_it_is_restarted(replica: Replica) -> None:
    await replica.look(RIGHT)
    shown = await replica.look(OTHER)
    assert (shown.listed, shown.policy_changed) == (False, OTHER)
    assert replica.published() == {
        "name": "replica-0",
        "url": "http://127.0.0.1:80",
        "state": "joining",
        "generation": 1,
        "changed": OTHER,
    }
    shown = await replica.look(RIGHT)
    assert (shown.listed, shown.policy_changed) == (False, OTHER), "the trainer has sent them again"
    replica.machine.generation = 2
    shown = await replica.look(RIGHT)
    assert (shown.listed, shown.policy_changed) == (True, None)
    assert "changed" not in replica.published()


async def test_under_verl_the_weights_that_were_reported_first_for_a_version_are_the_trainers(
    replica: Replica,
) -> None:
    replica.managed_by_verl()
    shown = await replica.look(RIGHT, trainers=None)
    assert (shown.listed, shown.policy_changed) == (True, None)
    await replica.look(
        OTHER, trainers=None, version=4
    )  # the trainer has sent the next ones, and reports that later
    shown = await replica.look(RIGHT, trainers=None)
    assert (shown.listed, shown.policy_changed) == (True, None)
    shown = await replica.look(OTHER, trainers=None)
    assert (shown.listed, shown.policy_changed) == (False, OTHER)


async def test_under_verl_another_process_of_the_trainer_begins_anew(replica: Replica) -> None:
    replica.managed_by_verl()
    for _ in range(2):  # the first one lists it
        await replica.look(RIGHT, trainers=None)
    replica.supervisor.slots["trainer"].current.machine.generation = 2
    shown = await replica.look(OTHER, trainers=None)
    assert (shown.listed, shown.policy_changed) == (True, None), (
        "from a checkpoint it may reach other weights"
    )
    assert (await replica.look(RIGHT, trainers=None)).policy_changed == RIGHT


async def test_the_next_backend_knows_it(replica: Replica) -> None:
    await replica.look(RIGHT)
    await replica.look(OTHER)
    replica.another_backend().restore_listing()
    shown = await replica.look(RIGHT)
    assert (shown.listed, shown.policy_changed) == (False, OTHER)


@pytest.mark.parametrize("phase", ["init", "sync", "done"])
async def test_while_the_trainer_sends_weights_a_difference_is_none(replica: Replica, phase: str) -> None:
    await replica.look(RIGHT)
    shown = await replica.look(OTHER, phase=phase)
    assert (shown.listed, shown.policy_changed) == (True, None)


async def test_another_version_is_no_change(replica: Replica) -> None:
    await replica.look(RIGHT)
    for version in (2, 4):
        assert (await replica.look(OTHER, version=version)).policy_changed is None


async def test_a_dead_trainers_report_says_nothing(replica: Replica) -> None:
    await replica.look(RIGHT)
    replica.supervisor.slots["trainer"].state = "failed"
    assert (await replica.look(OTHER)).policy_changed is None


def window_of(*items: ReplicaStatus) -> Window:
    backend = BackendInfo(pid=1, started_at=0.0, host="h", version="v")
    now = Snapshot(
        seq=1, at=9.0, run="p/n", run_dir="/d", state="running", phase="", attempt=1, topology="managed",
        backend=backend, started_at=0.0, replicas=ReplicaSet(2, 2, 1, items), policy_version=3,
    )  # fmt: skip
    return Window(now, None, RunContext())


def test_the_alert_names_the_replica_and_the_restart() -> None:
    facts = EngineFacts(policy_version=3, policy_digest=RIGHT)
    items = tuple(
        ReplicaStatus(
            f"replica-{i}", "ready", f"http://h:{i}", listed=i == 0, engine=facts, policy_changed=digest
        )
        for i, digest in enumerate((None, OTHER))
    )
    window = window_of(*items)
    (symptom,) = serving.policy_changed(window)
    assert (symptom.id, symptom.severity) == ("policy_changed:replica-1", "critical")
    assert symptom.action == "restart replica-1"
    assert f"digest of its weights: {OTHER}" in proof(symptom)
    (rule,) = (rule for rule in RULES if rule.look is serving.policy_changed)
    assert (rule.hold, rule.linger) == (0.0, 0.0)
    assert "replica_unlisted:replica-1" not in {
        getattr(s, "id", "") for s in serving.replica_unlisted(window)
    }


def test_verls_replicas_are_restarted_with_their_trainer() -> None:
    item = ReplicaStatus(
        "replica-1", "ready", "http://h:1", False, kind="verl", engine=EngineFacts(policy_version=3),
        policy_changed=OTHER,
    )  # fmt: skip
    (symptom,) = serving.policy_changed(window_of(item))
    assert symptom.action is None and "restart the trainer" in symptom.fix
    assert f"digest of its weights: {OTHER}" in proof(symptom)


def test_the_alert_of_vllm_serve_names_what_was_asked_and_when() -> None:
    facts = EngineFacts(weight_requests="/sleep (1), /update_weights (2)", weight_request_at=7.0)
    items = [ReplicaStatus(f"replica-{i}", "ready", f"http://h:{i}", True, engine=e)
             for i, e in enumerate((EngineFacts(), facts))]  # fmt: skip
    (symptom,) = serving.weights_requested(window_of(*items))
    assert (symptom.id, symptom.since) == ("weights_requested:replica-1", 7.0)
    assert symptom.severity == "warning", "it may be the user's own trainer"
    assert "requests since its start: /sleep (1), /update_weights (2)" in proof(symptom)
    assert serving.weights_requested in {rule.look for rule in RULES}
