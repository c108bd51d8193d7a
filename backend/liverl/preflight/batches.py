"""The batch sizes of a step: whether they go together, and which smaller ones would. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from liverl.config import sizing
from liverl.config.checks.managed import faults
from liverl.config.checks.mending import with_values
from liverl.config.schema import RunConfig
from liverl.config.trainer_mode import fully_async, step_prompts
from liverl.model import Check, Evidence
from liverl.preflight import micro_batches
from liverl.util.multiples import nearest_multiples

BATCH, MINI = "training.train_batch_size", "training.train_prompt_mini_batch_size"
_TRIES = 256  # batches that are tried below the largest
BATCHES = (
    "the three sizes: train_batch_size prompts, times n_resp_per_prompt, are the trials of a step; "
    "train_prompt_mini_batch_size prompts, times n_resp_per_prompt, are one optimizer update; a micro batch is what "
    "one GPU computes at once (packed up to a number of tokens with use_dynamic_bsz, else one trial)"
)


def batches(config: RunConfig) -> Check:
    """The divisibility of the batch sizes, which verl asserts only after its start (``verl/utils/config.py``
    ``validate_config``, ``workers/config/actor.py``)."""
    training = config.training
    streamed = fully_async(config)  # mini batches are taken from a queue, and there is no batch
    trials = step_prompts(config) * training.n_resp_per_prompt
    mini = training.train_prompt_mini_batch_size * training.n_resp_per_prompt
    ranks = max(1, sizing.trainer_gpus(config) // training.sp_size)
    if not streamed and training.train_prompt_mini_batch_size > training.train_batch_size:
        return Check(
            "batches",
            "fail",
            f"{MINI} is larger than {BATCH}",
            evidence=(Evidence(BATCHES),),
            fix=f"set {MINI} to {training.train_batch_size} or one of its divisors",
            patch={MINI: str(training.train_batch_size)},
            guess=True,
        )
    if mini % ranks:
        # Prompts that make whole trials for each rank.
        step = ranks // math.gcd(ranks, training.n_resp_per_prompt)
        fitting = [
            n for n in nearest_multiples(training.train_prompt_mini_batch_size, step)
            if streamed or training.train_batch_size % n == 0
        ]  # fmt: skip
        responses = nearest_multiples(training.n_resp_per_prompt, ranks)
        ways = [f"{MINI} to {' or '.join(map(str, fitting))}"] if fitting else []
        ways += [f"training.n_resp_per_prompt to {' or '.join(map(str, responses))}"]
        return Check(
            "batches",
            "fail",
            f"{mini} trials per mini batch are not divisible by {ranks} trainer ranks (GPUs / training.sp_size)",
            evidence=(Evidence(BATCHES),),
            fix=f"set {', or '.join(ways)}",
            patch={MINI: str(fitting[-1])} if fitting else {"training.n_resp_per_prompt": str(responses[-1])},
            guess=True,
        )
    return Check("batches", "ok", f"{trials} trials per step, {mini} per update, over {ranks} trainer ranks")


def largest(config: RunConfig, most: int) -> dict[str, str]:
    """The settings of the largest batch of at most ``most`` prompts with which no rule and no check of batches finds a
    fault that the configuration does not have; with the largest mini batch that divides it, and packed by tokens only
    where no batch fits otherwise. Empty without one."""
    before = set(_faults(config))
    configured = config.training.train_prompt_mini_batch_size
    for packed in ({}, {"training.use_dynamic_bsz": "true"}):
        for batch in range(min(most, config.training.train_batch_size), max(0, most - _TRIES), -1):
            mini = next(n for n in range(min(configured, batch), 0, -1) if batch % n == 0)
            values = {BATCH: str(batch), **({} if mini == configured else {MINI: str(mini)}), **packed}
            if set(_faults(with_values(config, values))) <= before:
                return values
    return {}


def _faults(config: RunConfig) -> Iterator[str]:
    yield from (f"{found.key}: {found.message}" for found in faults(config))
    if config.trainer.kind == "verl":
        found = (batches(config), *micro_batches.checks(config))
        yield from (f"{check.name}: {check.patch.keys()}" for check in found if check.status == "fail")
