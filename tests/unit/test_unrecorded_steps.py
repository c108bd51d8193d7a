"""Which steps of a recorded run have no trials in the recording."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from liverl.model import StepTrials
from liverl_tui.widgets.base.trial_words import tally_of
from liverl_tui.widgets.dashboard.trial_title import unrecorded_words


@pytest.mark.parametrize(
    ("done", "steps", "words"),
    [
        (None, [], ""),
        (0, [], ""),
        (0, [1], ""),
        (3, [4, 3, 2, 1], ""),
        (1, [], "trials of step 1 not recorded"),
        (8, [], "trials of steps 1-8 not recorded"),
        (16, [16, 15], "trials of steps 1-14 not recorded"),
        (4, [4, 2], "trials of 2 steps not recorded"),
    ],
)
def test_steps_without_recorded_trials(done: int | None, steps: Sequence[int], words: str) -> None:
    tallies = [tally_of(StepTrials(step, 8, 8, 0, 0.5)) for step in steps]
    assert unrecorded_words(done, tallies) == words
