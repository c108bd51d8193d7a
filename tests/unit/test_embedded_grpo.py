"""GRPO and Adam against numbers that are worked out from their formulas, step by step.

Six tools in the order of TOOL_NAMES: list_files, read_file, write_file, replace_text, move_file, submit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from liverl.agents.tools import TOOL_NAMES
from liverl.embedded.policy import Policy
from liverl.embedded.tokenizer import TOOL_TOKENS
from liverl.embedded.trainer.grpo import AdamState, TrialSample, TurnSample, agreement, set_advantages, update

TOKEN = {name: token for token, name in TOOL_TOKENS.items()}
LETTER = ord("a")  # a token that carries no choice: its probability is 1, its log-probability 0


def trial(
    tool: str, old_probability: float, *, group: int = 0, reward: float = 0.0, advantage: float = 0.0
) -> TrialSample:
    """A trial of one token, a tool's name, that the rollout drew with ``old_probability`` in state "s"."""
    turn = TurnSample("s", [TOKEN[tool]], [math.log(old_probability)], [1])
    return TrialSample(group, reward, [turn], advantage)


def step(
    policy: Policy,
    adam: AdamState,
    trials: Sequence[TrialSample],
    *,
    learning_rate: float = 0.1,
    temperature: float = 1.0,
    mini_batch: int = 100,
    seed: int = 0,
) -> dict[str, float]:
    return update(
        policy,
        adam,
        trials,
        trials_per_mini_batch=mini_batch,
        learning_rate=learning_rate,
        clip_low=0.2,
        clip_high=0.28,
        temperature=temperature,
        rng=random.Random(seed),
    )


def row(values: dict[str, float]) -> list[float]:
    return [values[name] for name in TOOL_NAMES]


def close(*values: float) -> object:
    return pytest.approx(list(values), rel=1e-9, abs=1e-15)


# -- advantages


def test_an_advantage_is_the_distance_from_the_groups_mean_in_sample_deviations() -> None:
    trials = [
        TrialSample(0, 1.0, []),
        TrialSample(1, 4.0, []),
        TrialSample(0, 0.0, []),
        TrialSample(1, 0.0, []),
        TrialSample(0, 0.0, []),
        TrialSample(2, 7.0, []),
    ]
    set_advantages(trials)
    # Group 0: mean 1/3; squares 4/9 + 1/9 + 1/9 = 2/3, over n - 1 = 2: variance 1/3.
    deviation = math.sqrt(1 / 3) + 1e-6
    first = [t.advantage for t in trials if t.group == 0]
    assert first == close((2 / 3) / deviation, (-1 / 3) / deviation, (-1 / 3) / deviation)
    # Group 1: mean 2; squares 4 + 4 = 8, over 1: deviation sqrt(8).
    second = [t.advantage for t in trials if t.group == 1]
    assert second == close(2 / (math.sqrt(8) + 1e-6), -2 / (math.sqrt(8) + 1e-6))
    assert TrialSample(0, 1.0, []).advantage == 0.0  # before
    # A group of one has nobody to be compared with.
    assert trials[5].advantage == 0.0


def test_the_small_number_below_the_deviation_bounds_advantages() -> None:
    trials = [TrialSample(0, 0.0, []), TrialSample(0, 2e-6, [])]
    set_advantages(trials)
    # Mean 1e-6; squares 2e-12, over 1: deviation sqrt(2) * 1e-6.
    assert [t.advantage for t in trials] == close(-1 / (math.sqrt(2) + 1), 1 / (math.sqrt(2) + 1))


# -- loss, ratio, clipping, KL, entropy, gradient: three tokens

# At temperature 2 these logits give the probabilities 0.4, 0.2, 0.1, 0.1, 0.1, 0.1: e^(logit / 2) = 4, 2, 1, 1, 1, 1.
LOGITS = {"list_files": 2 * math.log(4), "read_file": 2 * math.log(2)}
PROBABILITIES = [0.4, 0.2, 0.1, 0.1, 0.1, 0.1]
ENTROPY = -(0.4 * math.log(0.4) + 0.2 * math.log(0.2) + 4 * 0.1 * math.log(0.1))


def three_tokens(rewards: tuple[float, float, float]) -> list[TrialSample]:
    """Ratios 0.4 / 0.25 = 1.6 (above 1.28), 0.2 / 0.5 = 0.4 (below 0.8), 0.1 / (1 / 11) = 1.1 (between)."""
    drawn = (("list_files", 0.25), ("read_file", 0.5), ("write_file", 1 / 11))
    trials = [trial(*how, reward=reward) for how, reward in zip(drawn, rewards, strict=True)]
    set_advantages(trials)
    return trials


