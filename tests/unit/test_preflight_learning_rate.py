"""A learning rate that would destroy a model with the first update is told before the start."""

from __future__ import annotations

import pytest

from liverl.config import load_config
from liverl.preflight.learning_rate import OVERRIDE, checks
from liverl.preflight.registry import CHECKS, asks

VERL = ("run.engine=vllm", "trainer.kind=verl", "model.model_path=/models/mine", "run.topology=verl")


def overriding(value: str, key: str = OVERRIDE) -> str:
    return f"trainer.overrides.{key}={value}"


@pytest.mark.parametrize(
    ("sets", "status", "says"),
    [
        ((), "ok", "algorithm.learning_rate is 1e-06"),
        (("algorithm.learning_rate=5.0",), "warn", "algorithm.learning_rate is 5:"),
        (("algorithm.learning_rate=0.0011",), "warn", "algorithm.learning_rate is 0.0011:"),
        (("algorithm.learning_rate=0.001",), "ok", "is 0.001"),
        (("algorithm.learning_rate=0",), "ok", "is 0"),
        ((overriding("0.5"),), "warn", f"trainer.overrides.{OVERRIDE} is 0.5:"),
        (("algorithm.learning_rate=5.0", overriding("1e-6")), "ok", f"trainer.overrides.{OVERRIDE} is 1e-06"),
        ((overriding("0.5", f"+{OVERRIDE}"),), "warn", "is 0.5:"),
        ((overriding("inf"),), "warn", "is inf:"),
        ((overriding("rate"),), "skipped", "which only verl can read"),
    ],
)
def test_what_is_said_of_the_rate_that_verl_gets(sets: tuple[str, ...], status: str, says: str) -> None:
    found = checks(load_config(None, sets=(*VERL, *sets), env={}).config)
    assert found.status == status and says in found.text
    if status == "warn":
        key = OVERRIDE if any(OVERRIDE in one for one in sets) else "algorithm.learning_rate"
        assert f"{key} to 1e-06 (verl's default; usual are 1e-6 to 1e-5, with LoRA up to 1e-4" in found.fix
        assert bool(found.patch) == (key != OVERRIDE) and found.guess == bool(found.patch)
        assert asks([found]), "somebody should look at it before the start"


def test_only_runs_of_verls_trainer_are_judged() -> None:
    (entry,) = (one for one in CHECKS if one.id == "learning-rate")
    assert entry.when(load_config(None, sets=VERL, env={}).config)
    assert not entry.when(load_config(None, sets=["algorithm.learning_rate=5.0"], env={}).config)
