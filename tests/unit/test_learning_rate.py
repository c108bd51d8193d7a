"""The learning rate of a run whose configuration has none: what is right for a table of logits destroys a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.config.learning_rate import learning_rate
from liverl.plan import make_plan
from liverl.plan.verl_overrides import overrides

VERL = ("run.engine=vllm", "trainer.kind=verl", "model.model_path=/models/mine")
LR = "actor_rollout_ref.actor.optim.lr"


@pytest.mark.parametrize("topology", ["verl", "in_process"])
@pytest.mark.parametrize(
    ("given", "passed"), [(None, "1e-06"), ("2e-6", "2e-06"), ("0.3", "0.3"), ("null", "1e-06")]
)
def test_verl_gets_one_for_a_model(topology: str, given: str | None, passed: str) -> None:
    sets = [f"run.topology={topology}", *VERL, *([f"algorithm.learning_rate={given}"] if given else ())]
    found = [
        one for one in overrides(load_config(None, sets=sets, env={}).config) if one.startswith(f"{LR}=")
    ]
    assert found == [f"{LR}={passed}"]


@pytest.mark.parametrize(("given", "passed"), [(None, 0.3), ("0.5", 0.5), ("null", 0.3), ("0", 0.0)])
def test_the_embedded_trainer_gets_one_for_a_table(tmp_path: Path, given: str | None, passed: float) -> None:
    loaded = load_config(None, sets=[f"algorithm.learning_rate={given}"] if given else [], env={})
    assert learning_rate(loaded.config) == passed
    trainer = next(s for s in make_plan(loaded, tmp_path / "r" / "n").services if s.kind == "trainer")
    assert json.loads(trainer.files[0].text)["learning_rate"] == passed
