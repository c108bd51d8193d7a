"""Histories of a training's metrics: healthy ones, recorded or simulated, and those that a rule must fire on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from math import exp
from pathlib import Path
from typing import NamedTuple

from liverl.model import StepMetrics
from liverl.observe.metrics.step_lines import parse_metrics_record, parse_step_line, validation_only

DATA = Path(__file__).parents[1] / "data"
LEARNING, RECORDINGS = DATA / "learning", DATA / "recordings"
Values = dict[str, float]
Steps = tuple[StepMetrics, ...]
SCORE, ENTROPY, NORM, RATE = "critic/score/mean", "actor/entropy", "actor/grad_norm", "actor/lr"
LENGTH, LONGEST, SHORTEST = "response_length/mean", "response_length/max", "response_length/min"
CUT, ABORTED, KL, ESS = (
    "response_length/clip_ratio",
    "response/aborted_ratio",
    "rollout_corr/kl",
    "rollout_corr/rollout_is_eff_sample_size",
)
DIFF, PARTIAL = "training/rollout_probs_diff_mean", "fully_async/partial/partial_ratio"
STEP, GEN, UPDATE, TOKENS = (
    "timing_s/step",
    "timing_s/gen",
    "timing_s/update_actor",
    "perf/total_num_tokens",
)


class History(NamedTuple):
    """The steps of a run. ``kind``: recorded (of a real run) or simulated."""

    name: str
    kind: str
    steps: tuple[StepMetrics, ...]


def read(path: Path) -> tuple[StepMetrics, ...]:
    """The steps of a file of metrics or of a trainer's console."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        step = parse_metrics_record(line.encode()) if line.startswith("{") else parse_step_line(line)
        if step is not None and not validation_only(step.values):
            found.append(step)
    return tuple(found)


class Run:
    """Simulates a healthy run of verl: every number varies from step to step as it does in recorded ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def around(self, value: float, spread: float) -> float:
        """A value that varies by chance, by the factor ``exp(spread)`` usually."""
        return value * exp(self.random.gauss(0.0, spread))

    def score(self, mean: float, trials: int = 64) -> float:
        """The share of trials that succeed where each does with probability ``mean``."""
        return sum(self.random.random() < mean for _ in range(trials)) / trials

    def step(self, **changed: float) -> Values:
        """The metrics of a step; ``changed`` by the names of this module's constants in lower case."""
        length = self.around(2000.0, 0.1)
        gen, update = self.around(60.0, 0.15), self.around(30.0, 0.1)
        values = {
            SCORE: self.score(0.4),
            ENTROPY: self.around(0.4, 0.08),
            NORM: self.around(0.3, 0.3),
            RATE: 1e-6,
            LENGTH: length,
            LONGEST: min(8192.0, self.around(6000.0, 0.1)),
            SHORTEST: self.around(200.0, 0.3),
            CUT: 1 / 64,
            ABORTED: 0.0,
            KL: self.random.gauss(3e-4, 1e-4),
            DIFF: self.around(2e-3, 0.1),
            GEN: gen,
            UPDATE: update,
            STEP: gen + update + self.around(5.0, 0.1),
            TOKENS: 64 * (length + 500.0),
        }
        return values | {globals()[name.upper()]: value for name, value in changed.items()}


def _steps(rows: list[Values], first: int = 1) -> tuple[StepMetrics, ...]:
    return tuple(StepMetrics(number, row) for number, row in enumerate(rows, first))


# --- healthy: what a user's algorithm makes normal --------------------------------------------------------


def _steady(run: Run) -> list[Values]:
    return [run.step() for _ in range(120)]


def _learns(run: Run) -> list[Values]:
    """The reward rises, the entropy falls to a tenth."""
    return [
        run.step(score=run.score(0.2 + 0.006 * n), entropy=run.around(0.5 * exp(-n / 40), 0.08))
        for n in range(100)
    ]


