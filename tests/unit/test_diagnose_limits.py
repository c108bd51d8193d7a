"""Each rule at its limits: the value just below, at and just above; and what each of its parts says."""

from __future__ import annotations

from typing import Any

import pytest
from kit.screens import NOW, gpu, replica, service, snapshot, trial
from kit.symptoms import lasting, proof
from msgspec.structs import replace

from liverl.diagnose.catalogue.learning import rewards_equal
from liverl.diagnose.catalogue.rules import FILE_RULES, RULES
from liverl.diagnose.catalogue.trial_evidence import by_reason
from liverl.diagnose.tracker import SHOWN, Diagnosis, Resolved, Rule, RunContext, Window
from liverl.model import (
    Cause,
    ReplicaSet,
    Snapshot,
    StepMetrics,
    StepTrials,
    Symptom,
    TrialsStatus,
)
from liverl.observe.volumes import RUN_DIRECTORY, Volume

A, B = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
MIB, GIB = 1 << 20, 1 << 30


def _look(rule: str, now: Snapshot, before: Snapshot | None, beside: RunContext) -> list[Symptom | Resolved]:
    (look,) = [r.look for r in RULES if r.look.__name__ == rule]
    return list(look(Window(now, before, beside)))


def fired(rule: str, now: Snapshot, before: Snapshot | None = None, **beside: Any) -> list[Symptom]:
    return [s for s in _look(rule, now, before, lasting(now, **beside)) if isinstance(s, Symptom)]


def one(rule: str, now: Snapshot, before: Snapshot | None = None, **beside: Any) -> Symptom:
    (symptom,) = fired(rule, now, before, **beside)
    return symptom


def over(rule: str, now: Snapshot, before: Snapshot | None = None) -> list[str]:
    return [s.id for s in _look(rule, now, before, RunContext()) if isinstance(s, Resolved)]


def with_replicas(*items: Any, **fields: Any) -> Snapshot:
    return snapshot(replicas=ReplicaSet(len(items), len(items), len(items), items), **fields)


def with_trials(*steps: StepTrials, newest: tuple[Any, ...] = (), **fields: Any) -> Snapshot:
    return snapshot(trials=TrialsStatus(newest=newest, steps=steps), **fields)


def with_proxy(**fields: Any) -> Snapshot:
    return snapshot(proxy=replace(snapshot().proxy, **fields))


# --- trials that call no tool ---------------------------------------------------------------------------


def trials_of(number: int, finished: int, zero: int, calling: int | None = None) -> StepTrials:
    return StepTrials(
        number, 16, finished, zero, 0.5, calling=finished - zero if calling is None else calling
    )


@pytest.mark.parametrize(
    ("failures", "finished", "severity"),
    [
        ({}, 16, None),
        ({"KeyError": 3}, 3, None),  # fewer than four that have ended tell nothing
        ({"KeyError": 1}, 16, "info"),
        ({"KeyError": 2}, 16, "warning"),  # a tenth
        ({"KeyError": 15}, 16, "warning"),
        ({"KeyError": 4}, 4, "warning"),  # those that fail at once end first
        ({"KeyError": 12, "Late": 4}, 16, "critical"),
    ],
)
def test_trials_that_fail_are_counted(failures: dict[str, int], finished: int, severity: str | None) -> None:
    step = replace(trials_of(8, finished, 0), failures=failures)
    found = fired("trials_failed", with_trials(trials_of(9, 0, 0), step))
    assert [symptom.severity for symptom in found] == ([] if severity is None else [severity])


def test_a_failure_is_told_by_its_most_frequent_words() -> None:
    step = replace(trials_of(8, 16, 0), failures={"KeyError": 5, "Late": 2})
    words = ["KeyError: a", "KeyError: b", "KeyError: b", "Late: c", "Late: c", "Late: c"]
    failed = tuple(trial(i, step=8, failure=word) for i, word in enumerate(words))
    other = trial(9, step=7, failure="Late: c")
    found = one("trials_failed", with_trials(step, newest=(other, *failed)))
    assert found.title == "trials fail: KeyError"
    assert found.cause.startswith(
        "7 of 16 trials of step 8 ended with an exception, 5 of them with KeyError, most often KeyError: b"
    )
    assert found.cause.endswith("; 2 failed for other reasons")
    assert proof(found) == (
        f"{failed[3].path}: Late: c (3 trials)",
        f"{failed[1].path}: KeyError: b (2 trials)",
        f"{failed[0].path}: KeyError: a",
    )
    alike = one("trials_failed", with_trials(step, newest=(other, *failed[1:])))
    assert "5 of them with KeyError: b; 2" in alike.cause, "all that are known have these words"


def test_failures_of_steps_long_ago_are_no_symptom() -> None:
    old = replace(trials_of(6, 16, 0), failures={"KeyError": 5})
    assert fired("trials_failed", with_trials(trials_of(8, 16, 0), trials_of(7, 16, 0), old)) == []


UNTRAINED: list[tuple[dict[str, int], int, str | None]] = [
    ({}, 16, None),
    ({"done trained": 14, "timeout zeroed": 1}, 16, None),
    ({"done trained": 18, "timeout zeroed": 2}, 20, None),  # a tenth is not more than a tenth
    ({"done trained": 17, "timeout zeroed": 2, "exit masked": 1}, 20, "warning"),
    ({"limit trained": 16}, 16, None),
    ({"limit zeroed": 2, "done trained": 14}, 16, "warning"),
    ({"infrastructure dropped": 2, "done trained": 14}, 16, "warning"),
    ({"infrastructure masked": 16}, 16, "critical"),
    ({"exit masked": 3}, 3, None),  # too few to judge
]


@pytest.mark.parametrize(("endings", "finished", "severity"), UNTRAINED)
def test_trials_that_are_not_trained_with_their_reward(
    endings: dict[str, int], finished: int, severity: str | None
) -> None:
    step = replace(trials_of(8, finished, 0), total=finished, endings=endings)
    found = fired("trials_not_trained", with_trials(trials_of(9, 0, 0), step))
    assert [symptom.severity for symptom in found] == ([] if severity is None else [severity])