def test_three_tokens_with_both_bounds_active() -> None:
    policy, adam = Policy({"s": dict(LOGITS)}), AdamState()
    metrics = step(policy, adam, three_tokens((1.0, 0.0, 0.0)), temperature=2.0)
    high = (2 / 3) / (math.sqrt(1 / 3) + 1e-6)
    low = (-1 / 3) / (math.sqrt(1 / 3) + 1e-6)
    # Token 1: ratio 1.6 and a gain: bounded to 1.28. Token 2: ratio 0.4 and a loss: bounded to 0.8. Token 3: 1.1.
    assert metrics["actor/pg_loss"] == pytest.approx(-(1.28 * high + 0.8 * low + 1.1 * low) / 3)
    assert metrics["actor/loss"] == metrics["actor/pg_loss"]
    assert metrics["actor/pg_clipfrac"] == pytest.approx(2 / 3)
    # KL: the mean of ln(old) - ln(new) = -ln(ratio).
    assert metrics["actor/ppo_kl"] == pytest.approx(-(math.log(1.6) + math.log(0.4) + math.log(1.1)) / 3)
    assert metrics["actor/entropy"] == pytest.approx(ENTROPY)
    assert metrics["actor/lr"] == 0.1
    # A bounded token has no gradient. Of token 3: -advantage * ratio / (3 tokens * temperature) * (chosen - p).
    chosen = [0, 0, 1, 0, 0, 0]
    gradient = [-low * 1.1 / (3 * 2.0) * (c - p) for c, p in zip(chosen, PROBABILITIES, strict=True)]
    assert row(adam.first["s"]) == close(*(0.1 * g for g in gradient))
    assert row(adam.second["s"]) == close(*(0.001 * g * g for g in gradient))
    assert metrics["actor/grad_norm"] == pytest.approx(math.sqrt(sum(g * g for g in gradient)))


def test_the_bounds_do_not_hold_back_a_correction() -> None:
    """Ratio 1.6 with a loss and ratio 0.4 with a gain: the smaller surrogate is the unbounded one."""
    policy, adam = Policy({"s": dict(LOGITS)}), AdamState()
    metrics = step(policy, adam, three_tokens((0.0, 1.0, 0.0)), temperature=2.0)
    high = (2 / 3) / (math.sqrt(1 / 3) + 1e-6)
    low = (-1 / 3) / (math.sqrt(1 / 3) + 1e-6)
    assert metrics["actor/pg_loss"] == pytest.approx(-(1.6 * low + 0.4 * high + 1.1 * low) / 3)
    assert metrics["actor/pg_clipfrac"] == 0.0
    gradient = [0.0] * 6
    for place, (advantage, ratio) in enumerate(((low, 1.6), (high, 0.4), (low, 1.1))):
        for name in range(6):
            gradient[name] -= advantage * ratio / (3 * 2.0) * ((name == place) - PROBABILITIES[name])
    assert row(adam.first["s"]) == close(*(0.1 * g for g in gradient))


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    """Each slope by a central difference of the loss, for tokens in and beside the bounds in two states."""
    logits = {
        "s": {name: 0.3 * i for i, name in enumerate(TOOL_NAMES)},
        "t": {name: -0.2 * i for i, name in enumerate(TOOL_NAMES)},
    }
    drawn = [
        ("s", "submit", 0.30, 0.5),
        ("s", "list_files", 0.07, -0.25),  # bounded: its ratio is 0.63
        ("s", "submit", 0.10, 0.4),  # bounded: its ratio is 3.8
        ("t", "read_file", 0.40, 0.7),
        ("t", "move_file", 0.11, -0.6),
    ]

    def loss(at: dict[str, dict[str, float]]) -> float:
        total = 0.0
        for state, tool, old, advantage in drawn:
            weights = {name: math.exp(value / 0.7) for name, value in at[state].items()}
            ratio = weights[tool] / sum(weights.values()) / old
            total -= min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage)
        return total / len(drawn)

    adam = AdamState()
    trials = [
        TrialSample(0, 0.0, [TurnSample(state, [TOKEN[tool]], [math.log(old)], [1])], advantage)
        for state, tool, old, advantage in drawn
    ]
    start = {state: dict(values) for state, values in logits.items()}
    metrics = step(Policy(logits), adam, trials, temperature=0.7)
    assert metrics["actor/pg_loss"] == pytest.approx(loss(start))
    assert metrics["actor/pg_clipfrac"] == pytest.approx(2 / 5)
    assert metrics["actor/grad_norm"] < 1
    for state, values in start.items():
        for name in values:
            above, below = ({s: dict(v) for s, v in start.items()} for _ in range(2))
            above[state][name] += 1e-6
            below[state][name] -= 1e-6
            slope = (loss(above) - loss(below)) / 2e-6
            assert adam.first[state][name] / 0.1 == pytest.approx(slope, abs=1e-8)


