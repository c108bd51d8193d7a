"""Which run another one is compared with where nobody names one."""

from __future__ import annotations

import pytest

from liverl.offline.run_list import RunListed, previous_run


def run(name: str, at: float | None, model: str = "m", *, smoke: bool = False) -> RunListed:
    return RunListed(
        name, f"/runs/{name}", "done", None, None, at, 1, None, model=model, smoke=smoke, seconds=1.0
    )


RUNS = (
    run("a/grpo-1", 1.0),
    run("a/grpo-2", 2.0),
    run("a/other", 3.0),
    run("b/grpo-2", 4.0),
    run("a/tuned", 5.0, "n"),
    run("a/smoke", 5.5, smoke=True),
    run("a/20261130-062101", 6.0, "n"),
    run("a/20261130-071500", 7.0, "n"),
)


@pytest.mark.parametrize(
    ("chosen", "before", "words"),
    [
        (run("a/grpo-3", 9.0), "a/grpo-2", "the run before it with a name like its own"),
        (run("a/grpo-v3", 9.0, "n"), "a/grpo-2", "the run before it with a name like its own"),
        (run("a/grpo-2", 2.0), "a/grpo-1", "the run before it with a name like its own"),
        (run("a/new", 9.0), "a/other", "the run of the same model before it"),
        (run("a/20261130-080000", 9.0, "n"), "a/20261130-071500", "the run of the same model before it"),
        (run("c/first", 9.0, "x"), "a/20261130-071500", "the run that began before it"),
        (run("c/first", 9.0, ""), "a/20261130-071500", "the run that began before it"),
        (run("a/smoke-2", 9.0, smoke=True), "a/smoke", "the run before it with a name like its own"),
    ],
)
def test_the_nearest_run_of_its_own_kind_is_the_previous_one(
    chosen: RunListed, before: str, words: str
) -> None:
    found = previous_run(chosen, RUNS)
    assert found is not None and (found.run.run, found.words) == (before, words)


def test_the_first_run_and_one_of_an_unknown_time_have_none_before_them() -> None:
    assert previous_run(RUNS[0], RUNS) is None
    assert previous_run(run("a/grpo-9", None), RUNS) is None
    assert previous_run(run("a/grpo-9", 9.0), [run("a/grpo-8", None)]) is None