def test_why_trials_are_not_trained_is_told_with_numbers() -> None:
    endings = {
        "timeout zeroed": 3,
        "exit masked": 2,
        "infrastructure masked": 2,
        "limit dropped": 1,
        "done trained": 8,
    }
    step = replace(trials_of(8, 16, 0), endings=endings)
    heads = tuple(trial(i, step=8, cause="exit", outcome="masked") for i in range(2))
    trained = trial(5, step=8, cause="limit", outcome="trained")
    found = one(
        "trials_not_trained", with_trials(step, newest=(trained, *heads, trial(9, step=7, outcome="masked")))
    )
    assert found.cause == (
        "8 of 16 trials of step 8 did not end well (the agent ran out of time in 3, the agent or its reward failed in "
        "2, the infrastructure failed in 2, the agent reached a limit in 1): 4 not trained, 1 not trained, reward "
        "not counted, 3 trained with reward 0"
    )
    assert proof(found) == (f"{heads[0].path} (2 trials)",)


def test_trials_that_ended_alike_are_one_line_of_evidence() -> None:
    """Whatever their programs printed last, and however long it is."""
    exits = [
        trial(n, step=8, failure=f"AgentFailedError: the agent exited with 3: {n} apples") for n in range(9)
    ]
    others = [trial(10, step=8, failure="RewardError"), trial(11, step=8, ended_by="exit"), trial(12, step=8)]
    long = [trial(13, step=8, failure=f"ValueError: {'x' * 300}")]
    told = [one.text for one in by_reason([*others, *exits, *long])]
    assert told == [
        f"{exits[0].path}: AgentFailedError: the agent exited with 3 (9 trials)",
        f"{others[0].path}: RewardError",
        f"{others[1].path}: exit",
        others[2].path,
        f"{long[0].path}: ValueError: {'x' * 88}…",
    ]
    many = [trial(n, step=8, failure=f"Error{n}: x") for n in range(20)]
    assert [one.text for one in by_reason(many)] == [f"{head.path}: {head.failure}" for head in many[:SHOWN]]


def test_an_older_step_is_told_until_the_next_but_one_begins() -> None:
    bad = replace(trials_of(7, 16, 0), endings={"exit masked": 9})
    good = replace(trials_of(8, 16, 0), endings={"exit masked": 1})
    assert len(fired("trials_not_trained", with_trials(good, bad))) == 1
    assert fired("trials_not_trained", with_trials(trials_of(9, 0, 0), good, bad)) == []


def past_the_proxy(**fields: Any) -> list[str]:
    quiet = replace(snapshot().proxy, requests=0)
    values: dict[str, Any] = {"topology": "verl", "step": 1, "proxy": quiet, "trials": TrialsStatus()}
    found = fired("trained_past_the_proxy", snapshot(**{**values, **fields}))
    return [symptom.severity for symptom in found]


def test_training_past_the_proxy_is_told_after_the_first_step() -> None:
    assert past_the_proxy() == ["info"]
    assert past_the_proxy(step=None) == past_the_proxy(step=0) == []
    assert past_the_proxy(topology="managed") == past_the_proxy(topology="in_process") == []
    assert past_the_proxy(proxy=snapshot().proxy) == [], "it has carried requests"
    assert past_the_proxy(trials=TrialsStatus(total=1)) == []
    assert past_the_proxy(services=()) == [], "a launch script starts a proxy of its own"


def test_trials_in_verls_dump_only_were_trained_past_the_proxy_once() -> None:
    every = TrialsStatus(total=8, finished=8, dumped=8)
    some = TrialsStatus(total=12, finished=12, dumped=8)
    assert past_the_proxy(trials=every) == past_the_proxy(trials=every, step=None) == ["info"]
    values: dict[str, Any] = {"topology": "verl", "step": 1}  # other trials go through the proxy
    (found,) = fired("trained_past_the_proxy", snapshot(trials=some, **values))
    assert found.title == "verl's own agent loops run some of the trials"
    assert found.cause.startswith("the proxy carried no request of 8 of 12 trials: single_turn_agent and")
    (found,) = fired("trained_past_the_proxy", snapshot(trials=every, **values))
    assert found.title == "verl's own agent loops run the trials"
    assert (
        past_the_proxy(trials=every, topology="in_process") == past_the_proxy(trials=every, services=()) == []
    )


def test_trials_in_verls_dump_only_say_nothing_of_tool_calls() -> None:
    quiet = replace(trials_of(1, 16, 0), dumped=16, calling=0)
    assert fired("zero_tool_calls", with_trials(quiet)) == []
    few = replace(trials_of(1, 16, 3), dumped=13, calling=0)
    assert fired("zero_tool_calls", with_trials(few)) == [], "three trials tell nothing"
    enough = replace(trials_of(1, 16, 4), dumped=12, calling=0)
    assert [s.severity for s in fired("zero_tool_calls", with_trials(enough))] == ["critical"]
    assert (
        fired("agents_silent", with_trials(quiet)) == [] and fired("trials_failed", with_trials(quiet)) == []
    )


@pytest.mark.parametrize(
    ("finished", "zero", "calling", "severity"),
    [
        (3, 3, 0, None),  # fewer than four tell nothing
        (4, 4, 0, "critical"),
        (0, 3, 0, None),
        (0, 4, 0, "critical"),
        (4, 1, 3, None),
        (4, 2, 2, "warning"),  # from half of them on
        (5, 2, 3, None),
        (5, 3, 2, "warning"),
        (16, 15, 1, "warning"),
        (16, 16, 0, "critical"),
        (16, 16, 1, "warning"),  # one more, still at work, has called one
        (4, 0, 4, None),
        (4, 0, 0, None),  # they ended without a turn
    ],
)
def test_zero_tool_calls_from_half_of_four(
    finished: int, zero: int, calling: int, severity: str | None
) -> None:
    found = fired("zero_tool_calls", with_trials(trials_of(8, finished, zero, calling)))
    assert [s.severity for s in found] == ([] if severity is None else [severity])
    for s in found:
        who = f"all {zero}" if severity == "critical" else f"{zero} of {zero + calling}"
        assert s.cause.startswith(f"{who} trials of step 8 made no tool call: ")


