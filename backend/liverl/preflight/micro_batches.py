"""The micro batches of verl's trainer, which each GPU cuts its sequences into where they are not packed by tokens."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.config.trainer_mode import generates_apart
from liverl.model import Check

NAME = "micro batches"
_PACKED = "actor_rollout_ref.actor.use_dynamic_bsz"
UPDATE = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
LOG_PROBS = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"
_PLANNED = 1  # sequences, where ``trainer.overrides`` says nothing (``plan.verl_overrides``)


def checks(config: RunConfig) -> Iterator[Check]:
    """Whether the sequences of a GPU can be cut: for an update those of a mini batch, for log probabilities those of
    the batch that verl samples: whole mini batches, by the checks of the configuration. verl asserts it in each step
    only (``workers/engine/utils.py`` ``prepare_micro_batches``)."""
    training = config.training
    packed = sizing.override(config, _PACKED)
    if _is_true(training.use_dynamic_bsz if packed is None else packed):
        yield Check(NAME, "ok", "they are packed by tokens (training.use_dynamic_bsz)")
        return
    ranks = max(1, sizing.trainer_gpus(config) // training.sp_size)
    mini = training.train_prompt_mini_batch_size * training.n_resp_per_prompt
    if mini % ranks:
        yield Check(NAME, "skipped", "the trials of a mini batch cannot be spread over the GPUs: see batches")
        return
    apart = generates_apart(config)  # it samples a mini batch at a time
    sampled = mini if apart else training.train_batch_size * training.n_resp_per_prompt
    fine = []
    for key, what, number in (
        (UPDATE, "of a mini batch", mini // ranks),
        (LOG_PROBS, "of a batch", sampled // ranks),
    ):
        given = sizing.override(config, key)
        size = _PLANNED if given is None else _whole(given)
        if size is None:
            yield Check(NAME, "skipped", f"{key} is {given!r}, which only verl can read")
        elif number % size:
            fix = "pack them by tokens (training.use_dynamic_bsz), or set it to a divisor of {}: {}"
            yield Check(
                NAME,
                "fail",
                f"{number} trials {what} on each of {ranks} trainer ranks cannot be split into micro batches of {size} "
                f"({key}); verl would fail after the first rollouts",
                fix=fix.format(number, ", ".join(map(str, _divisors(number)))),
                patch={"training.use_dynamic_bsz": "true"} if packed is None else {},
            )
        else:
            fine.append(f"{number} trials {what} in micro batches of {size}")
    if len(fine) == 2:
        yield Check(NAME, "ok", f"on each of {ranks} trainer ranks {' and '.join(fine)}")


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


def _whole(value: object) -> int | None:
    """A positive whole number; None for what is none, as an interpolation of Hydra's."""
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number > 0 else None


def _divisors(number: int) -> list[int]:
    """The five largest numbers that divide ``number``."""
    return [part for part in range(number, 0, -1) if number % part == 0][:5]
