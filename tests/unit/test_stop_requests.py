"""What counts as a request to stop: repeated SIGTERMs of a batch system are one, each Ctrl-C is another."""

from __future__ import annotations

from signal import SIGINT, SIGTERM

import pytest

from liverl.util.signals import SAME_REQUEST_S, StopRequests

SOON, LATE = SAME_REQUEST_S - 0.01, SAME_REQUEST_S


@pytest.mark.parametrize(
    ("signals", "count"),
    [
        ([], 0),
        ([(0, SIGTERM)], 1),
        ([(0, SIGTERM), (0.001, SIGTERM), (0.002, SIGTERM)], 1),
        ([(0, SIGTERM), (SOON, SIGTERM)], 1),
        ([(0, SIGTERM), (LATE, SIGTERM)], 2),
        ([(0, SIGTERM), (1.5, SIGTERM), (3, SIGTERM)], 2),
        ([(0, SIGINT), (0, SIGINT)], 2),
        ([(0, SIGTERM), (0, SIGINT)], 2),
        ([(0, SIGINT), (0.1, SIGTERM)], 1),
        ([(0, SIGINT), (LATE, SIGTERM)], 2),
        ([(0, SIGINT), (LATE, SIGINT), (2 * LATE, SIGINT)], 3),
        ([(0, SIGINT), (SOON, SIGINT), (LATE, SIGTERM)], 3),
    ],
)
def test_what_counts(signals: list[tuple[float, int]], count: int) -> None:
    now = 100.0
    requests = StopRequests(clock=lambda: now)
    counts = []
    for at, number in signals:
        now = 100.0 + at
        counts.append(requests.received(number))
    assert requests.count == counts.count(True) == count
    assert counts[:1] in ([], [True])


def test_a_command_is_a_request_as_a_signal_is() -> None:
    now = 0.0
    requests = StopRequests(clock=lambda: now)
    requests.requested()
    now = SOON
    assert not requests.received(SIGTERM)
    requests.requested()
    assert requests.count == 1
    now = LATE
    assert requests.received(SIGTERM) and requests.count == 2


def test_the_window_is_the_callers() -> None:
    now = 0.0
    requests = StopRequests(0.5, clock=lambda: now)
    assert requests.received(SIGTERM)
    now = 0.5
    assert requests.received(SIGTERM)