def test_zero_tool_calls_names_flagged_trials_of_that_step_only() -> None:
    flag = ("zero_tool_calls",)
    flagged = [trial(n, step=8, flags=flag, updated_at=NOW - 100 + n) for n in range(10)]
    others = [trial(20, step=7, flags=flag, updated_at=NOW - 900), trial(21, step=8, updated_at=NOW - 900)]
    found = one("zero_tool_calls", with_trials(trials_of(8, 16, 16), newest=(*others, *flagged)))
    assert proof(found) == tuple(f"trials/step_0008/trial-{n:03}" for n in range(8))
    assert found.since == NOW - 100
    assert one("zero_tool_calls", with_trials(trials_of(8, 16, 16))).since is None


def test_zero_tool_calls_does_not_judge_the_steps_of_an_earlier_attempt() -> None:
    flag = ("zero_tool_calls",)
    old = [trial(n, step=7, flags=flag, updated_at=NOW - 130) for n in range(4)]
    began = NOW - 120  # of the attempt
    seen = with_trials(trials_of(7, 16, 16), newest=tuple(old), started_at=began, attempt=2)
    assert fired("zero_tool_calls", seen) == []
    assert fired("zero_tool_calls", with_trials(trials_of(7, 16, 16), newest=tuple(old), started_at=began))
    new = trial(5, step=7, flags=flag, updated_at=NOW - 110)
    seen = with_trials(trials_of(7, 16, 16), newest=(new, *old), started_at=began, attempt=2)
    assert len(fired("zero_tool_calls", seen)) == 1, "the step was begun again"


# --- a step without a signal ----------------------------------------------------------------------------


def rewarded(*rewards: float | None, mean: float | None, zero: int = 0, **fields: Any) -> Snapshot:
    heads = tuple(trial(n, step=7, reward=r) for n, r in enumerate(rewards))
    count = len(rewards)
    steps = fields.pop("steps", (StepTrials(7, count, count, zero, mean, calling=count - zero),))
    return with_trials(*steps, newest=heads, **fields)


@pytest.mark.parametrize(("count", "fires"), [(3, False), (4, True), (5, True)])
def test_rewards_equal_needs_four_trials(count: int, fires: bool) -> None:
    assert bool(fired("rewards_equal", rewarded(*[0.0] * count, mean=0.0))) is fires


@pytest.mark.parametrize(("zero", "fires"), [(0, True), (1, True), (2, False), (3, False)])
def test_rewards_equal_gives_way_where_half_called_no_tool(zero: int, fires: bool) -> None:
    assert bool(fired("rewards_equal", rewarded(0.0, 0.0, 0.0, 0.0, mean=0.0, zero=zero))) is fires


@pytest.mark.parametrize(
    ("reward", "severity"),
    [(-1.0, "warning"), (0.0, "warning"), (0.001, "info"), (1.0, "info"), (3.0, "info")],
)
def test_equal_rewards_are_bad_news_up_to_zero_and_good_news_from_one(reward: float, severity: str) -> None:
    found = one("rewards_equal", rewarded(*[reward] * 4, mean=reward))
    assert found.severity == severity
    assert ("the verifier of a trial" in found.fix) is (severity == "warning")
    assert ("is solved" in found.title) is ("nothing is broken" in found.fix) is (reward >= 1)
    # All tasks look solved, too, where the verifier cannot fail or the policy has found its gap.
    assert ("check that the verifier can fail" in found.fix) is (reward >= 1)
    assert ("no learning signal" in found.title) is (reward < 1)
    assert ("the reward function gives both" in found.fix) is (reward == 0.001)
    assert ("harder" in found.fix) is (severity == "info")
    assert found.cause.startswith(f"every trial of step 7 has the reward {reward:g}: ")


def test_of_a_step_with_trials_that_are_not_trained_only_those_that_count_are_meant() -> None:
    """18 of 64 in a run whose judge had gone away."""
    known = rewarded(0.0, 0.0, 0.0, 0.0, None, None, mean=0.0)
    lost = tuple(
        replace(head, outcome="masked") if head.reward is None else head for head in known.trials.newest
    )
    found = one("rewards_equal", replace(known, trials=replace(known.trials, newest=lost)))
    assert found.cause.startswith(
        "4 of 6 trials of step 7 have a reward that counts, and all of these have 0: "
    )
    assert found.fix.startswith("look first why the other 2 trials have none; then check the tool results")
    assert len(found.evidence) == 4 and all("reward 0" in proof.text for proof in found.evidence)


def test_the_mean_is_that_of_all_trials_of_the_step() -> None:
    for mean, fires in ((None, False), (0.9e-9, True), (1e-9, False), (-1e-9, False), (1.0, False)):
        assert bool(fired("rewards_equal", rewarded(*[0.0] * 4, mean=mean))) is fires, mean


def test_rewards_that_are_not_known_are_not_compared() -> None:
    known = (0.0, 0.0, 0.0, None, None)
    assert fired("rewards_equal", rewarded(*known, mean=0.0)) == [], "three tell nothing"
    assert fired("rewards_equal", rewarded(0.0, *known, mean=0.0)) != []
    assert fired("rewards_equal", rewarded(0.0, 0.0, 0.0, 0.0, 0.5, mean=0.0)) == []


def test_equal_rewards_are_shown_from_trials_of_that_step() -> None:
    of_step = [trial(n, step=6, reward=0.5, updated_at=NOW - 50 + n) for n in range(9)]
    other = trial(30, step=7, reward=0.25, updated_at=NOW)
    steps = (StepTrials(7, 16, 1, 0, 0.25, calling=1), StepTrials(6, 9, 9, 0, 0.5, calling=9))
    found = one("rewards_equal", with_trials(*steps, newest=(other, *of_step), step=6))
    assert proof(found) == tuple(f"trials/step_0006/trial-{n:03}: reward 0.5" for n in range(8))
    assert found.since == NOW - 42, "when the last of them had ended"
    assert "step 6" in found.cause


