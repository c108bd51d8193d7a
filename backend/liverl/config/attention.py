"""Whether verl's trainer has flash-attn, and over how many GPUs it can split a sequence then. Pure.

No ready-built wheel of flash-attn is on the public index for the torch of our environment, so that what we build has
none; sequences are split over GPUs (Ulysses, ``training.sp_size``) only where padding is removed, which needs it.
"""

from __future__ import annotations

import re

from liverl.config.schema import RunConfig
from liverl.config.sizing import bare_key, override, override_is_true

REMOVE_PADDING = "actor_rollout_ref.model.use_remove_padding"
DEFAULT_SP_SIZE = 4  # of config/default.yaml, which is LiveRL's
GAE = "gae"  # verl/trainer/ppo/utils.py need_critic
_CRITIC = "critic.enable"
# verl 0.9.1, utils/model.py load_valuehead_model: whatever attn_implementation its overrides set
CRITIC_NEEDS = "verl loads PPO's critic with flash-attn, whatever trainer.overrides say of its attention"
_FLASH = re.compile(r"flash[-_.]attn\b", re.IGNORECASE)


def has_flash_attention(config: RunConfig) -> bool | None:
    """Whether the environment verl has flash-attn, as far as its description says it; None for one of the user's."""
    entry = config.environments["verl"]
    if entry.venv_path or config.environment.venv_path:
        return None
    return any(_FLASH.match(text.strip()) for text in (*entry.requirements, *entry.first.requirements))


def without_flash_attention(config: RunConfig) -> bool:
    """Whether the trainer is known to run without flash-attn on GPUs."""
    ours = config.run.topology != "managed" and config.trainer.kind == "verl" and config.verl.device == "cuda"
    return ours and has_flash_attention(config) is False


def with_critic(config: RunConfig) -> bool:
    """Whether verl trains a critic: with the estimator gae, unless its overrides decide."""
    given = override_is_true(config, _CRITIC)
    if given is None:
        estimator = override(config, "algorithm.adv_estimator") or config.algorithm.adv_estimator
        return str(estimator) == GAE
    return given


def overridden(config: RunConfig) -> bool:
    """Whether the user's overrides decide about padding."""
    return any(bare_key(key) == REMOVE_PADDING for key in config.trainer.overrides)


def planned_sp_size(config: RunConfig) -> int:
    """GPUs over which a sequence is split: ``training.sp_size``, or 1 in place of the default where it cannot be split.
    Any other value stays: the checks refuse it."""
    size = config.training.sp_size
    whole = size == DEFAULT_SP_SIZE and without_flash_attention(config) and not overridden(config)
    return 1 if whole else size
