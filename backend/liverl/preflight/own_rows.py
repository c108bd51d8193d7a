"""Rows, agents and rewards of a user's own that no trainer of the run would use."""

from __future__ import annotations

from liverl.config.schema import RunConfig, value_of
from liverl.model import Check
from liverl.util.listing import listing

NAME = "your rows"
# Each says, by itself, that somebody wants to train something of their own; the embedded trainer reads none of them.
_OWN = (
    "data.train_index",
    "data.val_index",
    "reward.function",
    "agent.command",
    "agent.python",
    "agent.tools",
    "agent.functions",
)


def checks(config: RunConfig) -> Check | None:
    """Refuse a run of the embedded trainer with rows, an agent or a reward function of the user's own: it would train
    tasks of its own, and its rewards would say nothing of theirs. None where there are none."""
    found = [key for key in _OWN if value_of(config, key)]
    if not found:
        return None
    return Check(
        NAME,
        "fail",
        f"the embedded trainer trains on tasks of its own: {listing(found)} would not be used",
        fix="to train with verl, set run.topology: verl, run.engine: vllm, trainer.kind: verl and model.model_path "
        f"(or, to try it on CPUs, --profile cpu-verl); to train the built-in tasks, take out {listing(found)}",
    )
