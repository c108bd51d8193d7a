"""Whether importance weights are per token or per sequence, from the metrics that verl's own function computes."""

from __future__ import annotations

import pytest

from liverl.diagnose.catalogue.off_policy import level_of
from liverl.model import StepMetrics

PREFIX = "rollout_corr/rollout_is_"


@pytest.mark.parametrize(
    ("lowest", "of_sequences", "level"),
    [
        # verl 0.9.1, compute_rollout_correction_weights on 4 replies of 20 tokens, log-ratios of deviation 0.3 (seed 1)
        (0.36812007427215576, 0.9141689538955688, "token"),
        (0.06886234134435654, 0.06886233389377594, "sequence"),
        (1.0, None, ""),
        (None, 0.5, ""),
    ],
)
def test_the_level_of_importance_weights(
    lowest: float | None, of_sequences: float | None, level: str
) -> None:
    told = {f"{PREFIX}min": lowest, f"{PREFIX}seq_min": of_sequences}
    step = StepMetrics(3, {key: value for key, value in told.items() if value is not None})
    assert level_of(step) == level