def test_means_are_over_trained_tokens() -> None:
    """Four tokens of which the mask takes three: one carries the choice, two have probability 1."""
    turn = TurnSample(
        "s", [LETTER, LETTER, TOKEN["submit"], LETTER], [0.0, 0.0, math.log(1 / 4), -0.1], [0, 1, 1, 1]
    )
    untrained = TurnSample("s", [TOKEN["submit"]], [math.log(1 / 100)], [0])
    adam = AdamState()
    metrics = step(Policy(), adam, [TrialSample(0, 0.0, [untrained, turn], 0.9)])
    # Ratios 1, (1/6) / (1/4) = 2/3, e^0.1 = 1.105; all below 1.28, so with a gain nothing is bounded.
    assert metrics["actor/pg_loss"] == pytest.approx(-0.9 * (1 + 2 / 3 + math.exp(0.1)) / 3)
    assert metrics["actor/ppo_kl"] == pytest.approx((math.log(1 / 4) - math.log(1 / 6) - 0.1) / 3)
    assert metrics["actor/entropy"] == pytest.approx(math.log(6) / 3)
    assert metrics["actor/pg_clipfrac"] == 0.0
    # Only the choice moves logits: -0.9 * (2/3) / 3 = -0.2 times (1 - 1/6) and (0 - 1/6).
    assert row(adam.first["s"]) == close(*[0.1 * 0.2 / 6] * 5, -0.1 * 0.2 * 5 / 6)


def test_a_certain_choice_has_no_entropy() -> None:
    policy = Policy({"s": {"submit": 2000.0}})  # e^-2000 is 0: every other tool has probability 0
    metrics = step(policy, AdamState(), [trial("submit", 1.0, advantage=1.0)])
    assert metrics["actor/entropy"] == 0.0
    assert policy.token_logprobs("s", [TOKEN["read_file"]], 1.0) == [pytest.approx(math.log(1e-300))]


# -- Adam


def test_adams_first_two_steps() -> None:
    """One token "submit" each; 0.9 and 0.999 weigh the moments, 1e-8 stands below the root."""
    policy, adam = Policy(), AdamState()
    metrics = step(policy, adam, [trial("submit", 1 / 6, advantage=0.6)])
    # All six alike, p = 1/6: g = -0.6 * (1 - 1/6) = -0.5 of submit, -0.6 * (0 - 1/6) = 0.1 of each other.
    assert metrics["actor/grad_norm"] == pytest.approx(math.sqrt(0.25 + 5 * 0.01))
    assert adam.steps == 1
    assert row(adam.first["s"]) == close(*[0.01] * 5, -0.05)
    assert row(adam.second["s"]) == close(*[0.00001] * 5, 0.00025)
    # Corrected by 1 - 0.9 and 1 - 0.999 the moments are g and g^2: a step of 0.1 * g / (|g| + 1e-8).
    others, submit = -0.1 * 0.1 / (0.1 + 1e-8), 0.1 * 0.5 / (0.5 + 1e-8)
    assert row(policy.logits["s"]) == close(*[others] * 5, submit)

    p_submit = math.exp(submit) / (math.exp(submit) + 5 * math.exp(others))
    p_other = (1 - p_submit) / 5
    metrics = step(policy, adam, [trial("submit", p_submit, advantage=-1.0)])
    g_submit, g_other = 1 - p_submit, -p_other
    assert metrics["actor/grad_norm"] == pytest.approx(math.sqrt(g_submit**2 + 5 * g_other**2))
    assert adam.steps == 2
    m_submit, m_other = 0.9 * -0.05 + 0.1 * g_submit, 0.9 * 0.01 + 0.1 * g_other
    v_submit, v_other = 0.999 * 0.00025 + 0.001 * g_submit**2, 0.999 * 0.00001 + 0.001 * g_other**2
    assert row(adam.first["s"]) == close(*[m_other] * 5, m_submit)
    assert row(adam.second["s"]) == close(*[v_other] * 5, v_submit)
    # Corrected by 1 - 0.9^2 = 0.19 and 1 - 0.999^2 = 0.001999.
    submit -= 0.1 * (m_submit / 0.19) / (math.sqrt(v_submit / 0.001999) + 1e-8)
    others -= 0.1 * (m_other / 0.19) / (math.sqrt(v_other / 0.001999) + 1e-8)
    assert row(policy.logits["s"]) == close(*[others] * 5, submit)


