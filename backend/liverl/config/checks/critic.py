"""Rules for PPO's critic under verl, which learns what a state is worth (``algorithm.adv_estimator`` gae). Whether the
trainer's environment has the flash-attn that it needs on GPUs is a check of ``preflight.flash_attention``."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.config import conditions as when
from liverl.config.attention import CRITIC_NEEDS, GAE, with_critic
from liverl.config.checks.ruleset import Finding, RuleSet
from liverl.config.schema import RunConfig

RULES = RuleSet()
_rule = RULES.rule
_ENGINE, _ESTIMATOR = "training.engine", "algorithm.adv_estimator"


@_rule(_ESTIMATOR, _ENGINE, "trainer.kind", "run.topology", "verl.device", "trainer.overrides")
def _critic(c: RunConfig) -> Iterator[Finding]:
    if not when.our_ray(c) or not with_critic(c):
        return
    value = c.algorithm.adv_estimator
    if c.training.engine != "fsdp":
        who = f"{_ESTIMATOR} {value}" if value == GAE else "critic.enable of trainer.overrides"
        words = f"{who} needs a critic, which is supported with {_ENGINE} fsdp only"
        yield Finding(_ENGINE, words, c.training.engine, "fsdp, or another estimator, such as grpo")
    elif c.verl.device == "cpu":
        yield Finding(
            _ESTIMATOR, f"{CRITIC_NEEDS}, which runs on GPUs only", value, "grpo, or verl.device cuda"
        )