def _warm_up(run: Run) -> list[Values]:
    """20 steps of warm-up, in which the gradient grows to six times what it was."""
    rates = [min(1.0, (n + 1) / 20) for n in range(80)]
    return [run.step(rate=1e-6 * rate, norm=run.around(0.05 + 0.25 * rate, 0.2)) for rate in rates]


def _length_curriculum(run: Run) -> list[Values]:
    """The limit is doubled every 25 steps; the reward dips at each change and rises over all."""
    rows = []
    for n in range(100):
        limit = 1024.0 * 2 ** (n // 25)
        score = run.score(0.3 + 0.003 * n - (0.1 if n % 25 < 4 and n > 4 else 0.0))
        length = run.around(limit / 3, 0.1)
        seconds = run.around(60.0 * 2 ** (n // 25), 0.1)
        rows.append(
            run.step(score=score, length=length, longest=limit, cut=0.1, step=seconds, tokens=64 * length)
        )
    return rows


def _reasons_longer(run: Run) -> list[Values]:
    """The policy learns to think: six times as long, with a reward that rises, and steps that take as much longer."""
    rows = []
    for n in range(100):
        length = run.around(800.0 * exp(n / 55), 0.1)
        rows.append(
            run.step(
                score=run.score(0.2 + 0.005 * n),
                length=length,
                longest=run.around(3 * length, 0.1),
                tokens=64 * length,
                step=run.around(length / 20, 0.1),
                gen=run.around(length / 30, 0.1),
            )
        )
    return rows


def _entropy_bonus(run: Run) -> list[Values]:
    """An entropy bonus raises the entropy to four times what it was; the reward holds."""
    return [run.step(entropy=run.around(0.3 + 0.01 * n, 0.08)) for n in range(100)]


def _validates(run: Run) -> list[Values]:
    """Validation every five steps, counted in the step's time; its scores are in the same line."""
    rows = []
    for n in range(60):
        row = run.step()
        if n % 5 == 4:
            row |= {"timing_s/testing": 400.0, STEP: row[STEP] + 400.0, "val-core/swe/reward/mean@1": 0.3}
        rows.append(row)
    return rows


def _saves(run: Run) -> list[Values]:
    """From step 30 on, every step saves a checkpoint, which takes as long as the step."""
    rows = []
    for n in range(60):
        row = run.step()
        rows.append(row | {"timing_s/save_checkpoint": 120.0, STEP: row[STEP] + 120.0} if n >= 30 else row)
    return rows


def _rollouts_ahead(run: Run) -> list[Values]:
    """Asynchronous: the divergence rises in the first five steps, to what older weights explain, and stays there."""
    return [
        run.step(
            kl=run.around(3e-4 + 2.5e-3 * min(1.0, n / 5), 0.2),
            ess=min(1.0, run.around(0.85, 0.05)),
            partial=min(1.0, run.around(0.3, 0.2)),
        )
        for n in range(80)
    ]


def _rare_rewards(run: Run) -> list[Values]:
    """One trial of fifty succeeds."""
    return [run.step(score=run.score(0.02), norm=run.around(0.1, 0.8)) for _ in range(150)]


def _penalties(run: Run) -> list[Values]:
    """Rewards below zero, which rise."""
    return [run.step(score=-1.0 + 0.007 * n + run.random.gauss(0.0, 0.08)) for n in range(100)]


def _mixed_signs(run: Run) -> list[Values]:
    """Rewards of -1 and 1 with a mean near zero."""
    return [run.step(score=2 * run.score(0.5) - 1) for _ in range(120)]


def _small_batches(run: Run) -> list[Values]:
    """Eight trials a step: nothing is sure."""
    return [
        run.step(score=run.score(0.3, 8), norm=run.around(0.3, 0.6), entropy=run.around(0.4, 0.25))
        for _ in range(120)
    ]


def _wild_gradients(run: Run) -> list[Values]:
    """Norms that differ by a factor of two from step to step."""
    return [run.step(norm=run.around(0.3, 0.7)) for _ in range(120)]


def _solved(run: Run) -> list[Values]:
    """All tasks are solved from step 40 on: no gradient."""
    rows = [run.step(score=run.score(min(1.0, 0.3 + 0.02 * n))) for n in range(80)]
    return [row | ({NORM: 0.0, SCORE: 1.0} if n > 40 and n % 4 else {}) for n, row in enumerate(rows)]


def _one_length(run: Run) -> list[Values]:
    """All responses have the same length, which is the longest of the batch."""
    return [run.step(length=64.0, longest=64.0, shortest=64.0, cut=1.0) for _ in range(60)]


def _long(run: Run) -> list[Values]:
    """2000 steps, in which the reward rises slowly."""
    return [run.step(score=run.score(0.2 + 0.0002 * n)) for n in range(2000)]


def _decays(run: Run) -> list[Values]:
    """The learning rate falls to zero, and what the updates change with it."""
    return [run.step(rate=1e-6 * (1 - n / 100), norm=run.around(0.3 - 0.002 * n, 0.2)) for n in range(100)]


def _other_names(run: Run) -> list[Values]:
    """A trainer that reports few metrics, under other names."""
    names = {SCORE: "critic/rewards/mean", ENTROPY: "actor/entropy_loss", STEP: "perf/time_per_step"}
    return [{name: row[key] for key, name in names.items()} for row in (run.step() for _ in range(60))]


def _signal_now_and_then(run: Run) -> list[Values]:
    """Three of ten steps have a task that is solved now and then; the others have the small gradient of a KL loss."""
    return [run.step(norm=run.around(0.3 if run.random.random() < 0.3 else 0.01, 0.2)) for _ in range(120)]


def _first_successes(run: Run) -> list[Values]:
    """The first tasks are solved after 30 steps, and more and more: the gradient grows thirtyfold with them."""
    rows = []
    for n in range(100):
        solved = min(0.6, max(0.0, 0.01 * (n - 30)))
        signal = run.random.random() < 10 * solved
        rows.append(run.step(score=run.score(solved), norm=run.around(0.3 if signal else 0.01, 0.2)))
    return rows


def _comes_back(run: Run) -> list[Values]:
    """Gradient, divergence and times fall to a fifth of what they were, and grow again to nearly what they were."""
    rows = []
    for n in range(120):
        share = 0.2 + 0.7 * abs(n - 60) / 60
        seconds = run.around(95.0 * share, 0.1)
        kl, norm = run.around(4e-3 * share, 0.1), run.around(0.9 * share, 0.1)
        rows.append(run.step(norm=norm, kl=kl, gen=seconds * 0.6, update=seconds * 0.3, step=seconds))
    return rows


_SIMULATED: tuple[Callable[[Run], list[Values]], ...] = (
    _comes_back,
    _steady,
    _learns,
    _warm_up,
    _length_curriculum,
    _reasons_longer,
    _entropy_bonus,
    _validates,
    _saves,
    _rollouts_ahead,
    _rare_rewards,
    _penalties,
    _mixed_signs,
    _small_batches,
    _wild_gradients,
    _solved,
    _one_length,
    _long,
    _decays,
    _other_names,
    _signal_now_and_then,
    _first_successes,
)


def _resumed(run: Run) -> tuple[StepMetrics, ...]:
    """Stopped after step 47 and resumed from the checkpoint of step 40: seven steps again, the first of which takes ten
    times as long, and whose optimizer begins anew."""
    first = _steps([run.step() for _ in range(47)])
    again = [run.step(step=900.0, norm=4.0), run.step(norm=3.5), *(run.step() for _ in range(40))]
    return (*first, *_steps(again, 41))


def _simulated(make: Callable[[Run], list[Values]], seed: int) -> Steps:
    return _steps(make(Run(seed)))


def _healthy() -> Iterator[tuple[str, str, Callable[[], Steps]]]:
    """Name, kind and what makes the steps of each healthy history."""
    for path in sorted(LEARNING.glob("embedded-*.jsonl")):
        yield path.stem, "recorded", partial(read, path)
    for name in (
        "h200_run/trainer.log",
        "h200_run/standalone.log",
        "h200/verl.log",
        "verl_cpu/run6steps.stdout.log",
    ):
        yield name, "recorded", partial(read, RECORDINGS / name)
    yield "fully-async-2-hosts", "recorded", partial(read, LEARNING / "fully-async-2-hosts.jsonl")
    for seed, make in enumerate(_SIMULATED):
        name = make.__name__.strip("_").replace("_", " ")
        yield name, "simulated", partial(_simulated, make, seed)
    yield "resumed", "simulated", lambda: _resumed(Run(99))


def healthy_names() -> list[tuple[str, str]]:
    """Name and kind of each healthy history, of which none is made: each worker that collects tests asks."""
    return [(name, kind) for name, kind, _ in _healthy()]


@cache
def healthy() -> tuple[History, ...]:
    """Histories on which no rule may fire: recorded on CPUs and on H200s, and simulated."""
    return tuple(History(name, kind, steps()) for name, kind, steps in _healthy())


# --- what rules must fire on ------------------------------------------------------------------------------


def _spikes(run: Run) -> list[Values]:
    return [run.step(norm=50.0 if n in (40, 44, 48) else run.around(0.3, 0.2)) for n in range(50)]


def _aborts(run: Run) -> list[Values]:
    return [run.step(aborted=0.0 if n < 20 else 0.1) for n in range(30)]


def _falls(run: Run) -> list[Values]:
    return [run.step(score=run.score(0.5 if n < 40 else max(0.02, 0.5 - 0.05 * (n - 40)))) for n in range(60)]


def _slows_down(run: Run) -> list[Values]:
    """From step 20 on the sandboxes start ever more slowly (liverl.md §7 R2)."""
    rows = []
    for n in range(60):
        more = max(0.0, 8.0 * (n - 20))
        row = run.step()
        row |= {
            GEN: row[GEN] + more,
            STEP: row[STEP] + more,
            "timing_s/agent_loop/harbor_env_setup/mean": 30.0 + more,
        }
        rows.append(row)
    return rows


def _breaks(run: Run) -> list[Values]:
    """The update of step 30 destroys the weights."""
    broken = {
        "cut": 1.0,
        "length": 8192.0,
        "longest": 8192.0,
        "shortest": 8192.0,
        "entropy": 0.004,
        "score": 0.0,
    }
    return [*(run.step(longest=8192.0) for _ in range(30)), *(run.step(**broken) for _ in range(20))]


def probes() -> Iterator[tuple[str, History]]:
    """Rule -> a history on which it fires."""

    def logged(name: str) -> History:
        return History(name, "probe", read(LEARNING / f"{name}.log"))

    def made(make: Callable[[Run], list[Values]]) -> History:
        return History(make.__name__.strip("_").replace("_", " "), "simulated", _steps(make(Run(7))))

    yield "policy_broken", made(_breaks)
    yield "entropy_rises", logged("entropy-rises")
    yield "length_explodes", logged("truncation-rises")
    yield "truncated_share", logged("truncation-rises")
    yield "steps_slow_down", logged("truncation-rises")
    yield "steps_slow_down", made(_slows_down)
    yield "gradient_grows", logged("truncation-rises")
    yield "gradient_grows", logged("fully-async")
    yield "gradient_spikes", made(_spikes)
    yield "reward_fell", logged("entropy-falls-control")
    yield "reward_fell", made(_falls)
    yield "weights_not_delivered", logged("lora-not-delivered")
    yield "sample_size_low", logged("fully-async")
    yield "rollouts_partial", logged("fully-async")
    yield "responses_aborted", made(_aborts)
