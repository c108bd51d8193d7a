"""What a run is doing, in a line."""

from __future__ import annotations

from typing import Any

from kit.screens import service

from liverl.daemon.phase import phase_words
from liverl.model import ReplicaSet

TRAINING: dict[str, Any] = {"step": 10, "phase": "rollout", "trials_done": 3, "trials_total": 32}


def words(state: Any, replicas: ReplicaSet, proxy: str = "ready") -> str:
    services = (service("proxy", "proxy", proxy), service("trainer", "trainer"))
    return phase_words(state, services, replicas, TRAINING, 150)


def test_training_goes_on_while_a_replica_is_added_or_the_proxy_replaced() -> None:
    assert words("running", ReplicaSet(3, 2, 2)) == "step 11/150: rollout 3/32 trials"
    assert words("running", ReplicaSet(2, 2, 2), "starting") == "step 11/150: rollout 3/32 trials"


def test_at_the_start_it_waits_for_them() -> None:
    assert words("starting", ReplicaSet(3, 2, 2)) == "replicas: 2 of 3 ready"
    assert words("starting", ReplicaSet(2, 2, 2), "starting") == "proxy: starting"
