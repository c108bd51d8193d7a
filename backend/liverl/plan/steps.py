"""How many training steps a run owes by what its trainer is given. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from liverl.config import LoadedConfig
from liverl.plan.spec import ServiceSpec

KEY = "training.total_steps"
_PASSED = re.compile(r"\+{0,2}trainer\.total_training_steps=(\w+)")


def steps_given(loaded: LoadedConfig, services: Sequence[ServiceSpec]) -> tuple[int | None, str]:
    """(steps, who says so). Of the embedded trainer and of verl what they are given; of a launch script the key that
    its user has set: a default of ours says nothing about a script. (None, "") where nobody says."""
    kind, steps = loaded.config.trainer.kind, loaded.config.training.total_steps
    if kind == "verl":
        trainer = next((spec for spec in services if spec.ends_run), None)
        said = [match[1] for arg in trainer.argv if (match := _PASSED.fullmatch(arg))] if trainer else []
        passed = int(said[-1]) if said and said[-1].isdigit() else None
        return passed, ("" if passed is None else KEY if passed == steps else "trainer.overrides")
    if steps is None or kind not in ("embedded", "command"):
        return None, ""
    if kind == "embedded":
        return steps, KEY
    where = (loaded.given or {}).get(KEY)
    return (steps, f"{KEY} ({where})") if where is not None else (None, "")
