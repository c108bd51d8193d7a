"""The learning rate of verl's trainer: one that destroys a model with the first update. Pure."""

from __future__ import annotations

from math import isfinite

from liverl.config import sizing
from liverl.config.learning_rate import OF_A_MODEL, learning_rate
from liverl.config.schema import RunConfig
from liverl.model import Check

NAME = "learning rate"
KEY, OVERRIDE = "algorithm.learning_rate", "actor_rollout_ref.actor.optim.lr"
# The first update by Adam moves each weight by about the learning rate, whatever the gradient. Weights of language
# models are about 0.02 (``initializer_range`` of their configurations), so this is a twentieth of them.
MOST = 1e-3


def checks(config: RunConfig) -> Check:
    """Whether the learning rate that verl gets is one that a model survives. As in verl, ``trainer.overrides`` wins."""
    given = sizing.override(config, OVERRIDE)
    key = KEY if given is None else f"trainer.overrides.{OVERRIDE}"
    try:
        rate = learning_rate(config) if given is None else float(str(given))
    except ValueError:
        return Check(NAME, "skipped", f"{key} is {given!r}, which only verl can read")
    if not isfinite(rate) or rate > MOST:
        return Check(
            NAME,
            "warn",
            f"{key} is {rate:g}: Adam moves each weight by about this much in one update, and weights of language "
            f"models are about 0.02, so the first updates destroy the model",
            fix=f"set {key} to {OF_A_MODEL:g} (verl's default; usual are 1e-6 to 1e-5, with LoRA up to 1e-4 or 3e-4)",
            patch={KEY: f"{OF_A_MODEL:g}"} if given is None else {},
            guess=given is None,
        )
    return Check(NAME, "ok", f"{key} is {rate:g}")
