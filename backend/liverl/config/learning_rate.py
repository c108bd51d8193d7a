"""The learning rate that a trainer gets. Pure.

One number cannot be right for both: the embedded trainer has a table of logits, which learns in 20 steps at 0.3; a
model is destroyed by that, and verl's own default is 1e-6 (``actor.optim.lr``, verl 0.9.1).
"""

from __future__ import annotations

from liverl.config import conditions
from liverl.config.schema import RunConfig

OF_LOGITS, OF_A_MODEL = 0.3, 1e-6


def learning_rate(config: RunConfig) -> float:
    """``algorithm.learning_rate``, or without one that of the run's trainer."""
    given = config.algorithm.learning_rate
    if given is not None:
        return given
    return OF_LOGITS if conditions.embedded_trainer(config) else OF_A_MODEL
