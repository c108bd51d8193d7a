"""What trials have left in a cluster is removed: only the run's pods, by name and uid. Simulated: the API of the
cluster, ``kit.fake_apiserver``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.pods import Served, pod

from liverl.agents.harbor.owned import Ledger, identity
from liverl.agents.pods import label_value, selector_of
from liverl.sandboxes.kubernetes.client import Cluster
from liverl.sandboxes.sweep import (
    kept_words,
    left_words,
    look,
    lost_trials,
    open_trials,
    removed_words,
    sweep,
)

OTHER = "b" * 32


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path)
    one.server.RequestHandlerClass.verbs = ("get", "list", "watch", "delete")  # type: ignore[attr-defined]
    yield one
    one.close()


class Left:
    """A run whose trials have begun pods, and the cluster with them."""

    def __init__(self, served: Served, run: Path, kind: str) -> None:
        self.served, self.run, self.kind = served, run, kind
        self.ledger = Ledger(run, "worker-1", "attempt_001", {})
        self.id = identity(run)
        agent = {"environment_type": kind}
        self.cluster = {
            "kubeconfig": str(served.path), "namespace": "", "selector": selector_of(agent, self.id)
        }  # fmt: skip

    def begin(self, trial: str, *, kept: bool = False, **meta: Any) -> None:
        self.ledger.begin_pod(trial, self.cluster, kept=kept)
        self.put(trial, self.id, **meta)

    def put(self, name: str, run_id: str, **meta: Any) -> None:
        """A pod as the environment makes it: with our labels by ``ack``, else with its own."""
        one = pod(1, run_id)
        labels = one["metadata"]["labels"] if self.kind == "ack" else {"app": "sandbox"}
        notes = {"annotations": {"liverl.trial": name}} if self.kind == "ack" else {"annotations": {}}
        one["metadata"] |= (
            {"name": f"{name}-env" if self.kind != "ack" else name, "labels": labels} | notes | meta
        )
        self.served.fake.put("", one)

    @property
    def there(self) -> set[str]:
        return {name for _, name in self.served.fake.pods}


@pytest.mark.parametrize("kind", ["ack", "gke"])
def test_only_the_run_s_own_pods_go(kind: str, served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path / "run", kind)
    end = "" if kind == "ack" else "-env"
    left.begin("fix-a__x1y2")
    left.begin("fix-b__x1y2", kept=True)
    left.begin("fix-c__x1y2")
    left.ledger.over("fix-c__x1y2")
    left.put("fix-a__x1y23", OTHER)  # another run's, whose name begins as one of ours
    assert open_trials(left.run) == 2
    seen = look(left.run)
    assert seen is not None and {one.name for one in seen.left} == {f"fix-a__x1y2{end}", f"fix-c__x1y2{end}"}
    assert [one.kind for one in seen.kept] == ["pod"] and len(left.there) == 4, "a look changes nothing"

    swept = sweep(left.run, 30.0)
    assert swept is not None and (swept.pods, swept.left, swept.unknown) == (2, (), ())
    assert removed_words(swept) == "2 pods" and "1 pod is kept in the cluster" in kept_words(swept)
    assert left.there == {f"fix-b__x1y2{end}", f"fix-a__x1y23{end}"}

    swept = sweep(left.run, 30.0, kept=True)
    assert swept is not None and swept.pods == 1 and left.there == {f"fix-a__x1y23{end}"}
    again = sweep(left.run, 30.0)
    assert again is not None and (again.pods, again.left, again.unknown) == (0, (), ())


def test_a_pod_of_a_trial_that_nobody_knows_goes_only_at_the_end(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path / "run", "ack")
    left.begin("t-1")
    left.put("t-9", left.id)
    swept = sweep(left.run, 30.0, only=["t-1"])
    assert swept is not None and swept.pods == 1 and left.there == {"t-9"}
    swept = sweep(left.run, 30.0)
    assert swept is not None and swept.pods == 1 and not left.there


def test_a_pod_that_got_the_name_since_stays(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Left(served, tmp_path / "run", "ack")
    left.begin("t-1", uid="first")
    # Between the list and the end, the pod is replaced by another run's with the same name
    pods = Cluster.pods

    async def listed(self: Cluster) -> Any:
        found = await pods(self)
        if "first" in {one.uid for one in found[0]}:
            other = pod(1, OTHER)
            other["metadata"] |= {
                "name": "t-1",
                "uid": "second",
                "labels": {"liverl.run-id": label_value(OTHER)},
            }
            served.fake.put("DELETED", served.fake.pods["rl", "t-1"])
            served.fake.put("", other)
        return found

    monkeypatch.setattr(Cluster, "pods", listed)
    swept = sweep(left.run, 30.0)
    assert swept is not None and swept.left == () and swept.pods == 1
    assert left.there == {"t-1"} and served.fake.pods["rl", "t-1"]["metadata"]["uid"] == "second"


def test_what_cannot_be_removed_is_named(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path / "run", "ack")
    left.begin("t-1", finalizers=["example.com/held"])
    swept = sweep(left.run, 1.0)
    assert swept is not None and [(one.kind, one.name, one.trial) for one in swept.left] == [
        ("pod", "t-1", "t-1")
    ]
    assert "was still there when the time was over" in swept.left[0].why
    assert left_words(swept).startswith("left in the cluster: pod t-1 (")


def test_a_user_who_may_not_is_told_so_at_once(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path / "run", "ack")
    left.begin("t-1")
    served.server.RequestHandlerClass.verbs = ("get", "list", "watch")  # type: ignore[attr-defined]
    swept = sweep(left.run, 60.0)
    assert swept is not None and "this user may not delete pods there (HTTP 403" in swept.left[0].why
    assert left.there == {"t-1"}


@pytest.mark.parametrize("over", [True, False])
def test_a_cluster_that_is_away_matters_while_trials_are_open(
    over: bool, served: Served, tmp_path: Path
) -> None:
    left = Left(served, tmp_path / "run", "ack")
    left.begin("t-1")
    if over:
        left.ledger.over("t-1")
    served.close()
    swept = sweep(left.run, 5.0)
    assert swept is not None and swept.left == () and bool(swept.unknown) is not over
    assert over or swept.unknown[0].startswith(
        "the cluster cannot be asked for the pods of 1 trial: https://127.0.0.1"
    )


def test_a_run_without_pods_and_one_that_could_make_none(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert sweep(run, 5.0) is None
    ledger = Ledger(run, "worker-1", "attempt_001", {})
    ledger.begin_pod("t-1", {"kubeconfig": "/k", "namespace": "", "fault": "too long"}, kept=False)
    swept = sweep(run, 5.0)
    assert swept is not None and (swept.left, swept.unknown) == ((), ())


def test_trials_whose_worker_died_are_lost(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Left(served, tmp_path / "run", "ack")
    left.begin("t-1")
    assert lost_trials(left.run) == frozenset(), "this process is the worker, and lives"
    monkeypatch.setattr("liverl.sandboxes.ledgers.start_tick", lambda pid: None)
    assert lost_trials(left.run) == {"t-1"}
