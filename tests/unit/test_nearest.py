"""The one function behind every "did you mean"."""

from __future__ import annotations

import pytest

from liverl.config import ConfigError, load_config
from liverl.util.nearest import did_you_mean, nearest


def test_the_nearest_name() -> None:
    assert nearest("proxi", ["replica-0", "proxy"]) == "proxy"
    assert nearest("Replica_1", ["replica-0", "replica-1"]) == "replica-1"
    assert nearest("h100", ["cpu-verl", "h200-smoke"]) == "h200-smoke", "by its beginning"
    assert nearest("h2", ["h200-smoke"]) is None, "too short to be a beginning"
    assert nearest("zzz", ["proxy"]) is None and did_you_mean("zzz", ["proxy"]) == ""
    assert did_you_mean("lnog", ["long"]) == "did you mean long?"


@pytest.mark.parametrize(
    ("item", "meant"),
    [
        ("trainig.total_steps", "training.total_steps"),
        ("trainig.total_step", "training.total_steps"),
        ("trainig.nonsense", "the section training"),
        ("training.total_step", "training.total_steps"),
        ("enviroments.proxy", "environments"),
        ("total_steps", "training.total_steps"),
    ],
)
def test_a_wrong_section_or_key(item: str, meant: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(sets=[f"{item}=5"], env={})
    assert [p.hint for p in error.value.problems] == [f"did you mean {meant}?"]
