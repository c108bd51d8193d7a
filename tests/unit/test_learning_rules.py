"""The rules for metrics over a whole run: what fires each, and on which healthy histories none does."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from math import exp

import pytest
from kit.learning_histories import (
    CUT,
    DIFF,
    ENTROPY,
    GEN,
    KL,
    LENGTH,
    LONGEST,
    NORM,
    RATE,
    SCORE,
    SHORTEST,
    STEP,
    TOKENS,
    UPDATE,
    History,
    Run,
    Values,
    healthy,
    healthy_names,
    probes,
)
from kit.rules_table import RULES, fired, on_healthy, on_probe, probe_histories, table
from kit.screens import gpu, snapshot

from liverl.config.schema import leaves
from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.catalogue.step_times import steps_slow_down
from liverl.diagnose.tracker import RunContext, Window
from liverl.diagnose.training import judge_course
from liverl.model import StepMetrics, StepTime, Symptom
from liverl.observe.metrics.recent import MOST, THINNED, RecentSteps, StepCollector, of_steps


def history(rows: list[Values], first: int = 1) -> RecentSteps:
    return of_steps(StepMetrics(number, row) for number, row in enumerate(rows, first))


def judged(rows: list[Values], **facts: object) -> dict[str, Symptom]:
    return {one.id: one for one in judge_course(history(rows), **facts)}  # type: ignore[arg-type]


# --- the table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", probe_histories())
def test_each_rule_fires_on_its_probe(name: str) -> None:
    rule, _ = probe_histories()[name]
    assert on_probe(name).get(rule, 0) >= 10, "it fires, and not on the first steps"


def test_every_rule_has_a_probe() -> None:
    assert {rule for rule, _ in probes()} == set(RULES)
    assert len(RULES) == 12


@pytest.mark.parametrize("name", [f"{kind}: {name}" for name, kind in healthy_names()])
def test_no_rule_fires_on_a_healthy_history_at_any_step(name: str) -> None:
    assert not set(on_healthy(name)) & set(RULES)


def test_there_are_enough_healthy_histories_and_the_table_says_of_what_kind() -> None:
    kinds = [one.kind for one in healthy()]
    assert len(kinds) >= 20 and kinds.count("recorded") >= 10
    assert {"recorded", "simulated"} == set(kinds)
    assert all(one.steps for one in healthy()), "a recording that cannot be read would be silent, too"
    lines = list(table())
    assert lines[-1].endswith(f"{kinds.count('recorded')} recorded, {kinds.count('simulated')} simulated")
    assert not any("fires at step   -" in line for line in lines)


# --- noise, and the unit of a metric ------------------------------------------------------------------------


def noise(seed: int, spread: float, steps: int = 120) -> History:
    """Numbers that vary by chance and have no trend. ``spread``: standard deviation of their logarithms."""
    run = Run(seed)
    rows = [
        run.step(
            score=run.score(0.3, 32),
            entropy=run.around(0.4, spread),
            norm=run.around(0.3, spread),
            length=run.around(2000.0, spread),
            step=run.around(100.0, spread),
            kl=run.around(4e-4, spread),
            diff=run.around(2e-3, spread / 2),
        )
        for _ in range(steps)
    ]
    return History(f"noise {seed}", "simulated", tuple(StepMetrics(n, row) for n, row in enumerate(rows, 1)))


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6])
def test_noise_raises_an_alert_in_at_most_one_run_of_forty(spread: float) -> None:
    """Of 40 runs of 120 steps, each looked at after every fifth step: 960 looks at twelve rules."""
    raised = []
    for seed in range(40):
        collector = StepCollector()
        for step in noise(seed, spread).steps:
            collector.add([step])
            if step.step % 5 == 0:
                raised += [(seed, one.id) for one in judge_course(collector.recent()) if one.id in RULES]
    assert len({seed for seed, _ in raised}) <= 1, raised


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize(
    "rule", ["entropy_rises", "length_explodes", "gradient_grows", "steps_slow_down", "reward_fell"]
)
def test_a_rule_does_not_depend_on_the_unit_of_its_metric(rule: str, factor: float) -> None:
    """Divergences, effective sample sizes and shares have no unit; what has one is compared with itself only."""
    own = {ENTROPY, LENGTH, LONGEST, NORM, STEP, GEN, UPDATE, SCORE, TOKENS}
    for name, probe in probes():
        if name == rule:
            steps = tuple(
                StepMetrics(one.step, {k: v * factor if k in own else v for k, v in one.values.items()})
                for one in probe.steps
            )
            assert fired(probe._replace(steps=steps))[rule] == fired(probe)[rule]


@pytest.mark.parametrize("seed", range(8))
def test_a_gradient_that_grows_is_found_in_noise(seed: int) -> None:
    """Verl's FAQ in numbers of a real run: a tenth more each step, beside usual noise."""
    run = Run(seed)
    rows = [run.step(norm=run.around(0.3 * 1.1**n, 0.3)) for n in range(40)]
    found = fired(History("grows", "simulated", tuple(StepMetrics(n, row) for n, row in enumerate(rows, 1))))
    assert found.get("gradient_grows", 99) <= 35


