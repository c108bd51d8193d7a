"""Which checkpoints are whole, and what is missing of others: the layouts of verl 0.9.1 and of the embedded trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.made_checkpoints import cut, embedded, fsdp, megatron

from liverl.observe.checkpoint_files import CheckpointFiles, checkpoint_steps, latest_step, read_checkpoint
from liverl.observe.checkpoints import LATEST


def looked_at(base: Path, step: int) -> CheckpointFiles:
    return read_checkpoint(step, checkpoint_steps(base)[step], *latest_step(base))


Damage = Callable[[Path, Path], object]
DAMAGED: dict[str, tuple[Callable[[Path, int], Path], Damage, str, str]] = {
    "whole": (fsdp, lambda at, base: None, "complete", ""),
    "megatron": (megatron, lambda at, base: None, "complete", ""),
    "embedded": (embedded, lambda at, base: None, "complete", ""),
    "with a critic": (
        lambda base, step: fsdp(base, step, roles=("actor", "critic")),
        lambda at, base: None,
        "complete",
        "",
    ),
    "without the optimizer (save_contents)": (
        fsdp,
        lambda at, base: [path.unlink() for path in (at / "actor").glob("optim*")],
        "complete",
        "",
    ),
    "one file of one GPU is missing": (
        fsdp,
        lambda at, base: (at / "actor" / "optim_world_size_2_rank_1.pt").unlink(),
        "incomplete",
        "actor/: optim_world_size_2_rank_1.pt is missing",
    ),
    "a file is cut off": (
        fsdp,
        lambda at, base: cut(at / "actor" / "model_world_size_2_rank_0.pt"),
        "incomplete",
        "actor/: model_world_size_2_rank_0.pt is cut off",
    ),
    "a file is a folder": (
        fsdp,
        lambda at, base: (
            (at / "actor" / "model_world_size_2_rank_0.pt").unlink(),
            (at / "actor" / "model_world_size_2_rank_0.pt").mkdir(),
        ),
        "incomplete",
        "model_world_size_2_rank_0.pt is cut off",
    ),
    "FSDP's own file is missing": (
        fsdp,
        lambda at, base: (at / "actor" / "fsdp_config.json").unlink(),
        "incomplete",
        "fsdp_config.json is missing",
    ),
    "FSDP's own file is none": (
        fsdp,
        lambda at, base: (at / "actor" / "fsdp_config.json").write_text("[1]"),
        "incomplete",
        "does not tell the number of GPUs",
    ),
    "of another number of GPUs": (
        fsdp,
        lambda at, base: (at / "actor" / "fsdp_config.json").write_text('{"world_size": 8}'),
        "incomplete",
        "says 8 GPUs, and the folder has files of 2",
    ),
    "the critic is cut off": (
        lambda base, step: fsdp(base, step, roles=("actor", "critic")),
        lambda at, base: cut(at / "critic" / "model_world_size_2_rank_1.pt"),
        "incomplete",
        "critic/: model_world_size_2_rank_1.pt is cut off",
    ),
    "a part of Megatron's is empty": (
        megatron,
        lambda at, base: (at / "actor" / "model" / "dist_ckpt" / "config.json").unlink(),
        "incomplete",
        "actor/: model/dist_ckpt is missing",
    ),
    "Megatron's manifest is missing": (
        megatron,
        lambda at, base: (at / "actor" / "ckpt_contents.json").unlink(),
        "incomplete",
        "ckpt_contents.json is missing",
    ),
    "the embedded optimizer is missing": (
        embedded,
        lambda at, base: (at / "actor" / "optim.json").unlink(),
        "incomplete",
        "actor/: optim.json is missing",
    ),
    "the state of the data is missing": (
        fsdp,
        lambda at, base: (at / "data.pt").unlink(),
        "incomplete",
        "data.pt is missing",
    ),
    "not confirmed by the trainer": (
        fsdp,
        lambda at, base: (base / LATEST).write_text("4"),
        "unknown",
        "names step 4: the trainer has not confirmed it",
    ),
    "no record of the trainer": (
        fsdp,
        lambda at, base: (base / LATEST).unlink(),
        "unknown",
        f"there is no {LATEST}",
    ),
    "a record that is no number": (
        fsdp,
        lambda at, base: (base / LATEST).write_text("five"),
        "unknown",
        "holds no number",
    ),
    "a layout of others": (
        fsdp,
        lambda at, base: (
            [path.unlink() for path in (at / "actor").glob("*.*")],
            (at / "actor" / "x.distcp").write_text("x"),
        ),
        "unknown",
        "neither the layout of FSDP nor that of Megatron",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_checkpoint_says_what_is_missing(tmp_path: Path, case: str) -> None:
    make, damage, state, why = DAMAGED[case]
    damage(make(tmp_path, 5), tmp_path)
    found = looked_at(tmp_path, 5)
    assert (found.state, why in found.why, bool(found.why)) == (state, True, bool(why)), found


def test_what_verl_itself_has_removed_is_told(tmp_path: Path) -> None:
    """With max_actor_ckpt_to_keep verl removes actor/ of old ones, and leaves the rest (checkpoint_manager.py)."""
    for path in sorted((fsdp(tmp_path, 5) / "actor").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "global_step_5" / "actor").rmdir()
    fsdp(tmp_path, 6)
    found = looked_at(tmp_path, 5)
    assert found.state == "incomplete" and "trainer.max_actor_ckpt_to_keep" in found.why


def test_format_size_and_gpus(tmp_path: Path) -> None:
    fsdp(tmp_path, 5, gpus=3), megatron(tmp_path, 6), embedded(tmp_path, 7)
    (tmp_path / "global_step_8").symlink_to(tmp_path / "global_step_5")
    (tmp_path / "global_step_x").mkdir()
    assert list(checkpoint_steps(tmp_path)) == [5, 6, 7]
    told = {step: looked_at(tmp_path, step) for step in (5, 6, 7)}
    assert [(one.format, one.world_size) for one in told.values()] == [
        ("fsdp", 3),
        ("megatron", 16),
        ("embedded", None),
    ]
    of_five = list((tmp_path / "global_step_5").rglob("*"))
    assert told[5].files == sum(path.is_file() for path in of_five)
    blocks = sum(path.stat().st_blocks for path in (tmp_path / "global_step_5", *of_five))
    assert told[5].bytes == blocks * 512, "as du counts"
