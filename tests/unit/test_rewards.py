"""The rewards of a run: what a snapshot says of them, and what the first row of every screen shows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import snapshot

from liverl.daemon.ending import Verdict, summary_of
from liverl.diagnose.report import _figures
from liverl.model import (
    Cause,
    RewardCourse,
    Rewards,
    StepMetrics,
    StepTrials,
    Symptom,
    Trained,
    TrialsStatus,
    Validation,
)  # fmt: skip
from liverl.observe.metrics.rewards import (
    NEWEST,
    REWARD,
    RewardHistory,
    course_words,
    ends,
    ends_words,
    judged_anew,
    step_trained_words,
    untrained_words,
    words,
)
from liverl_tui.text.facts import step_words
from liverl_tui.widgets.base.fitting import pack
from liverl_tui.widgets.header.learning import learning_parts, spark


def steps(*rewards: float | None, first: int = 1) -> list[StepMetrics]:
    return [
        StepMetrics(first + number, {} if reward is None else {REWARD: reward})
        for number, reward in enumerate(rewards)
    ]


def summary(*news: list[StepMetrics]) -> Rewards:
    history = RewardHistory()
    for batch in news:
        history.add(batch)
    return history.summary()


def shown(width: int = 200, **fields: object) -> str:
    return pack(learning_parts(snapshot(**fields)), width).text


def endings(reward: float, trained: int, masked: int, **more: float) -> dict[str, float]:
    counts = {"trained": trained, "zeroed": 0, "masked": masked, "dropped": 0}
    return {
        REWARD: reward,
        **{f"liverl/endings/{word}": float(count) for word, count in counts.items()},
        **more,
    }


def trained(*each: tuple[int, int], **more: float) -> Rewards:
    """Of steps with so many trials that were trained, and that were not."""
    return summary(
        [StepMetrics(n, endings(0.5 + n / 100, *one, **more)) for n, one in enumerate(each, start=1)]
    )


def test_a_mean_of_the_trained_trials_says_of_how_many() -> None:
    """A trainer's mean leaves out trials that failed: it says nothing about 52 of 64 of them."""
    rewards = trained((17, 47), (9, 55), (12, 52), (19, 45), (10, 54), (12, 52))
    assert (rewards.first_of, rewards.last_of) == (Trained(38, 192), Trained(41, 192))
    assert words(rewards) == (
        "6 steps, mean reward 0.520 -> 0.550 (first and last three steps; of the 38 and the 41 of 192 trials that were "
        "trained): too early to say"
    )
    assert judged_anew(f"done: {words(rewards)}; but x", RewardCourse("flat", 2)).endswith(
        "that were trained): flat since step 2; but x"
    )
    assert (
        untrained_words(rewards.untrained)
        == "most trials of every step were not trained (52 of 64 of step 6)"
    )
    told = " ".join(_figures(snapshot(rewards=rewards), {}, "", 1))
    assert "0.550 in the last three (of the 38 and the 41 of 192 trials that were trained)" in told
    assert "of 41/192 trained" in shown(rewards=rewards)
    assert step_words(snapshot(step=6, rewards=rewards)).count("reward 0.560 (of the 12 of 64 trials") == 1


def test_means_of_other_shares_of_the_trials_are_no_comparison() -> None:
    apart = words(trained(*[(60, 4)] * 3, *[(30, 34)] * 3))
    assert apart is not None and "trained, which are other shares of all trials)" in apart
    near = words(trained(*[(60, 4)] * 3, *[(62, 2)] * 3))
    assert near is not None and "other shares" not in near and "the 180 and the 186 of 192 trials" in near


def test_nothing_is_said_where_all_were_trained_or_nobody_knows() -> None:
    assert words(trained(*[(64, 0)] * 6)) == words(trained(*[(64, 0)] * 6, **{"fully_async/a": 1.0}))
    streamed = trained(*[(10, 54)] * 6, **{"fully_async/idle": 0.5})
    assert streamed.last_of is None and streamed.untrained is not None, "its mean has the others as 0"
    assert summary(steps(*[0.5] * 6)).untrained is None
    one = trained((3, 13))
    assert words(one) == "1 step, mean reward 0.510 (of the 3 of 16 trials that were trained)"
    assert untrained_words(one.untrained) == "most trials of step 1 were not trained (13 of 16)"
    assert untrained_words(trained((3, 13), (8, 8), (16, 0)).untrained).startswith(
        "most trials of 1 of 3 steps"
    )
    assert step_trained_words(endings(0.5, 12, 52)) == "of the 12 of 64 trials that were trained"