# --- the policy ---------------------------------------------------------------------------------------------


def runaway(reward: float, steps: int = 40) -> list[Values]:
    run = Run(3)
    return [
        run.step(entropy=0.3 * exp(n / 10), score=run.score(max(0.0, 0.5 + reward * n))) for n in range(steps)
    ]


def test_entropy_that_rises_is_an_alert_only_while_the_reward_falls() -> None:
    found = judged(runaway(-0.015))["entropy_rises"]
    assert found.severity == "critical", "the reward is below a third of its best"
    assert "algorithm.entropy_coeff: 0.0" in found.fix
    assert "entropy_rises" not in judged(runaway(0.0)) and "entropy_rises" not in judged(runaway(0.01))
    assert judged(runaway(-0.006))["entropy_rises"].severity == "warning"


def test_the_alert_names_the_step_at_which_it_began() -> None:
    run = Run(1)
    rows = [
        run.step(entropy=0.3 * exp(max(0, n - 50) / 10), score=run.score(0.5 - max(0, n - 50) / 70))
        for n in range(80)
    ]
    found = judged(rows)["entropy_rises"]
    (begun,) = re.findall(r"since step (\d+)", found.cause)
    assert 45 <= int(begun) <= 55 and f"step {begun} or earlier" in found.fix


def test_of_two_alerts_about_one_thing_the_one_with_the_reason_is_told() -> None:
    found = judged(runaway(-0.015))
    assert "reward_fell" not in found and "entropy_rises" in found


@pytest.mark.parametrize(
    ("before", "after", "falls"),
    [(0.6, 0.15, True), (0.6, 0.25, False), (-1.0, -3.5, True), (-1.0, -2.5, False)],
)
def test_a_reward_has_fallen_below_a_third_of_its_best(before: float, after: float, falls: bool) -> None:
    """Of negative rewards, which have no third, three times the best."""
    chance = random.Random(2)
    rows = [{SCORE: (before if n < 30 else after) + chance.gauss(0, 0.02)} for n in range(60)]
    assert ("reward_fell" in judged(rows)) == falls


def test_a_best_reward_is_remembered_for_thousands_of_steps() -> None:
    run = Run(4)
    rows = [
        run.step(score=run.score(0.6 if 100 < n < 160 else max(0.05, 0.4 - n / 6000))) for n in range(2500)
    ]
    found = judged(rows)["reward_fell"]
    assert found.title.startswith("the reward has fallen from 0.")
    (best,) = re.findall(r"from step (\d+) on", found.cause)
    assert 60 <= int(best) <= 200


# --- gradients ----------------------------------------------------------------------------------------------


def growing(**values: float) -> list[Values]:
    return [{NORM: 0.25 * 1.25**n, **{k.replace("__", "/"): v for k, v in values.items()}} for n in range(14)]


LONG = {"prompt_length__mean": 9000.0, "response_length__mean": 20000.0}
SHORT = {"prompt_length__mean": 100.0, "response_length__mean": 300.0}
CASCADE = "verl.disable_cascade_attn"


