"""Settings whose order or sum leaves a step no room: ``check`` warns of each, with a value that has room."""

from __future__ import annotations

import pytest

from liverl.config import load_config
from liverl.preflight import batch_end, room
from liverl.preflight.registry import asks

NOW = 1_796_000_000.0
STEPS = "training.total_steps=3"
CASES = (
    ((), ""),
    ((STEPS, "training.save_freq=3"), ""),
    ((STEPS, "training.save_freq=-1"), ""),
    ((STEPS, "training.save_freq=5"), "training.save_freq"),
    (("supervise.restart_base=100",), "supervise.restart_base"),
    (("supervise.restart_base=60",), ""),
    (("supervise.storm_window=12",), "supervise.storm_window"),
    (("supervise.storm_window=13",), ""),
    (("supervise.storm_failures=40",), "supervise.storm_window"),
    (("supervise.storm_window=12", "supervise.storm_failures=1"), ""),
)


@pytest.mark.parametrize(("sets", "key"), CASES)
def test_settings_that_leave_no_room(sets: tuple[str, ...], key: str) -> None:
    found = list(room.checks(load_config(sets=("run.name=x", *sets), env={}).config))
    assert [one.name for one in found] == ([key] if key else [])
    for one in found:
        assert one.status == "warn" and one.patch and one.guess
        again = load_config(
            sets=("run.name=x", *sets, *(f"{k}={v}" for k, v in one.patch.items())), env={}
        ).config
        assert not list(room.checks(again)), "what it advises has room"
        assert all(other in one.fix for other in one.patch)


@pytest.mark.parametrize(
    ("left", "margin", "status"),
    [
        (600, "180", "ok"),
        (600, "599", "ok"),
        (600, "600", "warn"),
        (600, "900", "warn"),
        (100, "180", "warn"),
    ],
)
def test_a_margin_beyond_the_end_of_the_job(left: int, margin: str, status: str) -> None:
    sets = ["run.name=x", f"batch.margin={margin}"]
    config = load_config(sets=sets, env={}).config
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": f"{NOW + left:.0f}"}
    found = batch_end.check(config, env, NOW)
    assert found is not None and (found.status, found.values["left_s"]) == (status, left)
    if status == "warn":
        assert f"batch.margin is {margin} s" in found.text
        smaller = load_config(
            sets=["run.name=x", f"batch.margin={found.patch['batch.margin']}"], env={}
        ).config
        again = batch_end.check(smaller, env, NOW)
        assert again is not None and again.status == "ok"


def test_nobody_is_asked_before_the_start_because_of_it() -> None:
    """It holds for every run of this configuration."""
    config = load_config(sets=("run.name=x", STEPS, "training.save_freq=5"), env={}).config
    from msgspec.structs import replace

    assert not asks([replace(one, id="room") for one in room.checks(config)])