def test_the_end_of_a_run_names_first_that_most_trials_were_not_trained() -> None:
    rewards = trained(*[(12, 52)] * 6)
    done = Verdict("done", 0)
    assert summary_of(done, None, rewards, 6, True).endswith("; but most trials of every step were not trained "
        "(52 of 64 of step 6)")  # fmt: skip
    fault = Symptom("x", "critical", "a reward is NaN", "", "")
    assert summary_of(done, fault, rewards, 6, True).endswith("(52 of 64 of step 6); a reward is NaN")
    stopped = Verdict("stopped", 5, Cause(None, "stopped by SIGINT to up (pid 7)", 0.0))
    assert summary_of(stopped, None, rewards, 6, True) == "stopped by SIGINT to up (pid 7)"
    assert summary_of(stopped, fault, rewards, 6, True) == (
        "stopped by SIGINT to up (pid 7); it had this problem: a reward is NaN"
    )


# --- what a snapshot says ---------------------------------------------------------------------------------


def test_nothing_is_said_before_the_first_reward() -> None:
    assert summary() == summary(steps(None, None)) == Rewards()
    assert words(Rewards()) is None


def test_the_first_and_the_last_three_steps_are_compared() -> None:
    rewards = summary(steps(0.1, 0.2, 0.3, None), steps(0.6, 0.8, 1.0, first=5))
    assert rewards.steps == 6 and rewards.newest == (0.1, 0.2, 0.3, 0.6, 0.8, 1.0)
    assert (rewards.first, rewards.last) == pytest.approx((0.2, 0.8))
    assert (
        words(rewards) == "6 steps, mean reward 0.200 -> 0.800 (first and last three steps): too early to say"
    )


def test_a_resumed_trainer_replaces_the_later_steps() -> None:
    assert summary(steps(0.1, 0.2, 0.3, 0.4), steps(0.9, first=3)).newest == (0.1, 0.2, 0.9)


def test_a_file_that_is_read_again_counts_once() -> None:
    history = RewardHistory()
    history.add(steps(0.1, 0.2))
    history.clear()
    history.add(steps(0.3))
    assert history.summary().newest == (0.3,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=3 * NEWEST))
def test_a_long_run_keeps_its_newest_rewards(values: list[float]) -> None:
    rewards = summary(steps(*values))
    assert rewards.steps == len(values)
    assert rewards.newest == tuple(values[-NEWEST:])
    first, last = (values, values) if len(values) < 6 else (values[:3], values[-3:])
    assert rewards.first == pytest.approx(sum(first) / len(first))
    assert rewards.last == pytest.approx(sum(last) / len(last))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.1], "0.100"),
        ([0.0, 0.1, 0.062], "0.054"),
        ([0.0, 0.0, 0.0, 1.0, 1.0], "0.400"),
        ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], "0.000 -> 1.000"),
        ([0.0] * 9, "0.000"),
    ],
)
def test_a_few_steps_have_one_mean(values: list[float], said: str) -> None:
    assert ends_words(*ends(values), len(values)) == said
    rewards = summary(steps(*values))
    assert ends_words(rewards.first, rewards.last, rewards.steps) == said
    assert ends_words(None, None, len(values)) is None
    assert ends_words(*ends(values), 100 + len(values)) == said, "a run that goes on at step 100"
    assert ends_words(0.1, 0.3, 3) == "0.300", "of a version that kept two means of fewer than six steps"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5 * NEWEST))
def test_the_curve_is_that_of_the_whole_run(values: list[float]) -> None:
    curve = summary(steps(*values)).curve
    assert len(curve) == min(len(values), NEWEST)
    if len(values) <= NEWEST:
        assert curve == tuple(values)
    if len(values) % len(curve) == 0:
        part = len(values) // len(curve)
        assert curve[0] == pytest.approx(sum(values[:part]) / part)
        assert curve[-1] == pytest.approx(sum(values[-part:]) / part)
    assert min(values) - 1e-9 <= min(curve) and max(curve) <= max(values) + 1e-9


def test_a_long_run_that_has_learned_is_drawn_from_its_first_steps() -> None:
    learned = summary(steps(*(min(1.0, number / 100) for number in range(400))))
    text = shown(rewards=learned, trials=TrialsStatus(), metrics=None, step_seconds=None)
    assert text == "reward 0.01 → 1.00  all solved since step 101  ▁▃▄▆▇▇▇▇▇▇▇▇▇▇▇▇"


def validated(*scores: tuple[int, float], key: str = "val-core/x/acc") -> list[StepMetrics]:
    return [StepMetrics(step, {REWARD: 0.5, key: value, "val-aux/y": 9.0}) for step, value in scores]