@pytest.mark.parametrize(
    ("values", "gpus", "versions", "says", "not_said"),
    [
        ({}, (), (), "verl.calculate_log_probs: true", CASCADE),
        ({"diff": 0.002}, (), (), "halve algorithm.learning_rate", CASCADE),
        ({"diff": 0.02, **LONG}, ("NVIDIA A100-SXM4",), ("0.10.1",), f"set {CASCADE}: true (", " if "),
        ({"diff": 0.02}, (), (), "if the GPUs are not Hopper and vLLM is 0.10.2 or older and the texts are long", "$"),
        ({"diff": 0.02, **LONG}, ("NVIDIA H100 80GB HBM3",), ("0.10.1",), "compare the data types", CASCADE),
        ({"diff": 0.02, **LONG}, ("NVIDIA L20",), ("0.11.0",), "compare the data types", CASCADE),
        ({"diff": 0.02, **SHORT}, ("NVIDIA B200",), ("0.9.2",), "compare the data types", CASCADE),
        ({"diff": 0.02, **LONG}, ("NVIDIA H200", "NVIDIA L20"), (), "if vLLM is 0.10.2 or older", "Hopper"),
    ],
)  # fmt: skip
def test_the_three_conditions_of_the_faq_are_weighed(
    values: dict[str, float], gpus: tuple[str, ...], versions: tuple[str, ...], says: str, not_said: str
) -> None:
    rows = growing(**{DIFF if key == "diff" else key: value for key, value in values.items()})
    cards = [gpu(n, name=name) for n, name in enumerate(gpus)]
    found = judged(rows, gpus=cards, engine_versions=versions)
    assert says in found["gradient_grows"].fix and not_said not in found["gradient_grows"].fix
    if values.get("diff", 0.0) > 0.01:
        cascade = "disable_cascade_attn" in found["gradient_grows"].fix
        assert ("disable_cascade_attn" in found["rollout_mismatch"].fix) == cascade, (
            "one judge for both alerts"
        )


def test_a_gradient_that_grows_while_the_rate_warms_up_is_no_fault() -> None:
    rows = [{NORM: 0.1 * 1.2**n, RATE: 1e-6 * (n + 1)} for n in range(30)]
    assert judged(rows) == {}
    after = [{NORM: rows[-1][NORM] * 1.2**n, RATE: 3e-5} for n in range(15)]
    assert "gradient_grows" in judged(rows + after), "but when it goes on behind the warm-up"


def test_one_spike_is_none_and_steps_without_a_gradient_are_left_out() -> None:
    run = Run(5)
    usual = [run.step() for _ in range(40)]
    assert judged([row | ({NORM: 99.0} if n in (35, 38) else {}) for n, row in enumerate(usual)]) == {}
    assert judged([row | ({NORM: 0.0} if n % 2 else {}) for n, row in enumerate(usual)]) == {}


# --- weights ------------------------------------------------------------------------------------------------


def drifting(reward: float = 0.0, kl: float = 3e-4, by: float = 1.1, **more: float) -> list[Values]:
    run = Run(6)
    return [run.step(kl=kl * by**n, score=run.score(0.3 + reward * n)) | more for n in range(40)]


def test_a_divergence_that_grows_from_near_zero_says_that_weights_do_not_arrive() -> None:
    found = judged(drifting(**{"training/rollout_actor_probs_pearson_corr": 0.8}))
    assert found["weights_not_delivered"].severity == "critical"
    assert "replicas still have the first policy" in found["weights_not_delivered"].cause
    assert "rollout_mismatch" not in found, "the cause is told, not what it brings about"


@pytest.mark.parametrize(
    "rows",
    [drifting(0.015), drifting(kl=5e-3), drifting(by=1.0), [r | {KL: -abs(r[KL])} for r in drifting(by=1.0)]],
    ids=["the reward rises", "far from the beginning", "does not grow", "negative"],
)
def test_another_divergence_does_not(rows: list[Values]) -> None:
    assert "weights_not_delivered" not in judged(rows)


def test_a_divergence_that_has_stopped_to_grow_does_not() -> None:
    """Rollouts that run ahead: it rises for 15 steps, as the first weights arrive ever later, and stays there."""
    run = Run(6)
    rows = [run.step(kl=run.around(2e-4 + 4e-3 * min(1.0, n / 15), 0.1)) for n in range(60)]
    assert "weights_not_delivered" not in judged(rows)


def test_a_trainer_that_reports_no_divergence_is_judged_by_its_probabilities() -> None:
    rows = [{DIFF: 0.001 * 1.08**n, SCORE: 0.3 + 0.01 * (n % 3)} for n in range(40)]
    assert "weights_not_delivered" in judged(rows)


# --- responses and times ------------------------------------------------------------------------------------