def test_a_gradient_as_small_as_adams_epsilon_moves_half_as_far() -> None:
    policy = Policy()
    step(policy, AdamState(), [trial("submit", 1 / 6, advantage=6e-8)])
    # g = -5e-8 of submit and 1e-8 of each other: 0.1 * 5 / (5 + 1) and 0.1 * 1 / (1 + 1).
    assert row(policy.logits["s"]) == pytest.approx([-0.05] * 5 + [0.1 * 5 / 6], rel=1e-6)


def test_a_gradient_longer_than_1_is_cut_to_length_1() -> None:
    adam = AdamState()
    metrics = step(Policy(), adam, [trial("submit", 1 / 6, advantage=6.0)])
    # g = -5 of submit, 1 of each other: length sqrt(25 + 5).
    assert metrics["actor/grad_norm"] == pytest.approx(math.sqrt(30))
    assert row(adam.first["s"]) == close(*[0.1 / math.sqrt(30)] * 5, -0.5 / math.sqrt(30))
    shorter = AdamState()
    step(Policy(), shorter, [trial("submit", 1 / 6, advantage=0.96)])
    # 0.96 / 6 * sqrt(30) = 0.876: left as it is.
    assert row(shorter.first["s"]) == close(*[0.016] * 5, -0.08)


def test_momentum_goes_on_where_there_is_no_gradient() -> None:
    """A state that the batch did not visit, and a batch whose advantages are all 0."""
    policy, adam = Policy(), AdamState()
    step(policy, adam, [trial("submit", 1 / 6, advantage=0.6)])
    before = row(policy.logits["s"])
    elsewhere = TurnSample("t", [TOKEN["submit"]], [math.log(1 / 6)], [1])
    metrics = step(policy, adam, [TrialSample(0, 0.0, [elsewhere], 0.0)])
    assert metrics["actor/grad_norm"] == 0.0 and metrics["actor/pg_loss"] == 0.0
    assert "t" not in adam.first and "t" not in policy.logits
    assert row(adam.first["s"]) == close(*[0.009] * 5, -0.045)
    assert row(adam.second["s"]) == close(*[0.999e-5] * 5, 0.999 * 0.00025)
    moved = [
        old - 0.1 * (m / 0.19) / (math.sqrt(v / 0.001999) + 1e-8)
        for old, m, v in zip(before, row(adam.first["s"]), row(adam.second["s"]), strict=True)
    ]
    assert row(policy.logits["s"]) == close(*moved)


# -- mini-batches


def test_metrics_are_means_over_the_mini_batches_that_had_a_token_to_train() -> None:
    masked = TrialSample(0, 0.0, [TurnSample("s", [TOKEN["submit"]], [math.log(1 / 6)], [0])], 1.0)
    trials = [trial("submit", 1 / 6, advantage=0.5), masked, trial("submit", 1 / 6, advantage=0.1)]
    adam = AdamState()
    metrics = step(Policy(), adam, trials, learning_rate=0.0, mini_batch=1)
    assert adam.steps == 2
    assert metrics["actor/pg_loss"] == pytest.approx(-(0.5 + 0.1) / 2)
    assert metrics["actor/grad_norm"] == pytest.approx((0.5 + 0.1) / 2 * math.sqrt(30) / 6)
    assert metrics["actor/entropy"] == pytest.approx(math.log(6))


def test_a_mini_batch_holds_as_many_trials_as_asked() -> None:
    trials = [trial("submit", 1 / 6, advantage=0.1) for _ in range(7)]
    for size, steps in ((1, 7), (3, 3), (7, 1), (100, 1)):
        adam = AdamState()
        step(Policy(), adam, trials, mini_batch=size)
        assert adam.steps == steps


def test_the_order_is_the_generators() -> None:
    trials = [trial("submit", 1 / 6, advantage=0.5), trial("read_file", 1 / 6, advantage=-0.3)]
    trials += [trial("move_file", 1 / 6, advantage=0.2), trial("list_files", 1 / 6, advantage=0.9)]
    order = list(range(4))
    random.Random(3).shuffle(order)
    assert order != list(range(4))
    apart, adam = Policy(), AdamState()
    for place in order:
        step(apart, adam, [trials[place]])
    together = Policy()
    step(together, AdamState(), trials, mini_batch=1, seed=3)
    assert row(together.logits["s"]) == close(*row(apart.logits["s"]))


# -- agreement between rollout and trainer


