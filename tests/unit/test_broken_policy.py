"""A policy that one update has broken: told once, with its cause, and not by what follows from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kit.learning_histories import (
    CUT,
    DIFF,
    ENTROPY,
    KL,
    LEARNING,
    NORM,
    RATE,
    RECORDINGS,
    Run,
    Values,
    healthy,
    healthy_names,
    read,
)
from kit.live_logs import Followed
from kit.screens import snapshot, trial
from kit.symptoms import proof

from liverl.causes.catalogue import by_id
from liverl.diagnose.catalogue.broken_policy import FURTHER, broken_at
from liverl.diagnose.catalogue.learning import groups_equal, rewards_equal
from liverl.diagnose.catalogue.live_logs import MANY
from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.tracker import Resolved, RunContext, Window
from liverl.diagnose.training import judge_course
from liverl.model import StepMetrics, StepTrials, Symptom, TrialHead, TrialsStatus
from liverl.observe.metrics.recent import RecentSteps, StepCollector, of_steps

RECORDED = read(LEARNING / "update-too-large.jsonl")
BROKEN = "policy_broken"
ADVANTAGES = ("critic/advantages/max", "critic/advantages/min")
SPREAD = {"critic/score/mean": 0.4, "critic/score/max": 0.9, "critic/score/min": 0.1}


def looked(steps: tuple[StepMetrics, ...]) -> dict[int, set[str]]:
    """The alerts after each step, as a run sees them."""
    collector, found = StepCollector(), {}
    for step in steps:
        collector.add([step])
        found[step.step] = {one.id for one in judge_course(collector.recent())}
    return found


def history(rows: list[Values]) -> RecentSteps:
    return of_steps(StepMetrics(number, row) for number, row in enumerate(rows, 1))


def judged(rows: list[Values]) -> dict[str, Symptom]:
    return {one.id: one for one in judge_course(history(rows))}


def run(sound: int = 30, broken: int = 10, **changed: float) -> list[Values]:
    """A run that is broken by the update of step ``sound``; ``changed``: what is other than in such a run."""
    one = Run(3)
    bad = {"cut": 1.0, "length": 8192.0, "longest": 8192.0, "entropy": 0.01} | changed
    usual = [one.step(length=1500.0, longest=8192.0, entropy=0.4) for _ in range(sound)]
    return [*usual, *(one.step(**bad) for _ in range(broken))]


# --- the recorded run ---------------------------------------------------------------------------------------


def test_the_recorded_run_says_it_two_steps_later_and_nothing_else() -> None:
    found = looked(RECORDED)
    assert all(not found[step] for step in (1, 2, 3)), "nor a false cause while it is not sure"
    assert all(found[step] == {BROKEN} for step in range(2 + FURTHER, 11))
    (told,) = judge_course(of_steps(RECORDED))
    assert told.severity == "critical" and told.title == "the policy was broken by the update of step 1"
    assert "since step 2 100% of the replies end at their limit (2% before)" in told.cause
    assert "the mean reply has 512 tokens (11 before), the entropy is 0.007 (0.12 before)" in told.cause
    assert "lower algorithm.learning_rate, which was 5 in that step (actor/lr)" in told.fix
    assert "1e-6" in told.fix and "no checkpoint was written before it" in told.fix
    assert proof(told)[:2] == ("step 1: actor/lr 5", "step 2: response_length/clip_ratio 1")


def test_a_user_who_mutes_it_is_told_what_follows_from_it() -> None:
    recent = of_steps(RECORDED)
    now = snapshot(metrics=recent.steps[-1], step=10, trials=TrialsStatus())
    seen = Window(now, None, RunContext(recent=recent, mute=(BROKEN,)))
    told = {one.id for rule in FILE_RULES for one in rule.look(seen) if isinstance(one, Symptom)}
    assert {"rollout_mismatch", "gradient_zero"} <= told


def test_calls_that_a_parser_cannot_read_follow_from_it(tmp_path: Path) -> None:
    logs = Followed(tmp_path)
    logs.write("r0", *[by_id()["vllm-tool-calls-unreadable"].fires] * MANY)
    logs.look()
    assert set(logs.symptoms()) == {"log:vllm-tool-calls-unreadable:r0"}
    assert logs.symptoms(recent=of_steps(RECORDED)) == {}


# --- later in a run, and its limits -------------------------------------------------------------------------


def test_later_in_a_run_it_names_the_checkpoint_to_go_back_to() -> None:
    rows = run(300, 20)
    found = looked(tuple(StepMetrics(number, row) for number, row in enumerate(rows, 1)))
    assert min(step for step, alerts in found.items() if BROKEN in alerts) == 301 + FURTHER
    assert all(alerts <= {BROKEN} for alerts in found.values())
    told = judged(rows)[BROKEN]
    assert told.title.endswith("of step 300") and "a checkpoint of step 299 or earlier" in told.fix
    assert "was 1e-06 in that step" in told.fix and "grad_clip" in told.fix, "the rate is not to blame"


def test_it_stands_while_the_run_goes_on_broken() -> None:
    """Of steps long ago only means are known, in one of which the update hides."""
    rows = run(21, 400)
    for end in range(40, len(rows), 20):
        found = judged(rows[:end])
        assert found.keys() == {BROKEN}, end
        exact = found[BROKEN].title == "the policy was broken by the update of step 21"
        assert exact or (
            end > 120 and re.search(r"between steps (1\d|2[01]) and [23]\d$", found[BROKEN].title)
        )


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, True),
        ({"entropy": 0.04}, True),
        ({"entropy": 0.041, "cut": 0.02}, False),  # long replies, and nothing else
        ({"entropy": 0.4}, False),  # as where all tools fail: the replies alone do not say it
        ({"entropy": 0.3, "length": 3000.0}, False),
        ({"cut": 0.5, "length": 3000.0, "entropy": 0.001}, False),  # the entropy alone
        ({"cut": 0.02, "length": 20_000.0, "longest": 8192.0, "entropy": 5.0}, True),  # at random
        ({"cut": 0.9}, True),
        ({"cut": 0.89, "length": 3000.0}, False),
        ({"longest": 16384.0, "length": 16384.0}, False),  # the limit was raised between two attempts
        ({"cut": 1.0, "length": 1024.0, "longest": 1024.0}, False),  # and lowered
        ({"prompt_length/mean": 9000.0}, False),  # other tasks
    ],
)
def test_two_signs_are_asked_for(changed: dict[str, float], told: bool) -> None:
    prompt = changed.pop("prompt_length/mean", 300.0)
    rows = run(30, 10, **changed)
    rows = [row | {"prompt_length/mean": prompt if n >= 30 else 300.0} for n, row in enumerate(rows)]
    assert (BROKEN in judged(rows)) == told


def test_it_must_hold_for_two_more_steps_and_still_hold() -> None:
    rows = run(30, 3)
    assert BROKEN not in judged(rows[:-1]) and BROKEN in judged(rows)
    again = [Run(4).step(length=1500.0, longest=8192.0, entropy=0.4)]
    assert BROKEN not in judged(rows + again), "it has recovered"
    assert BROKEN not in judged([*rows[:-2], *again, *rows[-2:]]), "one step is no break"


def test_without_an_entropy_the_replies_say_it() -> None:
    rows = [{key: value for key, value in row.items() if key != ENTROPY} for row in run()]
    assert BROKEN in judged(rows)
    assert BROKEN not in judged([{k: v for k, v in row.items() if k != CUT} for row in rows])


def test_a_change_over_several_steps_is_not_abrupt() -> None:
    one = Run(5)
    slow = [one.step(length=2000.0 * 1.3**n, entropy=0.4 / 1.5**n, cut=min(1.0, n / 8)) for n in range(12)]
    assert broken_at(history([*(one.step(entropy=0.4) for _ in range(10)), *slow])) is None


@pytest.mark.parametrize("name", [name for name, _ in healthy_names()])
def test_no_healthy_run_has_one_nor_is_one_suspected(name: str) -> None:
    collector = StepCollector()
    for step in next(one.steps for one in healthy() if one.name == name):
        collector.add([step])
        assert broken_at(collector.recent(), 0) is None, step.step


def test_no_recording_of_a_trainer_has_one() -> None:
    judged = 0
    for path in sorted([*RECORDINGS.rglob("*.log"), *LEARNING.glob("*.log")]):
        steps = read(path)
        judged += bool(steps)
        for end in range(1, len(steps) + 1):
            assert broken_at(of_steps(steps[:end])) is None, (path.name, end)
    assert judged >= 8


# --- engine and trainer: a difference that begins at once ---------------------------------------------------


def differing(values: list[float], key: str = DIFF) -> Symptom:
    return judged([{key: value} for value in values])["rollout_mismatch"]


def test_a_difference_that_begins_at_once_is_not_laid_to_data_types() -> None:
    told = differing([0.002] * 9 + [0.03] * 3)
    assert told.title == "engine and trainer disagree since step 10"
    assert told.cause.endswith("up to step 9 they agreed")
    assert told.fix.startswith("find what changed at step 10: replicas or a trainer that were started again")
    assert "Data types and the chat template are not the likely cause" in told.fix
    assert differing([3e-4] * 9 + [1.0] * 3, KL).title == told.title


@pytest.mark.parametrize(
    "values",
    [
        [0.03] * 12,  # from the first step on
        [0.009] * 9 + [0.012] * 3,  # it has grown slowly
        [0.002] * 4 + [0.03] + [0.002] * 6 + [0.03],  # an outlier long ago
    ],
)
def test_other_differences_are_compared_as_before(values: list[float]) -> None:
    told = differing(values)
    assert told.title == "engine and trainer disagree on probabilities"
    assert "compare the data types of engine and trainer" in told.fix


# --- a gradient of 0, and groups without a difference -------------------------------------------------------


def zero(advantage: float | None, heads: tuple[TrialHead, ...] = ()) -> dict[str, Symptom]:
    more = {} if advantage is None else dict(zip(ADVANTAGES, (advantage, -advantage), strict=True))
    rows = [{NORM: 0.0, RATE: 1e-6, **SPREAD, **more}] * 3
    recent = history(rows)
    steps = (StepTrials(3, len(heads), len(heads), 0, 0.5, calling=0),) if heads else ()
    trials = TrialsStatus(newest=heads, steps=steps)
    return {one.id: one for one in judge_course(recent, trials=trials)}


def grouped(*rewards: tuple[str, float], **more: Any) -> tuple[TrialHead, ...]:
    return tuple(trial(n, 3, group=name, reward=reward, **more) for n, (name, reward) in enumerate(rewards))


SAME = grouped(("a", 0.2), ("a", 0.2), ("b", 0.6), ("b", 0.6))
DIFFER = grouped(("a", 0.2), ("a", 0.3), ("b", 0.6), ("b", 0.6))


@pytest.mark.parametrize(
    ("advantage", "heads", "says"),
    [
        (0.0, (), "within each group of trials all rewards are the same"),
        (1.5, (), "they differ within groups of trials, too"),
        (None, SAME, "within each group of trials all rewards are the same"),
        (None, DIFFER, "they differ within groups of trials, too"),
        (None, (), "within each group of trials all rewards may be the same"),
    ],
)
def test_a_gradient_of_zero_says_which_cause_it_is_where_that_is_known(
    advantage: float | None, heads: tuple[TrialHead, ...], says: str
) -> None:
    told = zero(advantage, heads)
    assert says in told["gradient_zero"].cause
    assert "groups_equal" not in told, "one alert says it"
    assert ("may be" in told["gradient_zero"].cause) == (advantage is None and not heads)


def one_step(heads: tuple[TrialHead, ...], total: int, **metrics: float) -> Window:
    step = StepTrials(3, total, total, 0, 0.5, calling=0)
    now = snapshot(metrics=StepMetrics(3, metrics), step=3, trials=TrialsStatus(newest=heads, steps=(step,)))
    return Window(now, None, RunContext(recent=of_steps([StepMetrics(3, metrics)])))


def test_trials_without_tools_are_judged_as_all_others() -> None:
    """Where no trial is offered a tool, none calls one and none is counted as without a call: that was taken for a
    step whose trials call no tool, and nothing was said of its rewards."""
    (told,) = groups_equal(one_step(SAME, 4))
    assert isinstance(told, Symptom)
    assert "the same reward in each of the 2 tasks of step 3 (0.2 to 0.6)" in told.cause
    same = grouped(*(("a", 0.0),) * 2, *(("b", 0.0),) * 2)
    step = StepTrials(3, 4, 4, 0, 0.0, calling=0)
    now = snapshot(step=3, trials=TrialsStatus(newest=same, steps=(step,)))
    assert [type(one) for one in rewards_equal(Window(now, None, RunContext()))] == [Symptom]


def test_a_step_with_more_trials_than_are_listed_is_judged_by_its_advantages() -> None:
    zeros = dict.fromkeys(ADVANTAGES, 0.0)
    (told,) = groups_equal(one_step(DIFFER, 512, **SPREAD, **zeros))
    assert isinstance(told, Symptom) and told.title == "no group of step 3 has different rewards"
    assert list(groups_equal(one_step(DIFFER, 512, **SPREAD))) == []
    assert list(groups_equal(one_step(DIFFER, 512, **SPREAD, **{**zeros, ADVANTAGES[0]: 1.0}))) == []
    same = {**SPREAD, "critic/score/max": 0.1}
    assert list(groups_equal(one_step(DIFFER, 512, **same, **zeros))) == [], "rewards_equal"
    assert Resolved("groups_equal") not in groups_equal(one_step(SAME, 4))