@pytest.mark.parametrize(
    ("trained", "finished", "fires"),
    [
        (None, 4, False),  # nothing says that the newest step is over
        (6, 4, False),
        (7, 4, True),
        (8, 4, True),
        (7, 3, False),
    ],
)
def test_the_newest_step_counts_once_it_is_trained(trained: int | None, finished: int, fires: bool) -> None:
    steps = (StepTrials(7, 4, finished, 0, 0.0, calling=4),)
    now = rewarded(0.0, 0.0, 0.0, 0.0, mean=0.0, steps=steps, step=trained)
    assert bool(fired("rewards_equal", now)) is fires


@pytest.mark.parametrize("looks", [(14, 15, 16, 17), (14, 16, 17), (14, 17), (13, 14, 15, 17)])
def test_the_step_that_is_named_first_does_not_depend_on_when_a_look_is(looks: tuple[int, ...]) -> None:
    """Of two runs with the same rewards one said that step 15 is solved, and the other that step 17 is."""
    mean = {13: 0.75, 14: 0.75, 15: 1.0, 16: 0.75, 17: 1.0}

    def at(newest: int) -> Snapshot:
        done = range(newest, 12, -1)
        heads = [
            trial(n, step=step, reward=1.0 if n or mean[step] == 1.0 else 0.0, updated_at=NOW)
            for step in done
            for n in range(4)
        ]
        return with_trials(
            *(StepTrials(s, 4, 4, 0, mean[s], calling=4) for s in done), newest=heads, step=newest
        )

    diagnosis = Diagnosis((Rule(rewards_equal),))
    news = [one for step in looks for one in diagnosis.update(replace(at(step), at=NOW + step), RunContext())]
    assert [one.symptom.title for one in news] == ["step 15 is solved: all rewards are 1"]


def test_an_older_step_is_over_when_a_newer_one_has_begun() -> None:
    steps = (StepTrials(8, 4, 0, 0, None, calling=0), StepTrials(7, 4, 4, 0, 0.0, calling=4))
    assert fired("rewards_equal", rewarded(*[0.0] * 4, mean=0.0, steps=steps, step=None)) != []
    assert fired("rewards_equal", with_trials()) == []


# --- what the trainer measures --------------------------------------------------------------------------

DIFF, PEARSON, KL = (
    "training/rollout_probs_diff_mean",
    "training/rollout_actor_probs_pearson_corr",
    "rollout_corr/kl",
)


def measured(step: int = 7, total: int | None = 20, **values: float) -> Snapshot:
    names = {"diff": DIFF, "pearson": PEARSON, "kl": KL}
    return snapshot(
        metrics=StepMetrics(step, {names.get(k, k): v for k, v in values.items()}), total_steps=total
    )


@pytest.mark.parametrize(
    ("values", "severity", "evidence"),
    [
        ({"diff": 0.01}, None, ()),
        ({"diff": 0.01001}, "warning", (f"{DIFF} 0.01001, above 0.01",)),
        ({"pearson": 0.99}, None, ()),
        ({"pearson": 0.9899}, "warning", (f"{PEARSON} 0.9899, below 0.99",)),
        ({"pearson": 0.9}, "warning", (f"{PEARSON} 0.9, below 0.99",)),
        ({"pearson": 0.8999}, "critical", (f"{PEARSON} 0.8999, below 0.99",)),
        ({"kl": 0.01}, None, ()),
        ({"kl": -0.01}, None, ()),
        ({"kl": 0.0101}, "warning", ("rollout_corr/kl 0.0101, above 0.01",)),
        ({"kl": -0.0101}, "warning", ("rollout_corr/kl -0.0101, above 0.01",)),
        # a correlation means something from a mean difference of 0.002 on
        ({"diff": 0.0019, "pearson": 0.5}, None, ()),
        ({"diff": 0.002, "pearson": 0.5}, "critical", (f"{PEARSON} 0.5, below 0.99",)),
        ({"diff": 0.0019, "pearson": 0.5, "kl": 0.101}, "warning", ("rollout_corr/kl 0.101, above 0.1",)),
        ({"diff": 0.0019, "pearson": 0.5, "kl": 0.1}, None, ()),
        ({"diff": 0.002, "pearson": 0.999, "kl": 0.011}, "warning", ("rollout_corr/kl 0.011, above 0.01",)),
        (
            {"diff": 0.123456, "pearson": 0.95, "kl": 0.02},
            "warning",
            (f"{DIFF} 0.1235, above 0.01", f"{PEARSON} 0.95, below 0.99", "rollout_corr/kl 0.02, above 0.01"),
        ),
        ({}, None, ()),
    ],
)
def test_rollout_mismatch_at_its_limits(
    values: dict[str, float], severity: str | None, evidence: tuple[str, ...]
) -> None:
    found = fired("rollout_mismatch", measured(**values))
    assert [s.severity for s in found] == ([] if severity is None else [severity])
    for s in found:
        assert proof(s) == evidence
        assert s.cause.startswith(f"in step 7 {evidence[0]}: ")


def test_rules_of_metrics_wait_for_metrics() -> None:
    for rule in ("rollout_mismatch", "learning_rate_zero", "trajectories_dropped"):
        assert fired(rule, snapshot(metrics=None)) == []


@pytest.mark.parametrize(
    ("step", "total", "fires"),
    [(1, 20, False), (2, 20, True), (19, 20, True), (20, 20, False), (21, 20, False), (7, None, False)],
)
def test_a_learning_rate_of_zero_between_the_first_step_and_the_last(
    step: int, total: int | None, fires: bool
) -> None:
    found = fired("learning_rate_zero", measured(step, total, **{"actor/lr": 0.0}))
    assert bool(found) is fires
    for s in found:
        assert s.cause == f"the learning rate (actor/lr) was 0 in step {step}: updates change no weights"
        assert proof(s) == (f"step {step}: actor/lr 0",) and s.severity == "critical"
    assert fired("learning_rate_zero", measured(step, total, **{"actor/lr": 1e-12})) == []
    assert fired("learning_rate_zero", measured(step, total)) == [], "it is not known"