def test_validations_are_summed_up_beside_the_rewards() -> None:
    told = summary(validated((5, 0.1), (10, 0.3), (15, 0.2), (20, math.nan))).validation
    assert told == Validation("val-core/x/acc", 0.1, 0.2, 15, 0.3, 10, 3)
    assert summary(steps(0.1)).validation is None
    again = summary(validated((5, 0.1), (10, 0.3)), validated((8, 0.2))).validation
    assert again == Validation("val-core/x/acc", 0.1, 0.2, 8, 0.2, 8, 2), (
        "a resumed trainer repeats the later steps"
    )
    both = summary(validated((5, 0.1), key="val-core/z"), validated((6, 0.4), key="val-core/a")).validation
    assert both is not None and both.key == "val-core/a", "the one that is charted"


def test_a_validation_that_is_written_alone_is_no_step_and_counts() -> None:
    """Before the first step it is the baseline; one of an asynchronous run may come after the step behind it."""
    alone = {step: StepMetrics(step, {"val-core/x/acc": step / 10}) for step in (0, 2)}
    found = summary([alone[0]], steps(0.1, 0.2, 0.3), [alone[2]], steps(0.4, first=4))
    assert found.validation == Validation("val-core/x/acc", 0.0, 0.2, 2, 0.2, 2, 2)
    assert found.newest == (0.1, 0.2, 0.3, 0.4), "no step is taken for one of a trainer that was resumed"


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (((5, 0.1), (10, 0.3)), "val 0.10 → 0.30"),
        (((5, 0.1), (10, 0.3), (15, 0.2)), "val 0.10 → 0.20, best 0.30 at 10"),
        (((5, 0.5), (10, 0.5)), "val still 0.50"),
        (((5, 0.5), (10, 0.6), (15, 0.5)), "val 0.50 → 0.50, best 0.60 at 10"),
        (((5, 0.1),), "val 0.10"),
    ],
)
def test_the_header_shows_validation_beside_training(
    scores: tuple[tuple[int, float], ...], words: str
) -> None:
    text = shown(rewards=summary(validated(*scores)), trials=TrialsStatus(), metrics=None, step_seconds=None)
    assert "reward " in text and "0.50" in text and text.endswith(words)


# --- what every screen shows ------------------------------------------------------------------------------


def test_a_curve_goes_from_its_lowest_to_its_highest_step() -> None:
    assert spark((0.1, 0.4, 0.25, 0.7), 10) == "▁▄▃▇"
    assert spark((0.0, 0.5, 1.0), 2) == "▄▇", "only the newest steps, in the range of all"
    assert spark((math.nan, 0.1, 0.2), 5) == "▁▇"
    assert spark((0.1, 0.2), 5, math.nan) == "▁▇"
    assert spark((), 5) == spark((math.nan,), 5) == ""


def test_a_flat_curve_is_neither_the_lowest_nor_a_mountain_range() -> None:
    assert spark((0.3, 0.3), 5) == "▄▄"
    assert spark((0.5, 0.51, 0.5, 0.49), 5) == "▄▅▄▃"
    assert spark((0.0, 0.0), 5) == "▁▁"
    assert spark((-0.3, -0.3), 5) == "▄▄"


def test_the_curve_of_a_run_that_has_learned_is_high_and_of_one_that_has_forgotten_low() -> None:
    assert set(spark((0.97, 1.0, 1.0, 0.99, 1.0), 5, 0.2)) == {"▇"}
    assert spark((0.97, 1.0), 5, 0.2).endswith("▇")
    assert spark((0.22, 0.2, 0.21), 5, 1.0) == "▁▁▁"


@pytest.mark.parametrize(
    ("first", "last", "count", "said"),
    [
        (0.2, 0.5, 6, ("reward 0.20 → 0.50", "ok")),
        (0.5, 0.2, 6, ("reward 0.50 → 0.20", "warn")),
        (0.5, 0.504, 9, ("reward 0.50 → 0.50", "strong")),
        (0.5, 0.496, 9, ("reward 0.50 → 0.50", "strong")),
        (0.2, 0.5, 5, ("mean reward of 5 steps 0.50", "strong")),
        (0.5, 0.5, 1, ("reward 0.50", "strong")),
        (0.5, math.nan, 9, ("reward 0.50 → nan", "strong")),
    ],
)
def test_the_reward_is_shown_from_the_first_steps_to_the_last_once_they_are_others(
    first: float, last: float, count: int, said: tuple[str, str]
) -> None:
    reward = pack(learning_parts(snapshot(rewards=Rewards(count, first, last, (0.06,)))), 200).spans
    text = "".join(span[0] for span in reward).partition("  ")[0]
    assert (text, next(style for part, style in reward if part[-2:] == text[-2:])) == said


