"""Whole runs with ``verl.rollout_mode=standalone`` on a CPU: weight updates that cut replies in flight.

verl's trainer (separate_async), its checkpoint manager, balancer and client are real. The replica and the
checkpoint engine that moves the weights to it are LiveRL's own (no vLLM and no NCCL on a CPU).
LIVERL_TEST_VERL_PYTHON names a Python with verl 0.9.1, as in ``test_verl_run.py``.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.real import trial_dirs
from kit.trained import rows_in
from kit.verl_runs import NEEDS_VERL, PYTHON, Launch, finished, nothing_lives, result_of

import liverl

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    NEEDS_VERL,
]
DIGEST = Path(__file__).with_name("checkpoint_digest_inside.py")
STEPS = 4
# One request at a time: generating a step's 32 trials then takes longer than the trainer's part of a step, so that a
# reply is in flight at an update. One MiB a part: the model has 2.2 MiB, and so each update has several parts.
PARTS = "{actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes: 1}"
SETS = (
    "run.topology=in_process",
    "verl.rollout_mode=standalone",
    "verl.rollout_gpus=1",
    "vllm.max_num_seqs=1",
    f"training.total_steps={STEPS}",
    f"trainer.overrides={PARTS}",
)
# A run with hybrid replicas has 0.0007 to 0.0015; replies of other weights than their row states would have more.
MOST_DIFFERENCE = 0.005


def documents_of(run_dir: Path) -> list[dict[str, Any]]:
    """Of the trials that have ended: the trainer begins trials for steps to come, and its end cuts them off."""
    ended = [trial for trial in trial_dirs(run_dir) if (trial / "result.json").exists()]
    return [json.loads((trial / "proxy_trajectory.json").read_text()) for trial in ended]


def reported_aborts(run_dir: Path) -> int:
    """The sum over the workers. A report is a second old at most, so it may lack a run's last replies."""
    reports = [
        json.loads(file.read_text()) for file in (run_dir / "sessions").glob("agent_loop_worker_*.json")
    ]
    return sum(report["counters"].get("num_aborts", 0) for report in reports)


def metrics_of(run_dir: Path) -> dict[int, dict[str, float]]:
    (file,) = (run_dir / "attempt_001").glob("metrics.verl*.jsonl")
    return {line["step"]: line["data"] for line in map(json.loads, file.read_text().splitlines())}


def loaded_digests(run_dir: Path) -> dict[int, set[str]]:
    """By version, the beginnings of the digests of the weights that the replica had loaded."""
    log = (run_dir / "attempt_001" / "logs" / "trainer.1.log").read_text(errors="replace")
    found: dict[int, set[str]] = {}
    for version, digest in re.findall(r"Weights updated to version (\d+);.* digest ([0-9a-f]{12})", log):
        found.setdefault(int(version), set()).add(digest)
    return found


def checkpoint_digest(actor: Path, folder: Path) -> str:
    package = folder / "path" / "liverl"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(f'__path__ = ["{Path(liverl.__file__).parent}"]\n')
    run = subprocess.run(
        [PYTHON, str(DIGEST), str(actor)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(package.parent), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.splitlines()[-1]


def test_replies_that_weight_updates_cut_are_continued_and_trained(launch: Launch, tmp_path: Path) -> None:
    run_dir = launch.run_dir("async")
    assert finished(launch.up("async", *SETS)) == 0, launch.output("async").read_text()[-3000:]
    result = result_of(run_dir)
    assert (result.state, result.exit_code, result.steps) == ("done", 0, STEPS)

    documents = documents_of(run_dir)
    rows = [row for document in documents for row in rows_in(document)]
    assert reported_aborts(run_dir) > 0
    for row in rows:
        sampled = len(row["traj_acc_ids"]) - row["initial_prompt_token_len"]
        mask, logprobs = row["traj_response_mask"], row["traj_response_logprobs"]
        assert len(mask) == len(logprobs) == sampled > 0
        assert all(value == 0.0 for value, kept in zip(logprobs, mask, strict=True) if not kept)
        versions = [version for version, _ in row["policy_versions"]]
        assert versions == sorted(versions) and sum(count for _, count in row["policy_versions"]) == sum(mask)
    for document in documents:
        trained = sum(sum(row["traj_response_mask"]) for row in rows_in(document))
        assert trained == document["counters"]["total_completion_tokens"]
    assert any(len(row["policy_versions"]) > 1 for row in rows)

    steps = metrics_of(run_dir)
    assert sorted(steps) == list(range(1, STEPS + 1))
    for step in steps.values():
        difference = step["training/rollout_probs_diff_mean"]
        assert math.isfinite(difference) and difference < MOST_DIFFERENCE

    digests = loaded_digests(run_dir)
    assert sorted(digests) == list(range(STEPS + 1))
    assert [len(found) for found in digests.values()] == [1] * (STEPS + 1)
    assert len(set.union(*digests.values())) == STEPS + 1, "each step changes the weights"
    for version in (2, STEPS):  # those of training.save_freq
        actor = run_dir / "checkpoints" / f"global_step_{version}" / "actor"
        assert digests[version] == {checkpoint_digest(actor, tmp_path)[:12]}
    nothing_lives(run_dir)
