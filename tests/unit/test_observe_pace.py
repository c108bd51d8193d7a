"""How long a step takes, from what the trainer says of it or from when its lines come."""

from __future__ import annotations

from liverl.model import StepMetrics
from liverl.observe.metrics.pace import StepPace


def steps(*numbers: int, **values: float) -> list[StepMetrics]:
    return [StepMetrics(n, {key.replace("__", "/"): value for key, value in values.items()}) for n in numbers]


def test_the_median_of_what_the_newest_ten_say() -> None:
    pace = StepPace()
    assert pace.seconds is None
    pace.add(steps(1, timing_s__step=900.0), 0.0, fresh=False)
    assert pace.seconds == 900.0
    for number, taken in enumerate((10.0, 30.0, 20.0, 50.0, 40.0) * 2, 2):
        pace.add(steps(number, timing_s__step=taken), 0.0)
    assert pace.seconds == 30.0, "without the first step"
    pace.clear()
    assert pace.seconds is None
    pace.add(steps(1, perf__time_per_step=7.0), 0.0)
    assert pace.seconds == 7.0


def test_without_their_word_the_time_between_two_lines_counts() -> None:
    pace = StepPace()
    pace.add(steps(1, 2, 3), 100.0, fresh=False)  # they were there before
    pace.add(steps(4), 107.0)
    assert pace.seconds is None, "when step 3 was written is not known"
    pace.add(steps(5), 117.0)
    assert pace.seconds == 10.0
    pace.add(steps(6, 7), 157.0)
    assert pace.seconds == 20.0  # of 10, 20, 20
    pace.add(steps(6), 160.0)  # a resumed trainer writes it again
    assert pace.seconds == 20.0
