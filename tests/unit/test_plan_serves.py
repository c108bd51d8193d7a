"""What a plan says of its replicas, and where its attempts go on from."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.plans import plan_of

from liverl.observe.checkpoints import LATEST, first_step_words, newest_checkpoint


@pytest.mark.parametrize(
    ("profile", "sets", "serves", "cpus", "resumes_from"),
    [
        ("embedded", (), "embedded", True, "checkpoints"),
        ("cpu-verl", (), "a small one on CPUs, no vLLM (verl.device: cpu)", True, "checkpoints"),
        ("cpu-verl", ("trainer.overrides=[trainer.default_local_dir=/far]",), "a small one on CPUs, no vLLM "
         "(verl.device: cpu)", True, "/far"),
        ("cpu-verl", ("trainer.overrides=[trainer.resume_mode=disable]",), "a small one on CPUs, no vLLM "
         "(verl.device: cpu)", True, ""),
        ("h200-smoke", ("model.model_path=/m",), "vllm, in verl", False, "checkpoints"),
        ("vllm-managed", ("model.model_path=/m",), "vllm", False, ""),
        ("liverl-gen1", ("trainer.kind=command", "trainer.command=[/x.sh]"), "started by your launch script", False,
         ""),
    ],
)  # fmt: skip
def test_replicas_and_checkpoints(
    profile: str, sets: tuple[str, ...], serves: str, cpus: bool, resumes_from: str
) -> None:
    plan = plan_of(*sets, profile=profile)
    assert (plan.serves, plan.cpus, plan.resumes_from) == (serves, cpus, resumes_from)


def test_where_a_further_attempt_begins(tmp_path: Path) -> None:
    assert first_step_words(newest_checkpoint(tmp_path), 20) == "no checkpoint: training starts at step 1"
    (tmp_path / "global_step_7").mkdir()
    (tmp_path / LATEST).write_text("7")
    for wanted in (None, 8):
        words = first_step_words(newest_checkpoint(tmp_path), wanted)
        assert words == "training goes on from the checkpoint of step 7"
    none_left = "no step is left to train: the newest checkpoint is of step 7, and 5 steps are wanted"
    assert first_step_words(7, 5) == none_left
