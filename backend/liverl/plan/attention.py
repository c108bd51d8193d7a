"""How verl's trainer computes attention where its environment has no flash-attn. Pure.

verl 0.9.1 asks transformers for flash_attention_2, and removes padding (``use_remove_padding``), which needs the
kernels of flash-attn. ``config.attention`` says where they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from liverl.config.attention import REMOVE_PADDING, overridden, planned_sp_size, without_flash_attention
from liverl.config.loaded import LoadedConfig
from liverl.config.schema import RunConfig
from liverl.plan.hydra import Override

IMPLEMENTATION = "actor_rollout_ref.model.override_config.attn_implementation"
SP_SIZE = "training.sp_size"


def overrides(config: RunConfig) -> Iterator[Override]:
    """What lets the trainer run without flash-attn; nothing where it has it, or may have."""
    if without_flash_attention(config):
        yield Override(REMOVE_PADDING, False)
        yield Override(IMPLEMENTATION, "sdpa", new=True)


def planned(config: RunConfig) -> RunConfig:
    """The configuration with the ``sp_size`` with which the trainer is started."""
    size = planned_sp_size(config)
    if size == config.training.sp_size:
        return config
    return replace(config, training=replace(config.training, sp_size=size))


def settled(loaded: LoadedConfig) -> tuple[LoadedConfig, tuple[str, ...]]:
    """The configuration with an ``sp_size`` that works without flash-attn, and what is said of it."""
    config = loaded.config
    if not without_flash_attention(config) or overridden(config):
        return loaded, ()
    training = config.training
    longest, before = training.max_prompt_length + training.max_response_length, training.sp_size
    said = (
        "the environment verl that is built has no flash-attn: attention is computed by sdpa, with padding "
        f"(use_remove_padding off), so that each row takes the memory and time of {longest:,} tokens"
    )
    small = planned(config)
    if small is config:
        return loaded, (said,)
    said += (
        f"; {SP_SIZE} {before} -> {small.training.sp_size}, as sequences are split only without padding: one GPU holds "
        f"all {longest:,} tokens of a sequence in place of {-(-longest // before):,}"
    )
    return replace(loaded, config=small), (said,)