def test_agreement_of_three_tokens() -> None:
    policy = Policy({"s": {"list_files": math.log(4), "read_file": math.log(2)}})  # 0.4, 0.2, 0.1 ...
    drawn = (("list_files", 0.5), ("read_file", 0.2), ("write_file", 0.3))
    found = agreement(policy, [trial(*how) for how in drawn], 1.0)
    # Differences 0.1, 0.0, 0.2: mean 0.1, squares 0 + 0.01 + 0.01 over 2.
    assert found["training/rollout_probs_diff_valid"] == 1.0
    assert found["training/rollout_probs_diff_max"] == pytest.approx(0.2)
    assert found["training/rollout_probs_diff_mean"] == pytest.approx(0.1)
    assert found["training/rollout_probs_diff_std"] == pytest.approx(0.1)
    # Rollout 0.5, 0.2, 0.3 about 1/3; trainer 0.4, 0.2, 0.1 about 7/30.
    xs, ys = (1 / 6, -2 / 15, -1 / 30), (1 / 6, -1 / 30, -2 / 15)
    products = sum(x * y for x, y in zip(xs, ys, strict=True))
    expected = products / math.sqrt(sum(x * x for x in xs) * sum(y * y for y in ys))
    assert found["training/rollout_actor_probs_pearson_corr"] == pytest.approx(expected)


def test_no_correlation_where_one_side_is_constant() -> None:
    policy = Policy({"s": {"list_files": math.log(4), "read_file": math.log(2)}})
    for drawn in (
        (("list_files", 0.25), ("read_file", 0.25)),  # the rollout's are equal
        (("submit", 0.25), ("move_file", 0.5)),  # the trainer's are
        (("submit", 0.5),),  # one token
    ):
        found = agreement(policy, [trial(*how) for how in drawn], 1.0)
        assert math.isnan(found["training/rollout_actor_probs_pearson_corr"])
    assert found["training/rollout_probs_diff_std"] == 0.0
    assert found["training/rollout_probs_diff_mean"] == pytest.approx(0.4)


def test_the_spread_of_two_differences() -> None:
    policy = Policy({"s": {"list_files": math.log(4), "read_file": math.log(2)}})
    found = agreement(policy, [trial("list_files", 0.5), trial("read_file", 0.5)], 1.0)
    # Differences 0.1 and 0.3: mean 0.2, squares 0.01 + 0.01 over 1.
    assert found["training/rollout_probs_diff_std"] == pytest.approx(math.sqrt(0.02))


def test_agreement_is_over_trained_tokens_at_the_rollouts_temperature() -> None:
    policy = Policy({"s": {"list_files": 2 * math.log(4), "read_file": 2 * math.log(2)}})
    turn = TurnSample(
        "s", [LETTER, TOKEN["list_files"], LETTER], [math.log(0.3), math.log(0.4), math.log(0.5)], [0, 1, 1]
    )
    found = agreement(policy, [TrialSample(0, 0.0, [turn])], 2.0)
    assert found["training/rollout_probs_diff_max"] == pytest.approx(0.5)
    assert found["training/rollout_probs_diff_mean"] == pytest.approx(0.25)


# -- the policy


def test_temperature_divides_the_logits() -> None:
    policy = Policy({"s": {"a": math.log(9), "b": math.log(4)}})
    assert policy.probabilities("s", ["a", "b", "c"], 1.0) == close(9 / 14, 4 / 14, 1 / 14)
    assert policy.probabilities("s", ["a", "b", "c"], 2.0) == close(3 / 6, 2 / 6, 1 / 6)
    assert policy.probabilities("s", ["c", "b", "a"], 0.0) == [0.0, 0.0, 1.0]
    below = Policy({"s": {"a": -1.0}})  # an absent logit is 0, above a negative one
    assert below.probabilities("s", ["a", "b", "c"], 0.0) == [0.0, 1.0, 0.0]
    falling = [Policy({"s": {"a": 1.0}}).probabilities("s", ["a", "b"], t)[0] for t in (0.1, 0.5, 1.0, 9.0)]
    assert all(colder > warmer for colder, warmer in pairwise(falling))


def test_only_the_tools_name_carries_a_log_probability() -> None:
    policy = Policy({"s": {"list_files": math.log(4), "read_file": math.log(2)}})
    tokens = [LETTER, TOKEN["read_file"], LETTER, TOKEN["list_files"]]
    assert policy.token_logprobs("s", tokens, 1.0) == close(0.0, math.log(0.2), 0.0, 0.0)
    assert policy.token_logprobs("s", [LETTER], 1.0) == [0.0]
    assert policy.parameters() == 2
    assert (Policy().version, Policy().parameters()) == (0, 0)
