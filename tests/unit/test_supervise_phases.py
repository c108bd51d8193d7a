"""What a run is doing, in a line."""

from __future__ import annotations

from typing import Any

from kit.screens import service

from liverl.daemon.phase import phase_words
from liverl.model import ReplicaSet, StepTrials, TrialsStatus

TRAINING: dict[str, Any] = {"step": 10, "phase": "rollout", "trials_done": 3, "trials_total": 32}


BOTH, NONE = ReplicaSet(2, 2, 2), TrialsStatus()


def words(
    state: Any, replicas: ReplicaSet, proxy: str = "ready", trials: TrialsStatus = NONE, **news: Any
) -> str:
    services = (service("proxy", "proxy", proxy), service("trainer", "trainer"))
    return phase_words(state, services, replicas, TRAINING | news, 150, trials)


def test_the_trials_that_are_done_are_those_that_the_panes_count() -> None:
    counted = TrialsStatus(44, 4, 40, steps=(StepTrials(11, 16, 12, 0, None), StepTrials(10, 32, 32, 0, 0.5)))
    assert words("running", BOTH, trials=counted) == "step 11/150: rollout 12/32 trials"
    before = TrialsStatus(32, 0, 32, steps=(StepTrials(10, 32, 32, 0, 0.5),))
    assert words("running", BOTH, trials=before) == "step 11/150: rollout 3/32 trials"


def test_there_is_no_step_after_the_last_one() -> None:
    assert words("running", BOTH, step=149, phase="sync") == "step 150/150: sending weights"
    assert words("running", BOTH, step=150, phase="sync") == "all 150 steps done, the trainer is finishing"
    assert words("running", BOTH, step=150, phase="done") == "training done"


def test_training_goes_on_while_a_replica_is_added_or_the_proxy_replaced() -> None:
    assert words("running", ReplicaSet(3, 2, 2)) == "step 11/150: rollout 3/32 trials"
    assert words("running", ReplicaSet(2, 2, 2), "starting") == "step 11/150: rollout 3/32 trials"


def test_at_the_start_it_waits_for_them() -> None:
    assert words("starting", ReplicaSet(3, 2, 2)) == "replicas: 2 of 3 ready"
    assert words("starting", ReplicaSet(2, 2, 2), "starting") == "proxy: starting"
