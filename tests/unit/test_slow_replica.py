"""Which replica is named as the slow one of a step."""

from __future__ import annotations

import pytest

from liverl.diagnose.where.slow_replica import CALLS, slow_replica


@pytest.mark.parametrize(
    ("means", "calls", "wanted"),
    [
        ({"r0": 0.4, "r1": 1.1}, CALLS, "r1 took 2.8 times as long for a call as the other replica"),
        ({"r0": 0.4, "r1": 0.7}, CALLS, ""),
        ({"r0": 0.4, "r1": 0.8}, CALLS, "r1 took 2.0 times as long for a call as the other replica"),
        (
            {"r0": 1.2, "r1": 0.4, "r2": 0.6},
            CALLS,
            "r0 took 2.4 times as long for a call as the other replicas",
        ),
        ({"r0": 0.4, "r1": 1.1}, CALLS - 1, ""),
        ({"r1": 1.1}, CALLS, ""),
        ({"r0": 0.0, "r1": 1.1}, CALLS, ""),
        ({}, CALLS, ""),
    ],
)
def test_the_slow_one_is_named(means: dict[str, float], calls: int, wanted: str) -> None:
    found = slow_replica({name: [(1e9, 1e9 + mean)] * calls for name, mean in means.items()})
    assert (f"{found.name} {found.words}" if found is not None else "") == wanted
