"""Rules for the trainer's metrics over several steps: what fires each, and what comes near and does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.screens import snapshot
from msgspec.structs import replace

from liverl.diagnose.catalogue import asynchronous
from liverl.diagnose.catalogue import metrics as rules
from liverl.diagnose.catalogue.learning import rewards_equal
from liverl.diagnose.catalogue.rules import FILE_RULES, RULES
from liverl.diagnose.tracker import Resolved, RunContext, Window
from liverl.model import Snapshot, StepMetrics, StepTrials, Symptom, TrialsStatus
from liverl.observe.metrics.recent import MOST, RecentSteps, StepCollector
from liverl.observe.metrics.steps import MetricsReader
from liverl.snapshot_json import decode_snapshot, encode_snapshot

Row = dict[str, float]
NO_TRIALS = TrialsStatus()
OWN = (rules.__name__, asynchronous.__name__)
RECORDINGS = Path(__file__).parents[1] / "data/recordings"


def collected(*rows: Row, first: int = 1) -> RecentSteps:
    collector = StepCollector()
    collector.add([StepMetrics(number, row) for number, row in enumerate(rows, first)])
    return collector.recent()


def look(recent: RecentSteps, now: Snapshot | None = None) -> dict[str, Symptom]:
    """What all rules of this file find in the steps."""
    newest = recent.steps[-1] if recent.steps else None
    state = now or snapshot(trials=NO_TRIALS, metrics=newest, step=newest and newest.step)
    seen = Window(state, None, RunContext(recent=recent))
    own = [rule for rule in RULES if rule.look.__module__ in OWN]
    return {s.id: s for rule in own for s in rule.look(seen) if isinstance(s, Symptom)}


def rows(key: str, *values: float, **others: float) -> list[Row]:
    return [{key: value, **{k.replace("__", "/"): v for k, v in others.items()}} for value in values]


def rewards(*means: float, spread: float | None = None) -> list[Row]:
    ends = {} if spread is None else {"max": spread, "min": 0.0}
    return [
        {"critic/score/mean": mean, **{f"critic/score/{k}": mean + v for k, v in ends.items()}}
        for mean in means
    ]


def joined(*columns: list[Row]) -> list[Row]:
    return [{k: v for row in several for k, v in row.items()} for several in zip(*columns, strict=True)]


def test_all_of_them_need_only_a_metrics_file() -> None:
    own = [rule.look.__name__ for rule in RULES if rule.look.__module__ in OWN]
    in_files = [rule.look.__name__ for rule in FILE_RULES if rule.look.__module__ in OWN]
    assert own == in_files and len(own) == 10
    assert look(RecentSteps()) == {}


@pytest.mark.parametrize("name", ["h200_run/trainer.log", "h200_run/standalone.log", "h200/verl.log"])
def test_nothing_is_found_in_healthy_recordings_at_any_step(name: str, tmp_path: Path) -> None:
    logs = tmp_path / "attempt_001/logs"
    logs.mkdir(parents=True)
    (logs / "trainer.1.log").write_bytes((RECORDINGS / name).read_bytes())
    steps = MetricsReader.of_run(tmp_path).poll()
    assert len(steps) >= 4
    collector = StepCollector()
    for step in steps:
        collector.add([step])
        assert look(collector.recent()) == {}, step.step


# --- what is no finite number -----------------------------------------------------------------------------


def broken(*steps: dict[str, str]) -> dict[str, Symptom]:
    collector = StepCollector()
    collector.add([StepMetrics(number, {}, names) for number, names in enumerate(steps, 1)])
    return look(collector.recent())


def test_a_loss_that_is_no_number_is_named_with_its_first_step() -> None:
    symptom = broken({}, {"actor/loss": "nan"}, {"actor/loss": "nan", "actor/entropy": "inf"})[
        "metrics_not_finite"
    ]
    assert symptom.severity == "critical"
    assert symptom.title == "actor/loss and 1 more are NaN or infinite since step 2"
    assert "do not use checkpoints of step 2 and later" in symptom.cause
    assert [e.text for e in symptom.evidence] == [
        "actor/loss: nan since step 2",
        "actor/entropy: inf since step 3",
    ]
    assert "from a checkpoint of step 1 or earlier" in symptom.fix


def test_a_gradient_that_is_no_number_skips_its_update_only() -> None:
    symptom = broken({}, {"actor/grad_norm": "inf"})["metrics_not_finite"]
    assert symptom.severity == "warning" and "skips" in symptom.cause
    assert symptom.title == "actor/grad_norm is infinite since step 2"


def test_updates_that_were_skipped_left_the_weights_as_they_were() -> None:
    """What is computed first is named: NaN advantages make loss and gradient NaN, and the update is skipped."""
    bad = {"actor/grad_norm": "nan", "actor/loss": "nan", "critic/advantages/mean": "nan"}
    symptom = broken({}, bad)["metrics_not_finite"]
    assert symptom.severity == "critical"
    assert symptom.title == "critic/advantages/mean and 2 more are NaN or infinite since step 2"
    assert "weights stay as they were" in symptom.cause and "do not use" not in symptom.cause
    assert symptom.evidence[0].text == "critic/advantages/mean: nan since step 2"
    assert "look at the rewards of step 2" in symptom.fix and "its checkpoints can be used" in symptom.fix
    assert "tokens to train on" in broken(bad)["metrics_not_finite"].fix, "from the first step on"
    diverged = broken({}, bad | {"actor/entropy": "nan"})["metrics_not_finite"]
    assert "do not use checkpoints of step 2 and later" in diverged.cause


@pytest.mark.parametrize(
    ("key", "others", "cause", "fix"),
    [
        (
            "critic/score/mean",
            {},
            "a reward is not finite",
            "a finite number for any reply; then start it anew",
        ),
        (
            "critic/score/max",
            {"actor/entropy"},
            "do not use checkpoints of step 1",
            "a finite number for any reply",
        ),
        ("critic/rewards/mean", {}, "weights stay as they were", "tokens to train on"),
        ("actor/loss", {}, "weights stay as they were", "tokens to train on"),
    ],
)
def test_what_is_computed_first_is_what_is_to_be_corrected(
    key: str, others: set[str], cause: str, fix: str
) -> None:
    """A reward that is NaN is no fault of the learning rate, also in the first step."""
    bad = dict.fromkeys({"critic/returns/mean", "actor/loss", "actor/grad_norm", key, *others}, "nan")
    found = broken(bad)["metrics_not_finite"]
    assert cause in found.cause and fix in found.fix
    assert ("a reward is not finite" in found.cause) == key.startswith("critic/score")


def test_what_is_over_or_only_compared_is_no_fault() -> None:
    assert broken({"actor/loss": "nan"}, {}) == {}
    assert broken({"training/rollout_actor_probs_pearson_corr": "nan"}) == {}
    again = broken({"actor/loss": "nan"}, {}, {"actor/loss": "nan"})["metrics_not_finite"]
    assert again.title.endswith("since step 3")


def test_since_which_step_is_known_beyond_the_steps_that_are_kept() -> None:
    collector = StepCollector()
    collector.add([StepMetrics(1, {})])
    collector.add([StepMetrics(number, {}, {"actor/loss": "nan"}) for number in range(2, MOST + 40)])
    assert len(collector.recent().steps) == MOST
    assert look(collector.recent())["metrics_not_finite"].title.endswith("since step 2")
    collector.add([StepMetrics(2, {}, {"actor/loss": "nan"})])
    assert collector.recent().steps == (StepMetrics(2, {}, {"actor/loss": "nan"}),), "a resumed trainer"
    assert collector.recent().not_finite == {"actor/loss": 2}
    collector.clear()
    assert collector.recent() == RecentSteps()


def test_a_snapshot_carries_the_names_as_json() -> None:
    now = snapshot(metrics=StepMetrics(7, {"a": 1.0}, {"actor/loss": "nan", "b": "-inf"}))
    assert decode_snapshot(encode_snapshot(now)).metrics == now.metrics
    assert b'"not_finite":{"actor/loss":"nan","b":"-inf"}' in encode_snapshot(now)


# --- rewards ----------------------------------------------------------------------------------------------


def test_a_flat_reward_is_found_without_trials() -> None:
    symptom = look(collected(*rewards(*[0.0] * 5, spread=0.0)))["reward_flat"]
    assert symptom.severity == "warning" and symptom.title == "the reward is flat at 0 for 5 steps"
    assert "from the first step on" in symptom.cause and "infrastructure" in symptom.fix
    assert symptom.evidence[0].text == "step 5: reward 0"
    assert look(collected(*rewards(*[0.0] * 4, spread=0.0))) == {}


@pytest.mark.parametrize(
    ("means", "spread", "flat"),
    [
        ([0.25] * 5, None, True),  # only the mean is known
        ([0.25] * 4 + [0.26], None, False),
        ([0.25] * 5, 1.0, False),  # by chance the same mean
        ([0.0, 1.0, 0.0, 1.0, 1.0], 0.0, True),
        ([0.5, 0.25, 0.25, 0.25, 0.25, 0.25], None, True),
    ],
)
def test_what_counts_as_flat(means: list[float], spread: float | None, flat: bool) -> None:
    assert ("reward_flat" in look(collected(*rewards(*means, spread=spread)))) is flat


def test_a_reward_that_is_flat_because_all_is_solved_is_worth_a_note() -> None:
    symptom = look(collected(*rewards(*[1.0] * 6, spread=0.0)))["reward_flat"]
    assert symptom.severity == "info" and "harder" in symptom.fix
    assert symptom.title == "the tasks are solved: reward 1 since step 1"
    assert "from step 1 to step 6" in symptom.cause
    later = look(collected(*rewards(0.5, spread=0.5), *rewards(*[0.0] * 5, spread=0.0)))["reward_flat"]
    assert "from the first step on" not in later.cause


def test_without_tool_calls_the_flat_reward_has_another_cause_and_a_single_step_is_not_told_twice() -> None:
    recent = collected(*rewards(*[0.0] * 5, spread=0.0))
    silent = snapshot(trials=TrialsStatus(steps=(StepTrials(5, 8, 8, 4, 0.0),)))
    assert look(recent, silent) == {}
    calling = snapshot(trials=TrialsStatus(steps=(StepTrials(5, 8, 8, 3, 0.0),)))
    assert look(recent, calling).keys() == {"reward_flat"}
    same = snapshot()
    heads = tuple(replace(h, reward=0.0, state="finished") for h in same.trials.newest)
    equal = snapshot(trials=TrialsStatus(newest=heads, steps=(StepTrials(7, 8, 8, 1, 0.0),)))
    assert len(list(rewards_equal(Window(equal, None, RunContext())))) == 1
    assert list(rewards_equal(Window(equal, None, RunContext(recent=recent)))) == [Resolved("rewards_equal")]


# --- gradients, entropy, divergences, turns ---------------------------------------------------------------

NORM, ESS = "actor/grad_norm", "rollout_corr/rollout_is_eff_sample_size"


def test_a_gradient_of_zero_although_rewards_differ() -> None:
    found = look(collected(*joined(rows(NORM, 0.0, 0.0, 0.0), rewards(0.5, 0.4, 0.6, spread=1.0))))
    assert found["gradient_zero"].evidence[0].text == f"step 3: {NORM} 0"
    for norms, spread in (((0.0, 0.0, 1e-9), 1.0), ((0.0, 0.0), 1.0), ((0.0, 0.0, 0.0), 0.0)):
        near = joined(rows(NORM, *norms), rewards(*[0.5] * len(norms), spread=spread))
        assert look(collected(*near)) == {}
    assert look(collected(*rows(NORM, 0.0, 0.0, 0.0))) == {}, "nothing is known of the rewards"


@pytest.mark.parametrize(
    ("newest", "ess", "before", "fires"),
    [(0.03, 0.06, 10, True), (0.041, 0.06, 10, False), (0.03, 0.5, 10, False), (0.03, 0.06, 9, False)],
)
def test_a_starved_gradient_needs_a_low_sample_size(
    newest: float, ess: float, before: int, fires: bool
) -> None:
    recent = collected(*rows(NORM, *[0.4] * before), *[{NORM: newest, ESS: ess}] * 3)
    assert ("gradient_starved" in look(recent)) is fires
    assert look(collected(*rows(NORM, *[0.4] * before, *[newest] * 3))) == {}, "no importance weights"


ENTROPY = "actor/entropy"


@pytest.mark.parametrize(
    ("entropies", "last_reward", "fires"),
    [
        ([1.0] * 10 + [0.09] * 3, 0.3, True),
        ([1.0] * 10 + [0.11, 0.09, 0.09], 0.3, False),
        ([1.0] * 9 + [0.09] * 3, 0.3, False),
        ([1.0] * 10 + [0.09] * 3, 0.31, False),  # it has learned
    ],
)
def test_an_entropy_that_collapses(entropies: list[float], last_reward: float, fires: bool) -> None:
    means = [0.3] * (len(entropies) - 3) + [last_reward] * 3
    found = look(collected(*joined(rows(ENTROPY, *entropies), rewards(*means, spread=1.0))))
    assert (found.keys() == {"entropy_collapsed"}) is fires and bool(found) is fires
    if fires:
        assert found["entropy_collapsed"].title == "the entropy has collapsed from 1 to 0.09"


@pytest.mark.parametrize("key", ["actor/ppo_kl", "actor/kl_loss", "actor/reward_kl_penalty"])
def test_a_divergence_that_explodes(key: str) -> None:
    assert look(collected(*rows(key, 0.01, 0.01, 0.01, -0.11))).keys() == {"kl_exploded"}
    for near in ((0.001, 0.001, 0.001, 0.1), (0.02, 0.02, 0.02, 0.2), (0.0, 0.0, 0.5), (0.3, 0.3, 0.3, 0.3)):
        assert look(collected(*rows(key, *near))) == {}, near
    assert look(collected(*rows(key, 0.0, 0.0, 0.0, 0.5), {})) == {}, "an earlier step"


TURNS = "num_turns/mean"


@pytest.mark.parametrize(
    ("turns", "last_reward", "fires"),
    [
        ([10.0] * 10 + [2.0, 4.0, 3.0], 0.2, True),
        ([10.0] * 10 + [2.0, 4.1, 3.0], 0.2, False),
        ([10.0] * 10 + [2.0, 4.0, 3.0], 0.5, False),  # shorter trials with the same reward
        ([3.9] * 10 + [2.0] * 3, 0.2, False),
        ([10.0] * 9 + [2.0] * 3, 0.2, False),
    ],
)
def test_trials_that_stop_calling_tools_over_the_steps(
    turns: list[float], last_reward: float, fires: bool
) -> None:
    means = [0.5] * (len(turns) - 3) + [last_reward] * 3
    columns = joined(rows(TURNS, *turns), rewards(*means, spread=1.0))
    found = look(collected(*columns))
    assert (found.keys() == {"turns_collapsed"}) is fires and bool(found) is fires
    dropped = [{**row, "trajectory_filter/invalid_ratio": 0.2} for row in columns]
    assert look(collected(*dropped)) == {}


@pytest.mark.parametrize("who", ["trainer", "rollouter"])
def test_who_waits_in_asynchronous_training(who: str) -> None:
    key = f"fully_async/{who}/idle_ratio"
    symptom = look(collected(*rows(key, 0.51, 0.6, 0.7)))[f"{who}_idle"]
    assert symptom.severity == "info" and "70%" in symptom.title
    assert look(collected(*rows(key, 0.7, 0.5, 0.7))) == look(collected(*rows(key, 0.7, 0.7))) == {}


STATIC = "fully_async/static/"


@pytest.mark.parametrize(
    ("who", "limits", "fix"),
    [
        (
            "trainer",
            {"max_concurrent_samples": 16, "max_required_samples": 256, "staleness_threshold": 0.1},
            "so that 32 prompts run at a time on all replicas together, not 16",
        ),
        (
            "trainer",
            {"max_concurrent_samples": 200, "max_required_samples": 256, "staleness_threshold": 0.1},
            "so that 256 prompts run at a time on all replicas together, not 200",
        ),
        (
            "trainer",
            {"max_concurrent_samples": 256, "max_required_samples": 256, "staleness_threshold": 0.0},
            "allows no more than 256 prompts at a time: raise verl.fully_async.staleness_threshold from 0 to 0.1",
        ),
        (
            "trainer",
            {"max_concurrent_samples": 256, "max_required_samples": 256, "staleness_threshold": 1.0},
            "allows no more than 256 prompts at a time: give the rollouts more GPUs",
        ),
        (
            "trainer",
            {},
            "raise verl.fully_async.concurrent_samples_per_replica, for example to twice as many",
        ),
        ("rollouter", {"staleness_threshold": 0.4}, "verl.fully_async.staleness_threshold from 0.4 to 0.8"),
        ("rollouter", {"staleness_threshold": 0.7}, "verl.fully_async.staleness_threshold from 0.7 to 1"),
        ("rollouter", {"staleness_threshold": 1.0}, "give the trainer more GPUs and the rollouts fewer"),
        ("rollouter", {}, "raise verl.fully_async.staleness_threshold, at most to 1"),
    ],
)
def test_which_key_helps_who_waits_and_its_next_value(who: str, limits: dict[str, float], fix: str) -> None:
    also = {f"{STATIC}{name}": value for name, value in limits.items()}
    columns = [{**row, **also} for row in rows(f"fully_async/{who}/idle_ratio", 0.6, 0.6, 0.6)]
    assert fix in look(collected(*columns))[f"{who}_idle"].fix


DROPPED = "fully_async/count/dropped_stale_samples"


@pytest.mark.parametrize(
    ("counts", "fires"),
    [
        ((0, 1, 3, 6), True),
        ((5, 6, 7, 9), True),
        ((0, 1, 3, 3), False),
        ((0, 0, 3, 6), False),
        ((1, 3, 6), False),
        ((4, 4, 4, 4), False),
    ],
)
def test_samples_that_a_full_queue_throws_away(counts: tuple[int, ...], fires: bool) -> None:
    columns = [{**row, f"{STATIC}max_concurrent_samples": 24.0} for row in rows(DROPPED, *map(float, counts))]
    found = look(collected(*columns))
    assert bool(found) is fires
    if fires:
        symptom = found["samples_dropped"]
        assert symptom.title == f"{counts[-1] - counts[0]} finished samples were thrown away in 3 steps"
        assert "so that 12 prompts run at a time and not 24" in symptom.fix


def test_a_critic_that_does_not_learn() -> None:
    norm, variance = "critic/grad_norm", "critic/vf_explained_var"
    assert look(collected(*rows(norm, 31.0, 40.0, 30.1))).keys() == {"critic_collapsed"}
    assert look(collected(*rows(norm, 31.0, 30.0, 31.0))) == {}
    assert look(collected(*rows(variance, *[0.3] * 50))).keys() == {"critic_collapsed"}
    assert (
        look(collected(*rows(variance, *[0.3] * 49)))
        == look(collected(*rows(variance, *[0.3] * 49, 0.31)))
        == {}
    )


def test_the_limits_themselves() -> None:
    before, means = [1.0] * 10, rewards(*[0.5] * 10, *[0.2] * 3, spread=1.0)
    assert look(collected(*joined(rows(ENTROPY, *before, 0.1, 0.05, 0.05), means))) == {}, "exactly a tenth"
    assert look(collected(*joined(rows(TURNS, *[4.0] * 10, 2.0, 2.0, 2.0), means))).keys() == {
        "turns_collapsed"
    }
    some = [{**row, "trajectory_filter/invalid_ratio": 0.1} for row in rows(TURNS, *[10.0] * 10, *[2.0] * 3)]
    assert look(collected(*joined(some, means))).keys() == {"turns_collapsed"}
    few = joined(rows(NORM, *[0.0] * 3), [{"critic/score/mean": 0.5, "critic/score/max": 1.0}] * 3)
    assert look(collected(*few)) == {}, "no lowest reward is known"


@pytest.mark.parametrize("key", [ENTROPY, TURNS, NORM])
def test_a_metric_that_the_newest_steps_do_not_report_is_not_judged(key: str) -> None:
    """In asynchronous training the rollouter reports a step before the trainer does, so one step may lack it."""
    columns = joined(rows(key, *[10.0] * 12, *[0.05] * 3), [{ESS: 0.06}] * 15)
    other = {"critic/score/mean": 0.5}
    assert look(collected(*columns, other, other)) == {}
    assert look(collected(*columns, other)) == look(collected(*columns))


def test_what_is_said_of_a_critic_and_of_a_reward_that_is_flat_at_last() -> None:
    norm = look(collected(*rows("critic/grad_norm", 31.0, 40.0, 30.1)))["critic_collapsed"]
    assert "was above 30 for 3 steps" in norm.cause
    variance = look(collected(*rows("critic/vf_explained_var", *[0.3] * 50)))["critic_collapsed"]
    assert "was at most 0.3 for 50 steps" in variance.cause
    solved = look(collected(*rewards(*[1.0] * 5, spread=0.0)))["reward_flat"]
    assert "from the first step on" not in solved.cause


def test_a_step_that_is_read_again_is_one_step() -> None:
    collector = StepCollector()
    collector.add(
        [StepMetrics(1, {}, {"actor/loss": "nan"}), StepMetrics(2, {"a": 1.0}, {"actor/loss": "nan"})]
    )
    collector.add([StepMetrics(2, {"a": 2.0}, {"actor/loss": "nan"})])
    assert [step.values for step in collector.recent().steps] == [{}, {"a": 2.0}]
    assert collector.recent().not_finite == {"actor/loss": 1}
    collector.add([StepMetrics(1, {}, {"actor/loss": "nan"})])
    assert collector.recent().not_finite == {"actor/loss": 1}