def test_a_share_of_the_longest_is_no_share_of_the_limit() -> None:
    """verl compares with the longest response of the batch, which differs from step to step without a limit."""
    run = Run(8)
    assert judged([run.step(cut=0.5, longest=run.around(6000.0, 0.01)) for _ in range(30)]) == {}
    assert judged([run.step(cut=0.5, longest=6000.0 + n) for n in range(30)]) == {}, (
        "the newest one is the longest"
    )
    found = judged([run.step(cut=0.5, longest=8192.0) for _ in range(30)])
    assert found["truncated_share"].severity == "info", "so it was from the first step on"
    assert "training.max_response_length: 16384" in found["truncated_share"].fix
    more = judged([run.step(cut=0.01 * n, longest=8192.0) for n in range(40)])
    assert more["truncated_share"].severity == "warning"
    assert judged([run.step(cut=0.25, longest=8192.0) for _ in range(30)]) == {}, "exactly a quarter"


def test_responses_of_one_length_are_cut_only_if_the_reward_fell() -> None:
    run = Run(8)
    same = {LENGTH: 64.0, LONGEST: 64.0, SHORTEST: 64.0, CUT: 1.0}
    assert judged([run.step() | same for _ in range(40)]) == {}
    assert "truncated_share" in judged([run.step(score=0.5 - 0.008 * n) | same for n in range(40)])


@pytest.mark.parametrize(
    ("part", "says"), [(GEN, "sandboxes"), (UPDATE, "nvidia-smi"), ("timing_s/update_weights", "network")]
)
def test_the_part_that_has_grown_is_named(part: str, says: str) -> None:
    run = Run(9)
    rows = []
    for n in range(50):
        row, more = run.step(), 10.0 * max(0, n - 15)
        rows.append(row | {part: row.get(part, 2.0) + more, STEP: row[STEP] + more})
    found = judged(rows)["steps_slow_down"]
    assert f"{part.removeprefix('timing_s/')} has grown most" in found.cause and says in found.fix
    assert found.evidence[0].text.startswith(f"{part}: ")


# Seconds of the steps of a run whose host had other work now and then. It raised the alert eight times.
BUSY_HOST = """14.2 14.7 13.4 7.5 8.0 9.0 11.5 12.0 7.9 9.5 10.3 9.9 10.9 10.6 5.7 5.5 5.8 5.6 9.6 8.0 5.9 6.2 7.1 7.6
10.0 8.7 11.5 10.7 11.9 6.1 7.0 8.7 7.6 7.1 7.5 7.3 8.7 8.5 10.7 6.1 9.9 11.1 9.2 11.7 13.6 10.0 13.0 7.8 9.6 12.9 13.6
11.2 11.3 11.9 9.4 10.5 11.5 8.9 9.7 8.0 8.1 9.5 12.2 10.1 12.2 15.6 14.4 10.4 13.4 13.6 12.9 12.0 10.1 10.9 8.6 7.5 8.7
6.7 5.9 8.6 6.1 6.8 8.8 6.8 7.8 7.5 7.5 8.4 6.4 8.0 8.5 7.9 6.3 6.0 5.5 4.9 5.1 6.6 6.8 5.9 6.5 7.4 6.3 5.7 4.9 5.9 7.3
7.8 8.1 6.0 8.2 6.6 7.6 8.7 7.9 9.7 6.9 7.1 18.2 17.6 18.8 16.1 11.4 8.2 8.9 11.4 8.2 8.0 7.8 7.0 7.8 10.1 8.6 13.8 11.2
11.8 12.6 9.8 11.4 13.7 13.0 12.8 9.2 5.8 8.3 8.8 13.9 14.0 12.2 12.1 15.0 9.6 8.9 10.8"""


def test_steps_as_long_as_at_the_beginning_are_not_slow() -> None:
    """Beside the fastest five steps in a row of a run, its usual ones took three times as long."""
    collector, found = StepCollector(), []
    for number, seconds in enumerate(map(float, BUSY_HOST.split()), 1):
        collector.add([StepMetrics(number, {STEP: seconds, GEN: seconds - 0.05})])
        found += [
            (number, one.title) for one in judge_course(collector.recent()) if one.id == "steps_slow_down"
        ]
    assert found == []


def test_slow_steps_are_compared_with_the_first_ones() -> None:
    rows = [
        {STEP: seconds + 0.1 * (n % 3)} for n, seconds in enumerate([5.0] * 10 + [4.0] * 20 + [15.0] * 10)
    ]
    found = judged(rows)["steps_slow_down"]
    assert found.title == "steps take 3.0 times as long as at the beginning"
    assert found.cause.startswith("a step took 5.1 s up to step 5, and takes 15.1 s now")
    assert found.step is None and "CPUs are full" not in found.fix


