"""The checkpoint that verl would resume from, against the number of GPUs that train."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.config.sizing import SizeError, override, trainer_gpus
from liverl.model import Check
from liverl.observe.checkpoints import newest_checkpoint
from liverl.plan.checkpoints import SAVED_TO
from liverl.plan.spec import Plan
from liverl.util.plural import quantity

NAME = "checkpoint"
# FSDP saves one file of each kind for each GPU, and reads those of its own number only.
_SHARD = re.compile(r"model_world_size_(\d{1,6})_rank_0\.pt")


def of_run(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """``checks`` for the run's own directory."""
    yield from checks(config, Path(plan.run_dir))


def checks(config: RunConfig, run_dir: Path) -> Iterator[Check]:
    """Nothing where verl starts from scratch, or where its checkpoint does not tell its number of GPUs."""
    folder = resumed(config, run_dir)
    if folder is None:
        return
    try:
        names, have = os.listdir(folder / "actor"), trainer_gpus(config)
    except (OSError, SizeError):
        return  # verl, or the check of the configuration, tells of that
    saved = sorted(int(found[1]) for name in names if (found := _SHARD.fullmatch(name)))
    if not saved:
        return
    if have in saved:
        yield Check(NAME, "ok", f"{folder}: saved with {quantity(have, 'GPU')}")
        return
    yield Check(
        NAME,
        "fail",
        f"{folder} was saved with {quantity(saved[-1], 'GPU')} for training, and this run has {have}: verl resumes "
        "only with the same number. Set infrastructure.ngpus_per_node and infrastructure.nnodes to it, or begin a new "
        "run (run.name) from weights that python -m verl.model_merger has merged",
    )


def resumed(config: RunConfig, run_dir: Path) -> Path | None:
    """The folder of the checkpoint that verl would load; None if there is none."""
    mode = override(config, "trainer.resume_mode") or "auto"
    if mode == "resume_path":
        given = override(config, "trainer.resume_from_path")
        return Path(given) if isinstance(given, str) and os.path.isabs(given) else None
    if mode != "auto":
        return None
    base = Path(str(override(config, SAVED_TO) or run_dir / "checkpoints"))
    step = newest_checkpoint(base)
    return None if step is None else base / f"global_step_{step}"
