"""How verl's trainer computes attention where its environment has no flash-attn. Pure.

verl 0.9.1 asks transformers for flash_attention_2, and removes padding (``use_remove_padding``), which needs the
kernels of flash-attn; sequences are split over GPUs (Ulysses, ``training.sp_size``) only where padding is removed. No
ready-built wheel of flash-attn is on the public index for the torch of our environment, so that what we build has
none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from liverl.config import conditions as when
from liverl.config.load import LoadedConfig
from liverl.config.schema import RunConfig
from liverl.config.sizing import bare_key
from liverl.plan.hydra import Override

IMPLEMENTATION = "actor_rollout_ref.model.override_config.attn_implementation"
REMOVE_PADDING = "actor_rollout_ref.model.use_remove_padding"
SP_SIZE = "training.sp_size"
DEFAULT_SP_SIZE = 4  # of config/default.yaml
_FLASH = re.compile(r"flash[-_.]attn\b", re.IGNORECASE)


def has_flash_attention(config: RunConfig) -> bool | None:
    """Whether the environment verl has flash-attn, as far as its description says it; None for one of the user's."""
    entry = config.environments["verl"]
    if entry.venv_path or config.environment.venv_path:
        return None
    return any(_FLASH.match(text.strip()) for text in (*entry.requirements, *entry.first.requirements))


def without_flash_attention(config: RunConfig) -> bool:
    """Whether the trainer is known to run without flash-attn on GPUs."""
    ours = not when.managed(config) and when.verl_trainer(config) and config.verl.device == "cuda"
    return ours and has_flash_attention(config) is False


def overrides(config: RunConfig) -> Iterator[Override]:
    """What lets the trainer run without flash-attn; nothing where it has it, or may have."""
    if without_flash_attention(config):
        yield Override(REMOVE_PADDING, False)
        yield Override(IMPLEMENTATION, "sdpa", new=True)


def settled(loaded: LoadedConfig) -> tuple[LoadedConfig, tuple[str, ...]]:
    """The configuration with an ``sp_size`` that works without flash-attn, and what is said of it. Another
    value than that of the defaults, which are LiveRL's, stays: the checks refuse it."""
    config = loaded.config
    if not without_flash_attention(config) or overridden(config):
        return loaded, ()
    training = config.training
    longest, before = training.max_prompt_length + training.max_response_length, training.sp_size
    said = (
        "the environment verl that is built has no flash-attn: attention is computed by sdpa, with padding "
        f"(use_remove_padding off), so that each row takes the memory and time of {longest:,} tokens"
    )
    if before != DEFAULT_SP_SIZE:
        return loaded, (said,)
    said += (
        f"; {SP_SIZE} {before} -> 1, as sequences are split only without padding: one GPU holds all {longest:,} tokens "
        f"of a sequence in place of {-(-longest // before):,}"
    )
    return replace(loaded, config=replace(config, training=replace(training, sp_size=1))), (said,)


def overridden(config: RunConfig) -> bool:
    """Whether the user's overrides decide about padding."""
    return any(bare_key(key) == REMOVE_PADDING for key in config.trainer.overrides)
