"""Whether the adapter that verl trains reaches the replicas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from liverl.config import load_config
from liverl.preflight import lora

MERGE = "actor_rollout_ref.model.lora.merge"
RANK = "actor_rollout_ref.model.lora_rank"
STRATEGY = "actor_rollout_ref.actor.strategy"


@pytest.mark.parametrize(
    ("overrides", "status"),
    [
        ({}, None),
        ({RANK: 0}, None),
        ({RANK: 8}, "warn"),  # as on an H200: the run stood still
        ({RANK: 8, STRATEGY: "fsdp"}, "warn"),
        ({RANK: 8, MERGE: False}, "warn"),
        ({"actor_rollout_ref.model.lora_adapter_path": "/a"}, "warn"),
        ({"actor_rollout_ref.model.lora_adapter_path": None}, None),
        ({RANK: 8, MERGE: True}, "ok"),  # as there: it trained
        ({f"+{RANK}": 8, f"++{MERGE}": "True"}, "ok"),
        ({RANK: 8, STRATEGY: "fsdp2"}, "skipped"),
    ],
)
def test_an_adapter_that_would_not_arrive_is_told(overrides: dict[str, Any], status: str | None) -> None:
    sets = [f"trainer.overrides={json.dumps(overrides)}"]
    found = list(lora.checks(load_config(profile="h200-smoke", sets=sets, env={}).config))
    assert [one.status for one in found] == ([status] if status else [])
    assert all((f"{MERGE}: true" in one.fix) == (one.status == "warn") for one in found)


def test_nothing_is_said_of_a_trainer_on_cpus() -> None:
    sets = [f"trainer.overrides={json.dumps({RANK: 8})}"]
    assert not list(lora.checks(load_config(profile="cpu-verl", sets=sets, env={}).config))
