"""Spellings of verl's older documents that the present verl refuses, after its imports or with a running Ray head."""

from __future__ import annotations

import re

from liverl.config.schema import RunConfig
from liverl.config.sizing import bare_key
from liverl.model import Check

NAME = "verl's older keys"
_CPUS = "verl refuses a number of CPUs for a Ray head that runs already"
_OLD = "verl 0.9 has no ray_init: its keys are in ray_kwargs"
# (spelling, why it is refused, the key of ours that does it)
_SPELLINGS = (
    (re.compile(r"(ray_kwargs\.)?ray_init\.num_cpus"), _CPUS, "ray.num_cpus"),
    (re.compile(r"(ray_kwargs\.)?(ray_init\.)?timeline_file"), _OLD, "ray.timeline"),
    (re.compile(r"ray_init\..+"), _OLD, ""),
)


def checks(config: RunConfig) -> list[Check]:
    """Those in ``trainer.overrides``, each by its name."""
    found = []
    for given in map(bare_key, config.trainer.overrides):
        for spelling, why, ours in _SPELLINGS:
            if spelling.fullmatch(given):
                fix = f"remove it, and set {ours}" if ours else f"write ray_kwargs.{given}"
                found.append(Check(NAME, "fail", f"trainer.overrides.{given}: {why}", fix=fix))
                break
    return found or [Check(NAME, "ok", "none is used")]