def test_trajectories_dropped_above_a_tenth() -> None:
    ratio = "trajectory_filter/invalid_ratio"
    assert fired("trajectories_dropped", measured(**{ratio: 0.1})) == []
    found = one("trajectories_dropped", measured(**{ratio: 0.12345}))
    assert proof(found) == tuple(f"step {step}: {ratio} 0.1235" for step in (7, 6, 5))
    assert found.cause.startswith("12% of the trajectories of step 7 ") and found.severity == "warning"
    assert one("trajectories_dropped", measured(**{ratio: 0.1001})).id == "trajectories_dropped"
    reasons = {f"trajectory_filter/reason/r{n}": float(n) for n in range(1, 10)}
    found = one("trajectories_dropped", measured(**{ratio: 1.0}, **reasons))
    assert proof(found) == tuple(f"r{n}: {n}" for n in range(9, 1, -1)), "the eight largest"


# --- agents that send nothing ---------------------------------------------------------------------------


def silent(
    total: int = 16,
    finished: int = 8,
    running: int = 8,
    replicas: tuple[Any, ...] | None = None,
    **fields: Any,
) -> Snapshot:
    heads = tuple(trial(n, step=8, state="running", updated_at=NOW) for n in range(running))
    step = StepTrials(8, total, finished, 0, 0.5)
    idle = (replica(0, running=0.0, waiting=0.0),) if replicas is None else replicas
    values = {"step": 7, "trials": TrialsStatus(newest=heads, steps=(step,))} | fields
    return with_replicas(*idle, **values)


def is_silent(now: Snapshot) -> bool:
    return bool(fired("agents_silent", now, now))


@pytest.mark.parametrize(
    ("total", "finished", "running", "fires"),
    [
        (16, 8, 3, False),  # fewer than four at work
        (16, 8, 4, True),
        (16, 12, 4, True),  # a quarter is left
        (16, 13, 4, False),
        (20, 16, 4, False),  # a fifth is: the long tail
        (4, 0, 4, True),
        (4, 1, 4, False),
        (8, 4, 9, True),
    ],
)
def test_agents_silent_from_a_quarter_and_four_trials_on(
    total: int, finished: int, running: int, fires: bool
) -> None:
    found = fired("agents_silent", *[silent(total, finished, running)] * 2)
    assert bool(found) is fires
    for s in found:
        left = min(running, total - finished)
        assert s.cause.startswith(
            f"{left} of {total} trials of step 8 are running, but none has sent a request, and 1 replicas"
        )


@pytest.mark.parametrize(("step", "fires"), [(None, True), (6, True), (7, True), (8, False), (9, False)])
def test_agents_silent_is_of_the_step_that_is_not_trained_yet(step: int | None, fires: bool) -> None:
    assert is_silent(silent(step=step)) is fires


def test_the_first_step_counts_and_what_is_before_it_does_not() -> None:
    def first(number: int) -> Snapshot:
        heads = tuple(trial(n, step=number, state="running", updated_at=NOW) for n in range(8))
        steps = (StepTrials(number, 8, 0, 0, None),)
        return silent(step=None, trials=TrialsStatus(newest=heads, steps=steps))

    assert is_silent(first(1)) and not is_silent(first(0))


@pytest.mark.parametrize(
    ("fields", "fires"),
    [
        ({"running": 0.0, "waiting": 0.0}, True),
        ({"running": 0.0, "waiting": None}, True),
        ({"running": None, "waiting": 0.0}, False),  # not known
        ({"running": 1.0, "waiting": 0.0}, False),
        ({"running": 0.0, "waiting": 1.0}, False),
        ({"running": 0.0, "activity": "asleep"}, False),
        ({"running": 0.0, "activity": "waking"}, False),
        ({"running": 0.0, "activity": "updating"}, False),
        ({"running": 0.0, "activity": "idle"}, True),
        ({"running": 0.0, "activity": "serving"}, True),
        ({"running": 0.0, "listed": False}, False),
        ({"running": 0.0, "state": "degraded"}, False),
    ],
)
def test_agents_silent_where_every_serving_replica_waits_for_work(
    fields: dict[str, Any], fires: bool
) -> None:
    state = fields.pop("state", "ready")
    only = replica(0, state, **({"listed": True} | fields))
    assert is_silent(silent(replicas=(only,))) is fires
    # one that is not the proxy's says nothing about the agents
    apart = replica(1, running=5.0, listed=False)
    assert is_silent(silent(replicas=(only, apart))) is fires
    idle = replica(2, running=0.0, waiting=0.0)
    serves = only.listed and state == "ready"
    assert is_silent(silent(replicas=(idle, only))) is (fires or not serves), "each of them must wait"


def test_agents_silent_while_the_proxy_counts_no_request() -> None:
    now = silent()
    assert is_silent(now)
    unknown = replace(now, proxy=replace(now.proxy, requests=None))
    assert not is_silent(unknown)
    for requests in (1030, 1032):
        before = replace(now, proxy=replace(now.proxy, requests=requests))
        assert fired("agents_silent", now, before) == []
    assert fired("agents_silent", now, None) == []
    assert not is_silent(replace(now, state="starting"))
    assert not is_silent(replace(now, trials=TrialsStatus()))


def test_agents_silent_looks_at_the_newest_step() -> None:
    now = silent()
    (newest,) = now.trials.steps
    over = StepTrials(7, 16, 16, 0, 0.5)
    assert is_silent(replace(now, trials=replace(now.trials, steps=(newest, over))))
    assert not is_silent(replace(now, trials=replace(now.trials, steps=(over, newest))))


def test_agents_silent_counts_trials_of_this_attempt_and_step() -> None:
    now = silent(running=0)

    def heads(**fields: Any) -> Snapshot:
        values = {"step": 8, "state": "running", "updated_at": NOW} | fields
        newest = tuple(trial(n, **values) for n in range(10))
        return replace(now, trials=replace(now.trials, newest=newest), started_at=NOW - 10)

    assert is_silent(heads(updated_at=NOW - 10)), "as old as the attempt"
    assert not is_silent(heads(updated_at=NOW - 11))
    assert not is_silent(heads(step=7)) and not is_silent(heads(state="finished"))
    found = one("agents_silent", heads(turns=3), heads())
    assert proof(found) == tuple(f"trials/step_0008/trial-{n:03}: 3 turns" for n in range(8))


# --- trials that do not begin ---------------------------------------------------------------------------


def updating(index: int, ago: float, **fields: Any) -> Any:
    return replica(index, **({"activity": "updating", "activity_since": NOW - ago, "running": 0.0} | fields))


