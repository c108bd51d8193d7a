"""Which rules judge a step while it runs: a share of the trials that end first says nothing of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kit.screens import snapshot, trial

from liverl.diagnose.catalogue.agents import trials_failed, trials_not_trained, zero_tool_calls
from liverl.diagnose.catalogue.learning import groups_equal, groups_mostly_equal, rewards_equal
from liverl.diagnose.catalogue.rows import rows_damaged
from liverl.diagnose.catalogue.sandboxes import trials_fail_in_setup
from liverl.diagnose.catalogue.sessions import asides_dominate, rewrites_jump, sub_agents_dominate
from liverl.diagnose.catalogue.step_shares import whole
from liverl.diagnose.catalogue.trial_limits import trials_at_limit
from liverl.diagnose.tracker import Evaluate, RunContext, Window
from liverl.model import StepTrials, Symptom, TrialsStatus

PLANNED = 64
EARLIER = tuple(
    StepTrials(number, 64, 64, 0, 0.5, calling=64, sessions=64, session_tokens=640) for number in (7, 6, 5, 4)
)


class Row(NamedTuple):
    """A rule, and a step of ``PLANNED`` trials of which ``ended`` have ended and all of these are as the rule looks
    for. ``silent``, ``told``: how many must have ended at most, and at least; ``why``: why it may judge so early."""

    rule: Evaluate
    silent: int
    told: int
    why: str
    of: str


ALL: dict[str, Callable[[int], dict[str, Any]]] = {
    "tools": lambda n: {"zero_tool_calls": n, "calling": 0},
    "failed": lambda n: {"failures": {"RuntimeError": n}},
    "setup": lambda n: {"failures": {"RuntimeError": n}, "failed_in": {"setup": n}},
    "ending": lambda n: {"endings": {"exit masked": n}},
    "damaged": lambda n: {"damaged": {"unreadable": n}},
    "limit": lambda n: {"ended_by": {"max_iterations": n}},
    "sub": lambda n: {"sessions": n, "session_tokens": 10 * n, "sub_tokens": 7 * n},
    "aside": lambda n: {"sessions": n, "session_tokens": 10 * n, "aside_tokens": 7 * n},
    "rewritten": lambda n: {"sessions": n, "session_tokens": 10 * n, "rewritten": n},
    "reward": lambda n: {"mean_reward": 0.25},
}
TABLE = (
    Row(sub_agents_dominate, 47, 48, "waits for most trials", "sub"),
    Row(asides_dominate, 47, 48, "waits for most trials", "aside"),
    Row(rewrites_jump, 47, 48, "waits for most trials", "rewritten"),
    Row(trials_at_limit, 47, 48, "waits for most trials", "limit"),
    Row(zero_tool_calls, 15, 16, "a step without a tool takes long; those that have called count as they run", "tools"),
    Row(trials_failed, 3, 4, "a number, with how many have ended and how many there are", "failed"),
    Row(trials_fail_in_setup, 3, 4, "all that ended, and nothing else can follow", "setup"),
    Row(trials_not_trained, 6, 7, "a share of all trials of the step, which only grows", "ending"),
    Row(rows_damaged, 0, 1, "one is enough", "damaged"),
    Row(rewards_equal, 63, 64, "complete steps only", "reward"),
    Row(groups_equal, 63, 64, "complete steps only", "group"),
    Row(groups_mostly_equal, 63, 64, "complete steps only", "mostly"),
)  # fmt: skip
GROUPED = {"group": 16, "mostly": 12}  # of 16 groups of four, those whose rewards are all the same


def state(row: Row, ended: int, planned: int | None = PLANNED, total: int = PLANNED) -> Window:
    equal = GROUPED.get(row.of, 16)
    rewards = [0.25 if row.of == "reward" else float(n // 4 % 2) for n in range(PLANNED)]
    rewards = [reward if n // 4 < equal else n % 4 / 4 for n, reward in enumerate(rewards)]
    heads = tuple(
        trial(n, 8, group=f"g{n // 4}", reward=rewards[n], state="finished" if n < ended else "running")
        for n in range(total)
    )
    counts: dict[str, Any] = {"zero_tool_calls": 0, "mean_reward": 0.5, "calling": ended}
    counts |= ALL[row.of](ended) if row.of in ALL else {}
    step = StepTrials(8, total, ended, **counts)
    over = ended == PLANNED
    now = snapshot(
        step=8 if over else 7,
        trials=TrialsStatus(newest=heads, steps=(step, *EARLIER)),
        trials_per_step=planned,
        metrics=None,
    )
    return Window(now, None, RunContext())


def found(row: Row, window: Window) -> list[Symptom]:
    return [one for one in row.rule(window) if isinstance(one, Symptom)]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.rule.__name__}: {row.why}")
def test_how_much_of_a_step_a_rule_waits_for(row: Row) -> None:
    assert found(row, state(row, row.silent)) == []
    (told,) = found(row, state(row, row.told))
    assert "step 8" in told.title + told.cause
    (told,) = found(row, state(row, PLANNED))
    assert "step 8" in told.title + told.cause


@pytest.mark.parametrize("row", TABLE[:4], ids=lambda row: row.rule.__name__)
def test_trials_that_have_not_begun_are_of_the_step_too(row: Row) -> None:
    """Six trials of 64 had ended, and the others not begun: a share of 62% of their tokens was told as that of the
    step, and was over half a minute later."""
    assert found(row, state(row, 8, total=8)) == []
    assert found(row, state(row, 48, planned=None)), (
        "without a plan those that have begun are all that is known"
    )


def test_how_many_trials_a_step_has() -> None:
    now = state(TABLE[0], 6, total=6).now
    assert whole(now, now.trials.steps[0]) == PLANNED
    assert whole(now, EARLIER[0]) == 64
    small = StepTrials(5, 12, 12, 0, 0.5)
    assert whole(now, small) == 12, "a step that is over gets no more"


def test_what_is_judged_early_says_of_how_many() -> None:
    (told,) = found(TABLE[5], state(TABLE[5], 12))
    assert told.cause.startswith(
        "12 of 12 trials of step 8 that have ended, of 64 in all, ended with an exception"
    )
    (told,) = found(TABLE[0], state(TABLE[0], 58))
    assert "that were sampled in 58 of 64 trials of step 8" in told.cause
    (told,) = found(TABLE[0], state(TABLE[0], 64))
    assert "that were sampled in 64 trials of step 8" in told.cause
