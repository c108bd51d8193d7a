"""Rules for what trains a mixture of experts under verl: the engine, and routing replay."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.config import conditions as when
from liverl.config.attention import REMOVE_PADDING, overridden, without_flash_attention
from liverl.config.checks.ruleset import Finding, RuleSet
from liverl.config.schema import RunConfig
from liverl.config.sizing import override, override_is_true
from liverl.config.trainer_mode import fully_async

RULES = RuleSet()
_rule = RULES.rule
BYPASS = "algorithm.rollout_correction.bypass_mode"
_ENGINE, _REPLAY = "training.engine", "training.router_replay"


@_rule(_ENGINE, "trainer.kind", "run.topology", "verl.device")
def _engine(c: RunConfig) -> Iterator[Finding]:
    if when.our_ray(c) and c.training.engine != "fsdp" and c.verl.device == "cpu":
        yield Finding(_ENGINE, "verl.device cpu supports only the engine fsdp", c.training.engine, "fsdp")


@_rule(
    *(_ENGINE, _REPLAY, "trainer.kind", "run.topology", "verl.trainer_mode", "trainer.overrides"),
    *("environments", "environment.venv_path", "verl.device"),
)
def _replay(c: RunConfig) -> Iterator[Finding]:
    """What verl refuses minutes after the start, or accepts without an effect."""
    mode = c.training.router_replay
    if not when.our_ray(c) or mode == "disabled":
        return
    if c.training.engine == "fsdp":
        words = "verl's FSDP engine cannot replay routes"
        yield Finding(_REPLAY, words, mode, "disabled, or training.engine veomni or megatron")
    elif mode == "R2" and _bypasses(c):
        words = "R2 needs the pass that recomputes old log-probabilities, and bypass_mode skips it" + (
            " (verl.trainer_mode fully_async turns it on)" if override(c, BYPASS) is None else ""
        )
        hint = f"or set {BYPASS}: false in trainer.overrides"
        yield Finding(_REPLAY, words, mode, "R3 or disabled", hint)
    elif _padded(c):
        words = f"routing replay works only without padding, but {REMOVE_PADDING} is off"
        words += "" if overridden(c) else ", because environment verl has no flash-attn"
        hint = "use an environment with flash-attn: environments.verl.venv_path"
        yield Finding(_REPLAY, words, mode, "disabled", hint)


def _bypasses(c: RunConfig) -> bool:
    given = override_is_true(c, BYPASS)
    return fully_async(c) if given is None else given


def _padded(c: RunConfig) -> bool:
    given = override(c, REMOVE_PADDING)
    return without_flash_attention(c) if given is None else str(given).lower() == "false"