@pytest.mark.parametrize(("ago", "fires"), [(179.75, False), (180.0, True), (180.25, True)])
def test_trials_do_not_begin_after_three_minutes(ago: float, fires: bool) -> None:
    found = fired("trials_do_not_begin", with_replicas(updating(0, 900.0), updating(1, ago)))
    assert bool(found) is fires
    for s in found:
        assert s.cause.startswith("for 180 s 2 replicas ") and s.since == NOW - ago
        assert proof(s) == ("r0: updating, 0 running", "r1: updating, 0 running")


def test_trials_do_not_begin_where_every_ready_replica_waits() -> None:
    waits = updating(0, 300.0, running=None)
    assert proof(one("trials_do_not_begin", with_replicas(waits))) == ("r0: updating, 0 running",)
    boots = updating(1, 1.0, state="starting")
    assert len(fired("trials_do_not_begin", with_replicas(waits, boots))) == 1
    for other in (
        updating(1, 300.0, activity="serving"),
        updating(1, 300.0, activity_since=None),
        replica(1),
    ):
        assert fired("trials_do_not_begin", with_replicas(waits, other)) == []
    assert fired("trials_do_not_begin", with_replicas(waits, state="starting")) == []
    assert fired("trials_do_not_begin", with_replicas(boots)) == []
    many = with_replicas(*(updating(n, 300.0) for n in range(9)))
    found = one("trials_do_not_begin", many)
    assert len(proof(found)) == 8 and "9 replicas" in found.cause


# --- requests that are not answered ---------------------------------------------------------------------

COUNTED = [("trials_unattributed", "unattributed"), ("model_unknown", "unknown"), ("key_refused", "refused")]


@pytest.mark.parametrize(("rule", "count"), COUNTED)
@pytest.mark.parametrize(("earlier", "fires"), [(1, True), (2, False), (3, False)])
def test_refused_requests_fire_while_more_of_them_come(
    rule: str, count: str, earlier: int, fires: bool
) -> None:
    found = fired(rule, with_proxy(**{count: 2}), with_proxy(**{count: earlier}))
    assert bool(found) is fires
    for s in found:
        assert s.cause.startswith("2 requests so far ")
    assert fired(rule, with_proxy(**{count: 2})) == [], "nothing to compare with"


def test_unattributed_requests_are_compared_within_one_proxy() -> None:
    before = with_proxy(unattributed=1, generation=1)
    assert fired("trials_unattributed", with_proxy(unattributed=2, generation=2), before) == []
    assert one("trials_unattributed", with_proxy(unattributed=2), before).severity == "info"


def test_unknown_models_are_named_as_far_as_they_are_known() -> None:
    def asked(*names: str, **beside: Any) -> Symptom:
        before = with_proxy(unknown=0)
        return one("model_unknown", with_proxy(unknown=9, unknown_models=names), before, **beside)

    assert asked().title == "agents request a model, which is not served"
    assert asked().cause.startswith("9 requests so far asked for a model and were rejected; ")
    assert asked().fix == "set the agents' model name to a model that is served"
    many = asked(*(f"m{n}" for n in range(9)), aliases=("policy",))
    assert many.title == "agents request 'm0', which is not served"
    assert "'m6', 'm7' and were rejected" in many.cause and "'m8'" not in many.cause
    assert many.fix == "set the agents' model name to one of: policy"
    assert proof(many) == ("proxy/litellm.yaml: model_list",)
    assert proof(one("model_unknown", with_proxy(unknown=1, config=None), with_proxy())) == ()


def test_a_refused_key_is_shown_with_the_address_that_was_asked() -> None:
    assert proof(one("key_refused", with_proxy(refused=1), with_proxy())) == ("http://127.0.0.1:8002",)
    assert proof(one("key_refused", with_proxy(refused=1, address=None), with_proxy())) == ()


# --- replicas -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "fires"), [("starting", True), ("running", True), ("stopping", False), ("done", False)]
)
def test_rules_of_services_that_should_be_up(state: str, fires: bool) -> None:
    idle = with_replicas(replica(0, running=0.0, idle_for=60.0), state=state)
    unlisted = with_replicas(replica(0, listed=False), state=state)
    cold = replace(with_proxy(cooled_down=(B,)), state=state)
    assert bool(fired("replica_idle", idle)) is fires
    assert bool(fired("replica_unlisted", unlisted)) is fires
    assert bool(fired("proxy_cooled_down", cold)) is fires


def test_an_idle_replica_is_over_when_it_works_or_goes() -> None:
    def ends(**fields: Any) -> bool:
        state = fields.pop("state", "ready")
        return over("replica_idle", with_replicas(replica(0, state, **fields))) == ["replica_idle:r0"]

    assert ends(running=1.0)
    assert ends(running=0.0, state="starting") and ends(running=None, state="stopped")
    assert not ends(running=0.0) and not ends(running=None) and not ends(running=0.0, state="degraded")
    one_left = with_replicas(replica(0, running=0.0))
    assert over("replica_idle", one_left, with_replicas(replica(0), replica(1))) == ["replica_idle:r1"]
    assert over("replica_idle", one_left, one_left) == []
    ended = with_replicas(replica(0, running=0.0, idle_for=60.0), state="stopping")
    assert over("replica_idle", ended) == [] and fired("replica_idle", ended) == []
    assert fired("replica_idle", with_replicas(replica(0, running=0.0, idle_for=0.0))) != []