def test_a_short_run_names_no_change() -> None:
    assert words(summary(steps(0.1, 0.2, 0.3, 0.4, 0.6))) == "5 steps, mean reward 0.320"
    assert words(summary(steps(0.1))) == "1 step, mean reward 0.100"


def test_steps_without_a_reward_are_not_left_out_of_the_count() -> None:
    rewards = summary(steps(0.1, 0.2, 0.3, 0.4, 0.6))
    assert words(rewards, 5) == words(rewards, 4) == "5 steps, mean reward 0.320"
    assert words(rewards, 6) == "step 6, mean reward of 5 steps 0.320"
    assert words(Rewards(8, 0.2, 0.75, (0.2, 0.75)), 9) == (
        "step 9, mean reward of 8 steps 0.200 -> 0.750 (first and last three steps)"
    )


def test_the_curve_beside_the_reward_has_the_range_of_the_whole_run() -> None:
    learned = Rewards(40, 0.2, 1.0, (1.0, 0.98, 1.0, 1.0))
    assert shown(rewards=learned, trials=TrialsStatus(), metrics=None, step_seconds=None) == (
        "reward 0.20 → 1.00  ▇▇▇▇"
    )


def test_one_look_says_whether_it_learns() -> None:
    fields = {
        "rewards": Rewards(6, 0.1, 0.4, (0.1, 0.2, 0.3, 0.6)),
        "step_seconds": 4.56,
        "metrics": StepMetrics(4, {"actor/ppo_kl": 0.5, "actor/kl_loss": 0.0123}),
        "trials": TrialsStatus(16, steps=(StepTrials(5, 16, 0, 0, None), StepTrials(4, 16, 16, 0, 0.6))),
    }
    assert shown(**fields) == "reward 0.10 → 0.40  ▁▂▃▇  tools 16/16  KL 0.0123  4.6 s/step"
    assert shown(32, **fields) == "reward 0.10 → 0.40  tools 16/16"
    assert shown(20, **fields) == "reward 0.10 → 0.40"
    assert shown(12, **fields) == "reward 0.40"


def test_trials_without_tool_calls_stay_longer_than_the_curve() -> None:
    fields = {"trials": TrialsStatus(16, steps=(StepTrials(4, 16, 16, 12, 0.6),))}
    assert "▲ tools 4/16" in shown(**fields)
    assert "▲ tools 4/16" in shown(33, **fields)


def test_a_run_that_reports_nothing_has_no_empty_parts() -> None:
    assert shown(rewards=Rewards(), trials=TrialsStatus(), metrics=None, step_seconds=None) == ""


def history(values: list[float]) -> RewardHistory:
    kept = RewardHistory()
    kept.add([StepMetrics(at, {REWARD: value}) for at, value in enumerate(values, 1)])
    return kept


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.2, 0.3], "too early to say"),
        ([0.2 + 0.03 * at for at in range(20)], "learning"),
        ([0.8 - 0.03 * at for at in range(20)], "falling since step 1"),
        ([0.2, 0.9, 1.0, 1.0, 1.0], "all solved since step 3"),
        ([0.5, 1.0, 1.0], "too early to say"),
        ([1.5, 1.0, 1.0, 1.0], "too early to say"),  # 1 is not all that can be had
        ([0.0] * 6, "flat since step 1"),
        ([0.1, 0.4] * 10, "no clear trend"),
        ([float("nan")] * 6, ""),
    ],
)
def test_the_rewards_say_in_words_what_they_prove(values: list[float], told: str) -> None:
    assert course_words(history(values).summary().course) == told


def test_no_reward_proves_nothing() -> None:
    assert RewardHistory().summary().course is None
    assert course_words(None) == ""


def test_a_summary_of_a_run_says_it_beside_the_means() -> None:
    told = words(history([0.2 + 0.03 * at for at in range(20)]).summary(), 20)
    assert told == "20 steps, mean reward 0.230 -> 0.740 (first and last three steps): learning"


@pytest.mark.parametrize(
    "said", ["", ": all solved since step 273", ": no clear trend", ": flat", ": learning"]
)
def test_the_end_that_another_version_wrote_is_judged_anew(said: str) -> None:
    """A dashboard said `nearly all solved` in its first row and `all solved since step 273` in its second one."""
    ended = (
        f"done: 400 steps, mean reward 0.198 -> 1.000 (first and last three steps){said}; but a GPU fell off"
    )
    assert judged_anew(ended, RewardCourse("nearly_solved", 15)) == (
        "done: 400 steps, mean reward 0.198 -> 1.000 (first and last three steps): nearly all solved since step 15"
        "; but a GPU fell off"
    )
    assert judged_anew(ended, None) == ended
    assert judged_anew("done: 3 steps", RewardCourse("unclear")) == "done: 3 steps"
