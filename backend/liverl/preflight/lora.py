"""Whether the adapter that verl trains (LoRA) reaches the replicas. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.model import Check

NAME = "LoRA"
_MODEL = "actor_rollout_ref.model"
RANK, ADAPTER, MERGE = f"{_MODEL}.lora_rank", f"{_MODEL}.lora_adapter_path", f"{_MODEL}.lora.merge"
STRATEGY = "actor_rollout_ref.actor.strategy"
_OFF = ("", "0", "none", "null")


def checks(config: RunConfig) -> Iterator[Check]:
    """One check of a run that trains an adapter on GPUs; none of any other.

    Source: with verl 0.9.1 and peft 0.21.2, ``collect_lora_params`` of ``verl/utils/fsdp_utils.py`` returns nothing for
    a model in FSDP 1, on one process and on two. Seen on an H200: vLLM's worker raised StopIteration in
    ``_create_merged_loras_inplace``, and verl waited; with ``lora.merge`` the same run trained.
    """
    rank = next((v for key in (RANK, ADAPTER) if (v := _given(config, key)) not in _OFF), None)
    if rank is None or config.verl.device != "cuda" or config.training.engine != "fsdp":
        return
    strategy = _given(config, STRATEGY) or "fsdp"
    if sizing.override_is_true(config, MERGE):
        yield Check(NAME, "ok", f"{MERGE} is true: verl merges the adapter into the weights that it sends")
    elif strategy == "fsdp":
        yield Check(
            NAME,
            "warn",
            "verl 0.9.1 with peft 0.21 and FSDP 1 sends the replicas an adapter without weights: vLLM refuses it, and "
            "the run stands still before its first step",
            fix=f"in trainer.overrides, set {MERGE}: true",
        )
    else:
        yield Check(
            NAME, "skipped", f"whether the adapter reaches the replicas with {STRATEGY} {strategy}: not tried"
        )


def _given(config: RunConfig, key: str) -> str:
    """What ``trainer.overrides`` sets, in lower case; empty if it is not there."""
    value = sizing.override(config, key)
    return "" if value is None else str(value).strip().lower()
