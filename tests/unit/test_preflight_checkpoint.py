"""A checkpoint of another number of GPUs is refused before verl is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.config.schema import RunConfig
from liverl.preflight.checkpoint import checks


def config(gpus: int, *sets: str) -> RunConfig:
    given = (f"infrastructure.ngpus_per_node={gpus}", *sets)
    return load_config(profile="cpu-verl", sets=given, env={}).config


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Of two GPUs, in a run's own directory."""
    folder = tmp_path / "checkpoints" / "global_step_20" / "actor"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        for kind in ("model", "optim", "extra_state"):
            (folder / f"{kind}_world_size_2_rank_{rank}.pt").touch()
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("20")
    return folder.parent


def told(gpus: int, run_dir: Path, *sets: str) -> list[tuple[str, str]]:
    return [(check.status, check.text) for check in checks(config(gpus, *sets), run_dir)]


def test_the_number_that_saved_it(saved: Path) -> None:
    run_dir = saved.parents[1]
    assert told(2, run_dir) == [("ok", f"{saved}: saved with 2 GPUs")]
    ((status, text),) = told(1, run_dir)
    assert status == "fail" and "saved with 2 GPUs for training, and this run has 1" in text
    assert "infrastructure.ngpus_per_node" in text
    assert told(1, run_dir, "trainer.overrides={trainer.n_gpus_per_node: 2}") == told(2, run_dir)


def test_another_runs_checkpoint(saved: Path, tmp_path: Path) -> None:
    empty = tmp_path / "new"
    assert told(1, empty) == []
    path = f"trainer.overrides={{trainer.resume_mode: resume_path, trainer.resume_from_path: {saved}}}"
    assert [status for status, _ in told(1, empty, path)] == ["fail"]
    assert [status for status, _ in told(2, empty, path)] == ["ok"]
    there = f"trainer.overrides={{trainer.default_local_dir: {saved.parent}}}"
    assert [status for status, _ in told(1, empty, there)] == ["fail"]


def test_what_verl_does_not_load(saved: Path) -> None:
    run_dir = saved.parents[1]
    assert told(1, run_dir, "trainer.overrides={trainer.resume_mode: disable}") == []
    (saved.parent / "latest_checkpointed_iteration.txt").write_text("19")
    assert told(1, run_dir) == []
    (saved.parent / "latest_checkpointed_iteration.txt").write_text("no number")
    assert told(1, run_dir) == []
