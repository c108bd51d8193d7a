"""Batches of a launch that does not tell them, or whose own were refused: LiveRL's defaults, raised until the trainer's
GPUs divide them."""

from __future__ import annotations

import math

from liverl.importing.builder import Builder
from liverl.importing.values import Place

BATCH, MINI, EACH = (
    f"training.{name}" for name in ("train_batch_size", "train_prompt_mini_batch_size", "n_resp_per_prompt")
)
# LiveRL's documentation: 64 prompts, all in one mini batch, with 8 trials each.
PROMPTS, TRIALS = 64, 8
_HOSTS, _PER_HOST, _TRAIN = "infrastructure.nnodes", "infrastructure.ngpus_per_node", "verl.train_nodes"
_GPUS = 8  # of a host, in LiveRL and here


def fill(builder: Builder, place: Place) -> bool:
    """Set the batch that counts, if nothing does. Returns whether it was set. The fully asynchronous trainer reads only
    the mini batch."""
    key = MINI if builder.fully_async else BATCH
    if key in builder.values:
        return False
    each = _number(builder, EACH, TRIALS)
    gpus = _number(builder, _TRAIN, _number(builder, _HOSTS, 1)) * _number(builder, _PER_HOST, _GPUS)
    by = gpus // math.gcd(gpus, each)
    if not builder.fully_async:
        by = math.lcm(by, _number(builder, MINI, 1))
    number = math.ceil(PROMPTS / by) * by
    source = f"not set there: {PROMPTS} prompts, LiveRL's default"
    if number != PROMPTS:
        source += f", raised to what {gpus} GPUs and the mini batches divide"
    if EACH not in builder.values:
        builder.take(
            EACH, str(each), place, f"not set there: {TRIALS} trials, LiveRL's default", default=True
        )
    builder.take(key, str(number), place, source, default=True)
    if MINI not in builder.values:
        builder.take(MINI, str(number), place, "not set there: the whole batch, as in LiveRL", default=True)
    return True


def _number(builder: Builder, key: str, other: int) -> int:
    one = builder.values.get(key)
    return int(one.text) if one is not None and one.text.isdecimal() and int(one.text) > 0 else other
