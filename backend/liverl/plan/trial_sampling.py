"""The sampling parameters that LiteLLM puts into the requests of trials, in runs whose trainer decides them."""

from __future__ import annotations

import json
from typing import Any

from liverl.config import conditions, sizing
from liverl.config.schema import RunConfig
from liverl.plan.spec import FileSpec

PATH = "proxy/sampling.json"  # in the run directory, as ``proxy/runtime/sampling.py`` reads it
_ROLLOUT = "actor_rollout_ref.rollout"


def files(config: RunConfig) -> tuple[FileSpec, ...]:
    """The file with the parameters; none where clients decide.

    What verl gave a trial is in the ``liverl.json`` of that trial, and counts; these are for all other requests.
    """
    policy = _policy(config)
    return () if policy is None else (FileSpec(PATH, json.dumps(policy, indent=1)),)


def _policy(config: RunConfig) -> dict[str, Any] | None:
    if conditions.through_sessions(config):
        return None  # they carry the trials; what else is asked of LiteLLM is not trained
    algorithm = config.algorithm
    if conditions.embedded_trainer(config):
        own = {"temperature": algorithm.temperature}
        # The trainer is the only client, and seeds each turn.
        return {"training": own, "validation": own, "keeps_seed": True}
    if not conditions.our_loop(config):
        return None
    training = {"temperature": algorithm.temperature, "top_p": algorithm.top_p, "top_k": algorithm.top_k}
    validation = {
        "temperature": algorithm.val_temperature,
        "top_p": algorithm.val_top_p,
        "top_k": algorithm.val_top_k,
    }
    return {
        "training": {
            name: _overridden(config, f"{_ROLLOUT}.{name}", value) for name, value in training.items()
        },
        "validation": {
            name: _overridden(config, f"{_ROLLOUT}.val_kwargs.{name}", value)
            for name, value in validation.items()
        },
    }


def _overridden(config: RunConfig, key: str, value: float) -> float:
    """``value``, or the number that ``trainer.overrides`` give verl instead."""
    try:
        return float(str(sizing.override(config, key)))
    except ValueError:  # none is given, or one that only verl can evaluate
        return value
