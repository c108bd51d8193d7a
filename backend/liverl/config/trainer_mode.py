"""Which of verl's trainers a run has, and what one of its steps takes. Pure, from the configuration alone."""

from __future__ import annotations

from liverl.config.schema import RunConfig
from liverl.config.sections.verl import TrainerMode

# verl.rollout_mode -> the trainer that it stands for where verl.trainer_mode is null.
OF_ROLLOUTS: dict[str, TrainerMode] = {"hybrid": "sync", "standalone": "separate_async"}


def trainer_mode(config: RunConfig) -> TrainerMode:
    """``verl.trainer_mode``; if that is null, by ``verl.rollout_mode``."""
    return config.verl.trainer_mode or OF_ROLLOUTS[config.verl.rollout_mode]


def fully_async(config: RunConfig) -> bool:
    """Whether verl's fully asynchronous trainer runs: a queue of samples stands between replicas and trainer."""
    return config.trainer.kind == "verl" and trainer_mode(config) == "fully_async"


def by_nodes(config: RunConfig) -> bool:
    """Whether whole hosts only train, and others only generate."""
    return bool(config.verl.rollout_nodes)


def generates_apart(config: RunConfig) -> bool:
    """Whether replicas have GPUs of their own. A launch script has no mode of ours: its hosts that only generate say
    it."""
    return trainer_mode(config) != "sync" or by_nodes(config)


def taken_at_once(config: RunConfig) -> int:
    """Prompts that the fully asynchronous trainer takes from the queue at once (verl's ``required_samples``)."""
    return config.training.train_prompt_mini_batch_size * config.verl.fully_async.require_batches


def step_prompts(config: RunConfig) -> int:
    """Prompts of one training step; in fully asynchronous training of one version of the parameters."""
    if not fully_async(config):
        return config.training.train_batch_size
    return taken_at_once(config) * config.verl.fully_async.trigger_parameter_sync_step


def rollout_prompts(config: RunConfig) -> int | None:
    """Prompts that fully asynchronous training samples in all; None = all of the data's epochs."""
    given, steps = config.verl.fully_async.total_rollout_steps, config.training.total_steps
    if given is not None or steps is None:
        return given
    return steps * step_prompts(config)
