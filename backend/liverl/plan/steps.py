"""How many training steps a run owes by what its trainer is given. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from liverl.config import LoadedConfig
from liverl.config.trainer_mode import fully_async
from liverl.plan.spec import STEPS_KEY, ServiceSpec

_PASSED = re.compile(r"\+{0,2}([\w.]+)=(\d+)")
TOTAL = "trainer.total_training_steps"
# Prompts of fully asynchronous training, and what a version of the parameters takes of them.
PROMPTS = "rollout.total_rollout_steps"
_VERSION = (
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "async_training.require_batches",
    "async_training.trigger_parameter_sync_step",
)


def steps_given(loaded: LoadedConfig, services: Sequence[ServiceSpec]) -> tuple[int | None, str]:
    """(steps, who says so). Of the embedded trainer and of verl what they are given; of a launch script the key that
    its user has set: a default of ours says nothing about a script. (None, "") where nobody says."""
    kind, steps = loaded.config.trainer.kind, loaded.config.training.total_steps
    if kind == "verl":
        trainer = next((spec for spec in services if spec.ends_run), None)
        passed = _passed(() if trainer is None else trainer.argv, in_prompts=fully_async(loaded.config))
        return passed, ("" if passed is None else STEPS_KEY if passed == steps else "trainer.overrides")
    if steps is None or kind not in ("embedded", "command"):
        return None, ""
    if kind == "embedded":
        return steps, STEPS_KEY
    where = (loaded.given or {}).get(STEPS_KEY)
    return (steps, f"{STEPS_KEY} ({where})") if where is not None else (None, "")


def _passed(argv: Sequence[str], *, in_prompts: bool) -> int | None:
    """The steps on verl's command line; ``in_prompts``: they are counted in prompts there."""
    numbers = {match[1]: int(match[2]) for arg in argv if (match := _PASSED.fullmatch(arg))}
    if not in_prompts:
        return numbers.get(TOTAL)
    version = math.prod(numbers.get(key, 0) for key in _VERSION)
    return numbers[PROMPTS] // version if PROMPTS in numbers and version else None