def test_an_idle_replica_is_shown_beside_those_that_work() -> None:
    idle = replica(
        0, "degraded", running=None, waiting=None, idle_for=75.4, gpus=("GPU-00000001", "GPU-00000002")
    )
    busy = [replica(n, running=float(n), waiting=None) for n in range(1, 10)]
    queue = replica(10, running=0.0, waiting=2.0)
    rests = replica(11, running=0.0, waiting=0.0)
    gpus = (
        gpu(1, memory_used=None, utilization=0.125),
        gpu(2, memory_used=3 * GIB // 2, utilization=None),
        gpu(3),
    )
    found = one("replica_idle", with_replicas(idle, rests, queue, *busy, gpus=gpus))
    assert "for 75 s" in found.cause and found.since == NOW - 75.4
    assert proof(found) == (
        "r0: degraded, load unknown",
        "GPU 1: ? GiB used, 12 % utilization",
        "GPU 2: 2 GiB used, ? % utilization",
        "r10: ready, 0 running, 2 waiting",
        *(f"r{n}: ready, {n} running" for n in range(1, 8)),
    )


def unlisted(proxy: dict[str, Any] | None = None, owner: str = "ours", **fields: Any) -> list[Symptom]:
    services = tuple(
        replace(s, owner=owner) if s.kind == "proxy" else s  # type: ignore[arg-type]
        for s in snapshot().services
    )
    now = with_replicas(
        replica(1, **fields),
        services=services,
        policy_version=7,
        proxy=replace(snapshot().proxy, **({"backends": (f"{A}/v1",)} | (proxy or {}))),
    )
    return [*fired("replica_unlisted", now), *fired("proxy_lacks_replica", now)]


def test_an_unlisted_replica_and_what_gives_it_a_place() -> None:
    (behind,) = unlisted(listed=False, policy_version=6)
    assert behind.cause.startswith("r1 has policy version 6, the trainer has 7; ") and behind.action is None
    assert "the trainer sends its weights" in behind.fix
    (without,) = unlisted(listed=False, policy_version=None)
    assert without.cause.startswith("r1 has policy version None, the trainer has 7; ")
    (refused,) = unlisted(listed=False)
    assert "is not in the proxy's list" in refused.cause and refused.action == "restart r1"
    assert proof(refused) == (f"r1: {B}, policy version 7", f"the proxy routes to {A}/v1")
    (stale,) = unlisted(listed=True)
    assert "newest list" in stale.cause and stale.action == "restart proxy"
    (foreign,) = unlisted(listed=False, kind="verl", owner="adopted", policy_version=6)
    assert "before this replica was registered" in foreign.cause and foreign.action == "scale +1"
    assert "(key" not in foreign.fix and "restart the proxy" in foreign.fix
    # verl itself gives its replicas their weights
    (verl,) = unlisted(listed=False, kind="verl", policy_version=6)
    assert verl.action is None and verl.fix == "restart the trainer, which restarts its replicas"
    (managed,) = unlisted(listed=False, owner="adopted", policy_version=6)
    assert managed.action is None
    (nobody,) = unlisted({"backends": ()})
    assert proof(nobody)[1] == "the proxy routes to no replica"
    assert {s.severity for s in (behind, refused, stale, foreign)} == {"warning"}
    assert refused.title == "r1 is ready but receives no trials" and refused.id == "replica_unlisted:r1"


def test_a_listed_replica_is_found_in_any_spelling_of_its_address() -> None:
    for spelling in (B, f"{B}/", f"{B}/v1", f"{B}/v1/"):
        assert unlisted({"backends": (A, spelling)}) == []
    assert unlisted({"backends": (f"{B}/v2",)}) != []
    assert unlisted({"backends": (B,)}, listed=False) != [], "its place is taken from it"
    assert unlisted({"backends": (B,)}, address=f"{B}/v1") == []


def test_without_a_trainers_version_none_is_behind() -> None:
    now = with_replicas(replica(1, listed=False, policy_version=3), policy_version=None)
    assert one("replica_unlisted", now).action == "restart r1"


def test_no_proxy_no_list() -> None:
    services = tuple(s for s in snapshot().services if s.kind != "proxy")
    assert fired("replica_unlisted", with_replicas(replica(1, listed=False), services=services)) == []


def test_a_replica_that_the_proxy_does_not_ask() -> None:
    up = with_replicas(
        replica(0, "degraded"),
        replica(1, running=2.0, waiting=1.0),
        proxy=replace(
            snapshot().proxy, cooled_down=(f"{B}/v1", f"{A}/", "http://h:1"), failures=None, requests=None
        ),
    )
    second, first = fired("proxy_cooled_down", up)
    assert (first.id, second.id) == ("proxy_cooled_down:r0", "proxy_cooled_down:r1")
    assert proof(second) == (
        f"in cooldown: {B}/v1",
        "r1: ready, 2 running, 1 waiting",
        "0 of 0 requests failed so far",
    )
    assert second.action == "restart r1" and "log of r1" in second.fix
    for state in ("starting", "backing_off", "stopped"):
        dead = with_replicas(replica(1, state), proxy=up.proxy)
        assert fired("proxy_cooled_down", dead) == []


# --- services and the host ------------------------------------------------------------------------------


def fallen(state: str = "failed", kind: str = "replica", run: str = "running", **fields: Any) -> Snapshot:
    return snapshot(services=(service("r1", kind, state, **({"why": "exit 1"} | fields)),), state=run)


@pytest.mark.parametrize(
    ("run", "kind", "restarted"),
    [
        ("running", "replica", True),
        ("starting", "trainer", True),
        ("stopping", "replica", False),
        ("failed", "replica", False),
        ("running", "environment", False),
    ],
)
def test_a_failed_service_is_started_again_where_that_can_help(run: str, kind: str, restarted: bool) -> None:
    found = one("service_down", fallen(run=run, kind=kind))
    assert found.action == ("restart r1" if restarted else None)
    assert ("liverl-tui up --resume" in found.fix) is not restarted
    assert found.title == "r1 has failed" and found.severity == "critical" and found.id == "service_failed:r1"
    assert one("service_down", fallen("gave_up")).title == "r1 failed too often"


@pytest.mark.parametrize(
    "state", ["waiting", "starting", "ready", "degraded", "stopping", "stopped", "backing_off"]
)
def test_other_states_are_no_failure(state: str) -> None:
    assert fired("service_down", fallen(state)) == []


@pytest.mark.parametrize("rule", ["service_down", "service_backing_off"])
def test_the_evidence_of_a_failure(rule: str) -> None:
    state = {"service_down": "failed", "service_backing_off": "backing_off"}[rule]
    more = ("1 restarts so far",) if rule == "service_backing_off" else ()
    now = fallen(state, log="logs/r1.1.log", restarts=1)
    plain = one(rule, now)
    assert plain.cause == "exit 1" and proof(plain) == ("logs/r1.1.log", "r1: exit 1", *more)
    line = Cause("r1", "CUDA error", NOW, "logs/r1.1.log", 80)
    told = one(rule, now, causes={"r1": line})
    assert told.cause == "CUDA error"
    assert proof(told) == ("logs/r1.1.log at byte 80: CUDA error", "r1: exit 1", *more)
    # a cause that no log holds, and one that says no more than the state does
    assert proof(one(rule, now, causes={"r1": replace(line, log=None)}))[0] == "logs/r1.1.log"
    same = one(rule, now, causes={"r1": replace(line, text="exit 1")})
    assert proof(same) == ("logs/r1.1.log at byte 80: exit 1", *more)
    silent_ = one(rule, fallen(state, log=None, restarts=1), causes={"trainer": line})
    assert proof(silent_) == ("r1: exit 1", *more)


def test_what_a_start_said_goes_before_a_guess_about_its_log() -> None:
    now = fallen("backing_off", why="cannot write config.yaml: [Errno 28] No space left on device")
    guessed = Cause(
        "r1", "r1 exit 1; its log says nothing about it", NOW, fix="Start it once by hand", id="silent-exit"
    )
    said = one("service_backing_off", now, causes={"r1": guessed})
    assert "No space left" in said.cause and said.fix.startswith("Free space on the disk")
    known = replace(guessed, id="cuda-oom", text="out of memory", fix="lower it")
    assert one("service_backing_off", now, causes={"r1": known}).fix.startswith("lower it")


def test_backing_off_is_over_when_nothing_will_be_tried_again() -> None:
    for state in ("stopped", "failed", "gave_up"):
        assert over("service_backing_off", fallen(state)) == ["service_backing_off:r1"]
    for state in ("waiting", "preparing", "starting", "ready", "degraded", "stopping", "backing_off"):
        assert over("service_backing_off", fallen(state)) == []
    for state in ("starting", "ready", "failed"):
        assert fired("service_backing_off", fallen(state)) == []
    found = one("service_backing_off", fallen("backing_off"))
    assert (found.severity, found.action, found.title) == ("warning", "restart r1", "r1 keeps failing")


# --- the windows of each rule ---------------------------------------------------------------------------

HEALTHY = snapshot()

# rule, a state that fires it, a state that does not, seconds for which it must hold, seconds for which it lingers
WINDOWS: list[tuple[str, Snapshot, Snapshot, float, float]] = [
    ("service_down", fallen(), HEALTHY, 0, 0),
    ("service_backing_off", fallen("backing_off"), fallen("starting"), 0, 60),
    (
        "replica_idle",
        with_replicas(replica(0, running=0.0, idle_for=0.0)),
        with_replicas(replica(0, running=0.0)),
        0,
        300,
    ),
    ("replica_unlisted", with_replicas(replica(0), replica(1, listed=False)), HEALTHY, 30, 0),
    ("proxy_cooled_down", with_proxy(cooled_down=(B,)), HEALTHY, 0, 30),
    ("zero_tool_calls", with_trials(trials_of(8, 16, 16)), HEALTHY, 0, 60),
    ("rewards_equal", rewarded(*[0.0] * 4, mean=0.0), HEALTHY, 0, 30),
    ("rollout_mismatch", measured(kl=0.5), HEALTHY, 0, 30),
    ("learning_rate_zero", measured(**{"actor/lr": 0.0}), HEALTHY, 0, 30),
    ("trajectories_dropped", measured(**{"trajectory_filter/invalid_ratio": 0.5}), HEALTHY, 0, 30),
    ("agents_silent", silent(), HEALTHY, 180, 0),
    ("trials_do_not_begin", with_replicas(updating(0, 900.0)), HEALTHY, 0, 0),
]


class Watch:
    """One of the rules over time; seconds count from ``NOW``."""

    def __init__(self, rule: str) -> None:
        self._diagnosis = Diagnosis([r for r in RULES if r.look.__name__ == rule])

    def at(self, seconds: float, state: Snapshot, **beside: Any) -> list[str]:
        now = replace(state, at=NOW + seconds)
        return [news.what for news in self._diagnosis.update(now, lasting(now, **beside))]


@pytest.mark.parametrize(("rule", "bad", "good", "hold", "linger"), WINDOWS, ids=[w[0] for w in WINDOWS])
def test_how_long_each_rule_must_hold_and_lingers(
    rule: str, bad: Snapshot, good: Snapshot, hold: float, linger: float
) -> None:
    watch = Watch(rule)
    assert watch.at(-2, good) == []
    if hold:
        assert watch.at(0, bad) == [] and watch.at(hold - 0.25, bad) == []
    assert watch.at(hold, bad) == ["new"]
    if linger:
        assert watch.at(hold + linger, good) == []
    assert watch.at(hold + linger + 0.25, good) == ["cleared"]


@pytest.mark.parametrize(("rule", "count"), COUNTED)
def test_refused_requests_are_recent_for_ten_minutes(rule: str, count: str) -> None:
    watch, more = Watch(rule), with_proxy(**{count: 1})
    assert watch.at(-2, HEALTHY) == [] and watch.at(0, more) == ["new"]
    assert watch.at(600, more) == [] and watch.at(600.25, more) == ["cleared"]


def test_a_full_disk_lingers_for_half_a_minute() -> None:
    watch = Watch("disk_low")
    assert watch.at(0, HEALTHY, volumes=(Volume("/runs", RUN_DIRECTORY, GIB, MIB),)) == ["new"]
    assert watch.at(30, HEALTHY, volumes=(Volume("/runs", RUN_DIRECTORY, GIB, GIB),)) == []
    assert watch.at(30.25, HEALTHY) == ["cleared"]


def test_the_rules_that_need_a_runs_files_alone() -> None:
    names = {rule.look.__name__ for rule in FILE_RULES}
    assert names >= {
        "service_down",
        "zero_tool_calls",
        "rewards_equal",
        "rollout_mismatch",
        "learning_rate_zero",
        "trajectories_dropped",
    }
    assert not names & {"service_backing_off", "replica_missing", "agents_silent", "key_refused", "disk_low"}
    assert set(FILE_RULES) < set(RULES)
