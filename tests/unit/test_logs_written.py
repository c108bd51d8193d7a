"""When a log was last written to: by its own stamps where they tell, since a copy has the time of the copy."""

from __future__ import annotations

import time

import pytest

from liverl.logs.written import FEW, LATE_S, QUIET_S, last_written

LAST = 1_780_000_000.0
COPY = LAST + 90 * 86400.0
STAMP = f"INFO {time.strftime('%m-%d %H:%M:%S', time.localtime(LAST))} [core.py:61] ready\n"
STEP = "(TaskRunner pid=7) step:3 - critic/rewards/mean:0.5 - timing_s/step:100.0\n"
BAR = "Training Progress:  9%|#    | 3/40 [1:38:40<1:00:00, 100.0s/it]\n"
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 2, in f\n    g()\nRuntimeError: x\n'


@pytest.mark.parametrize(
    ("tail", "written"),
    [
        (STAMP, LAST),
        (STAMP + TRACE, LAST),
        (STAMP + STEP + BAR + STEP + BAR, LAST + 200.0),
        (STAMP + STEP.replace("timing_s/step", "x") + BAR, COPY),  # nobody knows how long that step took
        (STAMP + 'INFO: 10.0.0.1:3 - "GET /health HTTP/1.1" 200 OK\n', COPY),  # nor how often it is polled
        (STAMP + "loss\n" * (FEW + 1), COPY),
        (STAMP + "loss\n" * FEW, LAST),
        (TRACE, COPY),
    ],
    ids=["stamp", "traceback", "steps", "steps without a time", "polls", "lines", "few lines", "no stamp"],
)
def test_what_stands_behind_the_last_stamp(tail: str, written: float) -> None:
    assert last_written(tail, LAST, COPY) == written


@pytest.mark.parametrize(
    ("tail", "after", "unsure", "by_file"),
    [
        (STAMP, LATE_S, 0.0, True),
        (STAMP, LATE_S + 1.0, 0.0, False),
        (STAMP + TRACE, QUIET_S, 0.0, True),
        (STAMP + TRACE, QUIET_S + 1.0, 0.0, False),
        (STAMP + STEP, 100.0 + QUIET_S, 0.0, True),  # the next step may take as long
        (STAMP, 8 * 3600.0, 8 * 3600.0, True),  # the stamp may be UTC, the host is not
    ],
)
def test_what_may_still_be_written(tail: str, after: float, unsure: float, by_file: bool) -> None:
    at = LAST + after
    assert (last_written(tail, LAST, at, unsure) == at) == by_file


def test_a_log_without_a_stamp_is_as_old_as_its_file() -> None:
    assert last_written(STAMP, None, COPY) == COPY
