"""How many steps a plan says that its trainer owes, and who says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.plan import make_plan

SCRIPT = (
    "run: {topology: verl, engine: vllm}\ntrainer: {kind: command, command: [bash, go.sh]}\n"
    "model: {model_path: /models/m, served_model_name: policy}\n"
)


@pytest.mark.parametrize(
    ("text", "profile", "sets", "steps", "by"),
    [
        ("", "embedded", (), 20, "training.total_steps"),
        ("", "cpu-verl", (), 4, "training.total_steps"),
        ("", "cpu-verl", ("trainer.overrides={trainer.total_training_steps: 7}",), 7, "trainer.overrides"),
        (SCRIPT, None, (), None, ""),  # a default of ours says nothing about a script
        (f"{SCRIPT}training: {{total_steps: 20}}\n", None, (), 20, "training.total_steps (FILE:4)"),
        (SCRIPT, None, ("training.total_steps=20",), 20, "training.total_steps (--set)"),
    ],
)
def test_who_says_how_many_steps_are_owed(
    text: str, profile: str | None, sets: tuple[str, ...], steps: int | None, by: str, tmp_path: Path
) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    loaded = load_config(file if text else None, profile=profile, sets=["run.name=n", *sets], env={})
    plan = make_plan(loaded, tmp_path / "p" / "n")
    assert plan.total_steps == steps
    assert plan.steps_by.startswith(by.replace("FILE", str(file))) and bool(plan.steps_by) == bool(by)