def test_full_cpus_come_first_in_what_to_do() -> None:
    recent = history(
        [{STEP: seconds + 0.1 * (n % 3), GEN: seconds} for n, seconds in enumerate([5.0] * 20 + [15.0] * 10)]
    )
    for full in (True, False, None):
        now = snapshot(step=30, metrics=recent.steps[-1], step_time=StepTime(10, 5.0, {}, cpus_full=full))
        (found,) = steps_slow_down(Window(now, None, RunContext(recent=recent)))
        assert isinstance(found, Symptom) and found.fix.startswith("stop other programs") == (full is True)


def test_a_part_of_the_rollouts_is_evidence() -> None:
    (slow,) = (one for rule, one in probes() if rule == "steps_slow_down" and one.kind == "simulated")
    found = {one.id: one for one in judge_course(of_steps(slow.steps))}["steps_slow_down"]
    assert any(one.text.startswith("timing_s/agent_loop/harbor_env_setup/mean: ") for one in found.evidence)


# --- how the steps come -------------------------------------------------------------------------------------


def test_in_asynchronous_training_two_programs_report_a_step() -> None:
    """The rollouter's record comes first; the alert does not go away until the trainer's follows."""
    collector = StepCollector()
    for number, row in enumerate(growing(), 1):
        collector.add([StepMetrics(number, {"fully_async/rollouter/idle_ratio": 0.1})])
        if number > 11:
            assert "gradient_grows" in {one.id for one in judge_course(collector.recent())}
        collector.add([StepMetrics(number, row)])
    (step, *_) = collector.recent().steps
    assert step.values == {"fully_async/rollouter/idle_ratio": 0.1, NORM: 0.25}


def test_a_step_that_was_reported_again_has_what_was_said_last() -> None:
    recent = of_steps(
        [
            StepMetrics(1, {"a": 1.0, "b": 1.0}, {"c": "nan"}),
            StepMetrics(1, {"a": 2.0, "c": 0.0}, {"b": "inf"}),
        ]
    )
    assert recent.steps == (StepMetrics(1, {"a": 2.0, "c": 0.0}, {"b": "inf"}),)
    assert recent.not_finite == {"b": 1}


@pytest.mark.parametrize("count", [1, MOST, MOST + 1, MOST + THINNED, MOST + THINNED + 1, 5000])
def test_earlier_steps_are_kept_as_means_of_equally_many(count: int) -> None:
    recent = history([{"a": float(n)} for n in range(1, count + 1)])
    assert len(recent.steps) == min(count, MOST) and len(recent.earlier) <= THINNED
    course = recent.course("a")
    assert course == sorted(course) and course[-1] == (count, float(count))
    if count > MOST:
        earlier = [step.values["a"] for step in recent.earlier]
        assert recent.earlier[-1].step == count - MOST
        widths = {round(later - before, 6) for before, later in pairwise(earlier[:-1])}
        assert len(widths) <= 1, "the last one may still be filled"


def test_a_trainer_that_goes_back_takes_its_later_steps_back() -> None:
    collector = StepCollector()
    collector.add([StepMetrics(n, {"a": 1.0}) for n in range(1, 501)])
    collector.add([StepMetrics(n, {"a": 9.0}) for n in range(201, 221)])
    steps = [step for step, _ in collector.recent().course("a")]
    assert steps == sorted(set(steps)) and steps[-1] == 220
    assert all(value == (9.0 if step > 200 else 1.0) for step, value in collector.recent().course("a"))
    collector.clear()
    assert collector.recent() == RecentSteps()


# --- sentences ----------------------------------------------------------------------------------------------


def test_titles_are_short_and_fixes_name_keys_that_exist() -> None:
    sections = {key.partition(".")[0] for key in leaves()}
    every = [one for _, probe in probes() for one in judge_course(of_steps(probe.steps)) if one.id in RULES]
    assert {one.id for one in every} >= set(RULES) - {"gradient_spikes"}
    for one in every:
        assert len(one.title) <= 60, one.title
        named = re.findall(r"\b([a-z_]+\.[a-z_]+)\b", re.sub(r"[a-z_]+(\.[a-z_]+){2,}", "", one.fix))
        ours = [key for key in named if key.partition(".")[0] in sections]
        assert all(key in leaves() for key in ours), (one.id, ours)
        assert one.evidence and one.cause and one.fix


def test_they_need_only_a_metrics_file_and_judge_nothing_without_one() -> None:
    assert judge_course(RecentSteps()) == ()
    assert set(RULES) <= {name for rule in FILE_RULES for name in rule.ids}
    assert judge_course(history([{"some/other": 1.0}] * 50)) == ()
