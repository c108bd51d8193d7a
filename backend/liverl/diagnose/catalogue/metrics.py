"""Rules for the trainer's metrics over several steps. They need only a metrics file, so no trials. Pure.

Where the reference documents give a limit, it is named beside it; where they give none, a metric is compared with the
run's own earlier steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import fmean, median

from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import IN_A_ROW, evidence, newest, reward_course
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.diagnose.catalogue.groups import complete_step, groups_of
from liverl.diagnose.catalogue.reward_levels import CAN_FAIL, KEEP, level_of
from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Evidence, RewardCourse, StepMetrics, Symptom
from liverl.observe.metrics.names import LEARNED, keys_of
from liverl.observe.metrics.recent import RecentSteps
from liverl.observe.metrics.rewards import solved_of
from liverl.observe.metrics.solved import FULL, LONG

# Steps in a row after which a reward counts as flat. Of one step alone ``rewards_equal`` tells (verl.md §6: "score.max
# == score.min for k steps"; k is an estimate: a small batch is degenerate by chance now and then, liverl.md §7 T9).
FLAT_STEPS = 5
BEFORE = 10  # steps before these, at least, to compare with
AN_ORDER = 10.0  # "an order below own baseline" (liverl.md §7 T4)
LOW_ESS = 0.5  # effective sample size as a share; 0.99 is healthy (§8), 0.06 starved the gradient (T4)
FAR_KL = 0.1  # ten times what §8 gives as the largest healthy divergence, 0.01
# verl counts the prompt and the reply: a trial without a tool call has two turns (verl.md §5)
SINGLE_TURN = 2.0
MANY_TURNS = 4.0  # ... and one with at least one tool call has four
BAD_CRITIC, BAD_CRITIC_STEPS = 0.3, 50  # T20: explained variance, steps in a row
CRITIC_NORM = 30.0  # T20: gradient norm of the critic, for ``IN_A_ROW`` steps
_KL = ("actor/ppo_kl", "actor/kl_loss", "actor/reward_kl_penalty")
_NORM, _RATE, _ESS = "actor/grad_norm", "actor/lr", "rollout_corr/rollout_is_eff_sample_size"
_ENTROPY = "actor/entropy"
_ADVANTAGES = ("critic/advantages/max", "critic/advantages/min")
_NAN = {"nan": "NaN", "inf": "infinite", "-inf": "infinite"}
# In the order in which they are computed; all others of the actor, and the norm of its gradient, come last.
_SCORE = "critic/score"  # what the reward function or a verifier returned
_OF_REWARDS = (_SCORE, "critic/rewards", "critic/advantages", "critic/returns")
_COMPUTED = (*_OF_REWARDS, "critic/", "actor/loss")
_TURNS = ("num_turns/mean", "training/num_turns/mean")
_REWARDS = keys_of("reward")
_ROUNDING = 1e-9


def metrics_not_finite(window: Window) -> Iterator[Symptom | Resolved]:
    """A metric of what is trained is NaN or infinite in the newest step. verl goes on and saves such weights; only an
    update whose gradient norm is not finite is skipped (knowledge/verl.md, error table 2 and 51).

    - only ``actor/grad_norm`` is not finite -> verl skips such updates, and the weights are as before: lower
      ``algorithm.learning_rate`` if it comes again
    - it is so from step 1 on -> the batch has nothing to train on: ``liverl-tui trials show TRIAL --tokens`` shows
      whether its mask has any token
    - the first metric that is not finite is of rewards or advantages -> a reward is NaN: look at the reward function,
      for the trials of that step
    - the first one is of the loss or the policy -> the weights have diverged: go back to a checkpoint before it
      (``liverl-tui checkpoints ls``), with a lower ``algorithm.learning_rate``
    - the cause says that the updates were skipped -> its checkpoints can be used: ``liverl-tui up --resume RUN``
      after the correction
    """
    now, since = window.now.metrics, window.beside.recent.not_finite
    bad = {} if now is None else {k: v for k, v in now.not_finite.items() if k.startswith(LEARNED)}
    if now is None or not bad:
        return
    first = {key: min(since.get(key, now.step), now.step) for key in bad}
    order = sorted(bad, key=lambda one: (first[one], _depth(one), one))
    key = order[0]
    skipped, begin = updates_skipped(window), first[key]
    yield Symptom(
        id="metrics_not_finite",
        severity="warning" if list(bad) == [_NORM] else "critical",
        title=f"{key} is {_NAN.get(bad[key], bad[key])} since step {begin}"
        if len(bad) == 1
        else f"{key} and {len(bad) - 1} more are NaN or infinite since step {begin}",
        cause=_nan_cause(key, begin, skipped),
        fix="lower algorithm.learning_rate; compare the probabilities of engine and trainer in the steps before"
        if list(bad) == [_NORM]
        else _nan_fix(key, begin, skipped),
        evidence=tuple(Evidence(f"{one}: {bad[one]} since step {first[one]}") for one in order[:SHOWN]),
        step=begin,
    )


def _nan_cause(key: str, begin: int, skipped: bool) -> str:
    """``key``: the metric that is computed first of those that are NaN since step ``begin``."""
    scored = key.startswith(_SCORE)
    lead = "a reward is not finite, and so is all that is computed from it; " if scored else ""
    if skipped:
        return (
            f"{lead}the trainer skips an update whose gradient is not finite: it learns nothing from such a step, "
            "and the weights stay as they were"
        )
    others = "the loss or the weights have diverged, or no token of the batch is trained (a response mask of zeros); "
    return f"{lead or others}do not use checkpoints of step {begin} and later"


def _nan_fix(key: str, begin: int, skipped: bool) -> str:
    """As ``_nan_cause``."""
    if key.startswith(_SCORE):
        mend = "correct what computes the rewards: it must return a finite number for any reply"
        if begin <= 1:
            return f"stop the run; {mend}; then start it anew"
    elif begin <= 1:
        return "stop the run; check whether its trials have tokens to train on, and finite rewards"
    elif key.startswith(_OF_REWARDS):
        mend = f"look at the rewards of step {begin}, which these are computed from"
    else:
        mend = "lower algorithm.learning_rate"
    if skipped:
        return f"stop the run if it still trains; {mend}; then resume it: its checkpoints can be used"
    return (
        f"stop the run if it still trains; {mend}; resume it from a checkpoint of step {begin - 1} or earlier: "
        + GO_BACK
    )


def updates_skipped(window: Window) -> bool:
    """Whether the gradient of the newest step is not finite, for which verl skips the update, while the policy is."""
    bad = window.now.metrics.not_finite if window.now.metrics is not None else {}
    return _NORM in bad and _ENTROPY not in bad


def _depth(key: str) -> int:
    """How many quantities a metric is computed from: what is computed first is the cause of what follows."""
    return next((place for place, name in enumerate(_COMPUTED) if key.startswith(name)), len(_COMPUTED))


@silent_while_broken
def reward_flat(window: Window) -> Iterator[Symptom | Resolved]:
    """In each of the newest ``FLAT_STEPS`` steps all trials had the same reward; where only the mean of a step is
    known, it is exactly the same in all of these steps. The same alert, with another title, says that all or nearly
    all tasks are solved. It is not raised if half of the trials called no tool, which is then the cause
    (``zero_tool_calls``).

    - the title says that the tasks are solved -> stop, or use harder tasks; first check one trial, whether its
      verifier can fail
    - the reward is the lowest in all steps, and tools returned errors or nothing (``liverl-tui trials show TRIAL``)
      -> the tools, the sandbox or its network are broken: correct those first
    - the reward is the lowest, the tools work, and a good answer got it, too -> the verifier or the reward function
      is wrong: try it by hand on that answer
    - the reward is the lowest, and the answers are bad -> the tasks are too hard: easier ones, a stronger model, or a
      reward for parts of the task
    - the reward is another value, the same for good and bad answers -> the reward function does not tell them apart;
      ``reward_model`` of the rows may all be alike
    """
    recent = window.beside.recent
    newest = next((s for s in window.now.trials.steps if s.judged), None)
    if newest is not None and 2 * newest.zero_tool_calls >= newest.judged:
        return
    steps, top = flat_steps(recent), solved(window)
    if top is not None:
        yield _solved(recent, top)
        return
    if not steps:
        yield Resolved("reward_flat")
        return
    rewards = [reward for step in steps if (reward := _reward(step)) is not None]
    begin, exact = _flat_from(recent, steps)
    before = (_reward(step) for step in recent.steps if step.step < steps[0].step)
    level = level_of(min(rewards), (reward for reward in before if reward is not None))
    low = max(rewards) <= 0.0
    first = begin == (recent.earlier or recent.steps)[0].step
    value = " to ".join(f"{end:g}" for end in sorted({min(rewards), max(rewards)}))
    count = max(len(steps), steps[-1].step - begin + 1)
    yield Symptom(
        id="reward_flat",
        severity="warning" if low else "info",
        title=f"the tasks are solved: reward {value} since step {begin}{'' if exact else ' at the latest'}"
        if level == "solved"
        else f"the reward is flat at {value} for {'' if exact else 'at least '}{count} steps",
        cause=f"from step {begin}{'' if exact else ' at the latest'} to step {steps[-1].step} all trials of a step had "
        f"the same reward, {value}: "
        + (_SOLVED if level == "solved" else "all advantages are zero, so the policy learns nothing")
        + ("; it has been so from the first step on" if first and low else ""),
        fix="check infrastructure before hyperparameters: open a trial and look at its tool results, at the output of "
        "its verifier, and whether its sandbox can reach what the tests need; if all is right, the tasks are too hard"
        if low
        else _HARDER
        if level == "solved"
        else "all tasks give the same reward: use harder tasks, or check that the verifier can fail",
        evidence=_rewards(steps),
        step=begin,
    )


_SOLVED = "the policy solves every task, so there is nothing left to learn from them"
_HARDER = f"{KEEP}; {CAN_FAIL}"


def solved(window: Window) -> RewardCourse | None:
    """That the tasks are (nearly) all solved, for at least ``FLAT_STEPS`` steps; None if they are not. The steps of a
    file alone are judged as those of a run are."""
    recent = window.beside.recent
    points = [point for point in reward_course(recent) if isfinite(point[1])]
    if not points:
        return None
    course = window.now.rewards.course or solved_of(points)
    if course is None or course.verdict not in ("solved", "nearly_solved") or course.since is None:
        return None
    if points[-1][0] - course.since + 1 < FLAT_STEPS:
        return None
    inside = [step for step in recent.steps if step.step >= course.since]
    return None if any((_most(step) or 0.0) > FULL for step in inside) else course


def _solved(recent: RecentSteps, course: RewardCourse) -> Symptom:
    steps = [s for s in recent.steps if s.step >= (course.since or 0) and _reward(s) is not None]
    some = steps[-LONG:]
    mean = fmean(reward for step in some if (reward := _reward(step)) is not None)
    every = course.verdict == "solved"
    return Symptom(
        id="reward_flat",
        severity="info",
        title=f"the tasks are solved: reward 1 since step {course.since}"
        if every
        else f"the tasks are nearly all solved since step {course.since}",
        cause=f"from step {course.since} to step {steps[-1].step} all trials of a step had the reward 1: {_SOLVED}"
        if every
        else f"from step {course.since} to step {steps[-1].step} a trial failed only now and then, the mean reward of "
        f"the newest {len(some)} is {mean:.3f}: there is little left to learn from these tasks",
        fix=_HARDER,
        evidence=_rewards(steps),
        step=course.since,
    )


def _rewards(steps: Sequence[StepMetrics]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(f"step {step.step}: reward {_reward(step):g}", value=_reward(step))
        for step in reversed(steps[-SHOWN:])
    )


def _flat_from(recent: RecentSteps, steps: Sequence[StepMetrics]) -> tuple[int, bool]:
    """The first step with the flat reward of ``steps``, the newest: further back than each step is kept, as far as the
    means of the earlier ones show it; and whether it is that step: it may be an earlier one of the mean before it."""
    if steps[0].step != recent.steps[0].step:
        return steps[0].step, True
    begin, value = steps[0].step, _reward(steps[0])
    for at in range(len(recent.earlier) - 1, -1, -1):
        one = recent.earlier[at]
        if _spread(one) or _reward(one) is None or abs((_reward(one) or 0.0) - (value or 0.0)) > _ROUNDING:
            return begin, one.step - (recent.earlier[at - 1].step if at else 0) == 1
        begin = recent.earlier[at - 1].step + 1 if at else 1
    return begin, True


def flat_steps(recent: RecentSteps) -> tuple[StepMetrics, ...]:
    """The newest steps in a row with a flat reward, if they are ``FLAT_STEPS`` at least; empty otherwise."""
    found: list[StepMetrics] = []
    for step in reversed(recent.steps):
        if _reward(step) is None:
            continue
        spread = _spread(step)
        if spread is None:
            if found and abs((_reward(step) or 0.0) - (_reward(found[-1]) or 0.0)) > 0.0:
                break
        elif spread > 0.0:
            break
        found.append(step)
    return tuple(reversed(found)) if len(found) >= FLAT_STEPS else ()


@silent_while_broken
def gradient_zero(window: Window) -> Iterator[Symptom | Resolved]:
    """The gradient norm was 0 in the newest ``IN_A_ROW`` steps although the rewards of their trials differ. Where the
    trainer reports its advantages, or the trials show their groups, the alert says which cause it is.

    - the trials of a task all have the same reward, for each task (``critic/advantages/max`` is 0) -> take tasks of
      middling difficulty, or raise ``training.n_resp_per_prompt``
    - they have, and their texts are the same (``liverl-tui trials diff TRIAL``) -> go on from an earlier checkpoint
      with a lower ``algorithm.learning_rate``
    - the rewards of a task differ -> ``liverl-tui trials show TRIAL --tokens`` shows whether its mask has any token;
      if it has, no weight is trained: look at what is frozen in ``trainer.overrides``
    """
    steps = newest(window.beside.recent, _NORM)
    if not steps or any(step.values[_NORM] != 0.0 or not _spread(step) for step in steps):
        return
    cause, fix = {
        False: (
            "within each group of trials all rewards are the same, so all advantages are 0 and nothing is learned",
            "use tasks of middling difficulty, or raise training.n_resp_per_prompt; if the trials of a task are the "
            "same text (liverl-tui trials diff TRIAL), the policy has lost its entropy: go on from an earlier "
            "checkpoint with a lower algorithm.learning_rate",
        ),
        True: (
            "they differ within groups of trials, too, so all tokens are masked, or the weights are frozen",
            "check the trainer's response mask (liverl-tui trials show TRIAL --tokens), and whether any weight "
            "is trained",
        ),
        None: (
            "within each group of trials all rewards may be the same, all tokens may be masked, or the weights are "
            "frozen",
            "compare the rewards of the trials of one task: if they are the same for each task, use tasks of middling "
            "difficulty or raise training.n_resp_per_prompt; if they differ, check the trainer's response mask",
        ),
    }[_groups_differ(window, steps)]
    yield Symptom(
        id="gradient_zero",
        severity="warning",
        title=f"the gradient has been 0 for {len(steps)} steps",
        cause=f"{_NORM} was 0 from step {steps[0].step} to step {steps[-1].step} although the rewards differ: {cause}",
        fix=fix,
        evidence=(*evidence(steps, _NORM), *evidence(steps[-1:], _ADVANTAGES[0])),
    )


def _groups_differ(window: Window, steps: Sequence[StepMetrics]) -> bool | None:
    """Whether the rewards of one group of trials differ in any of these steps, the newest; None if that is not
    known. Advantages are relative to the group, and verl reports the largest and the smallest of all of them."""
    if all(key in step.values for step in steps for key in _ADVANTAGES):
        return not all(no_advantage(step) for step in steps)
    step = complete_step(window.now)
    groups = {} if step is None or step.step < steps[0].step else groups_of(window.now, step)
    judged = [set(rewards) for rewards in groups.values() if len(rewards) > 1]
    return any(len(rewards) > 1 for rewards in judged) if judged else None


def no_advantage(step: StepMetrics) -> bool:
    """Whether a step reports that all advantages were 0, although the rewards of its trials differ."""
    return all(step.values.get(key) == 0.0 for key in _ADVANTAGES) and bool(_spread(step))


@silent_while_broken
def gradient_starved(window: Window) -> Iterator[Symptom | Resolved]:
    """The gradient norm is an order of magnitude below what it was, and few samples carry the importance weights."""
    recent = window.beside.recent
    steps, usual = newest(recent, _NORM), _usual(recent, _NORM)
    if not steps or not usual or any(step.values.get(_ESS, 1.0) >= LOW_ESS for step in steps):
        return
    if not all(0.0 < step.values[_NORM] * AN_ORDER < usual for step in steps):
        return
    yield Symptom(
        id="gradient_starved",
        severity="warning",
        title=f"the gradient norm has fallen from {usual:.3g} to {steps[-1].values[_NORM]:.3g}",
        cause=f"the effective sample size of the importance weights is {steps[-1].values[_ESS]:.2g}: a few samples "
        "carry all of the weight, as happens with weights per sequence on long responses",
        fix="set training.rollout_is to token, or to null for no importance weights",
        evidence=(*evidence(steps, _NORM), *evidence(steps, _ESS)),
    )


@silent_while_broken
def entropy_collapsed(window: Window) -> Iterator[Symptom | Resolved]:
    """The entropy is an order of magnitude below that of the first steps that are known, and the reward has not risen
    since. A rise of the reward would explain it: a policy that learns its tasks loses entropy, too.

    - the reward is falling -> resume from a checkpoint before the fall with half of ``algorithm.learning_rate``
    - the reward stands still, and the trials of a prompt are nearly the same text (``liverl-tui trials diff TRIAL``)
      -> raise ``algorithm.entropy_coeff``
    - a divergence of the policy has grown as well (``kl_exploded``) -> set ``algorithm.use_kl_loss: true``
    """
    recent = window.beside.recent
    for key in keys_of("entropy"):
        steps = newest(recent, key)
        values = recent.values(key)
        if not steps or len(values) < IN_A_ROW + BEFORE:
            continue
        usual = median(values[:IN_A_ROW])
        if any(step.values[key] * AN_ORDER >= usual for step in steps) or not _reward_fell(recent):
            return
        yield Symptom(
            id="entropy_collapsed",
            severity="warning",
            title=f"the entropy has collapsed from {usual:.3g} to {steps[-1].values[key]:.3g}",
            cause=f"{key} is less than a tenth of what it was, while the reward has not risen: the policy gives nearly "
            "the same answer each time, so that the trials of a group no longer differ",
            fix="resume from an earlier checkpoint with a lower algorithm.learning_rate, a higher "
            f"algorithm.entropy_coeff, or algorithm.use_kl_loss: true; {GO_BACK}",
            evidence=evidence(steps, key),
        )
        return


@silent_while_broken
def kl_exploded(window: Window) -> Iterator[Symptom | Resolved]:
    """A divergence of the policy is above ``FAR_KL`` and ten times its own median before. Zero is normal with one
    update per batch (knowledge/liverl.md §7 T19)."""
    recent = window.beside.recent
    for key in _KL:
        values = [abs(value) for value in recent.values(key)]
        if not recent.steps or key not in recent.steps[-1].values or len(values) <= IN_A_ROW:
            continue
        usual, value = median(values[:-1][-BEFORE:]), values[-1]
        if value <= FAR_KL or value <= AN_ORDER * usual:
            continue
        step = recent.steps[-1].step
        yield Symptom(
            id="kl_exploded",
            severity="warning",
            title=f"{key} has risen to {value:.3g}",
            cause=f"{key} was {value:.3g} in step {step}, and {usual:.3g} usually: one update has moved the policy far "
            "from the one that wrote the rollouts, or from the reference",
            fix="lower algorithm.learning_rate, or algorithm.clip_ratio_low and algorithm.clip_ratio_high; if the "
            f"reward falls in the next steps, resume from an earlier checkpoint; {GO_BACK}",
            evidence=evidence(recent.steps[-IN_A_ROW:], key),
        )
        return


@silent_while_broken
def turns_collapsed(window: Window) -> Iterator[Symptom | Resolved]:
    """Trials have gone from several turns to about one while the reward fell: the policy has stopped calling tools
    (knowledge/liverl.md §7 T7). It is not raised if many trajectories are dropped: ``trajectories_dropped`` says that.
    """
    recent = window.beside.recent
    for key in _TURNS:
        steps, values = newest(recent, key), recent.values(key)
        if not steps or len(values) < IN_A_ROW + BEFORE:
            continue
        usual = median(values[:BEFORE])
        limit = SINGLE_TURN + (usual - SINGLE_TURN) / 4
        dropped = any(step.values.get("trajectory_filter/invalid_ratio", 0.0) > 0.1 for step in steps)
        if usual < MANY_TURNS or dropped or any(step.values[key] > limit for step in steps):
            return
        if not _reward_fell(recent, strictly=True):
            return
        yield Symptom(
            id="turns_collapsed",
            severity="warning",
            title=f"trials have shrunk from {usual:.1f} to {steps[-1].values[key]:.1f} messages",
            cause=f"{key} (messages of both sides, so with the prompt and tool results) has fallen to that of trials "
            "without tool calls while the reward fell: the policy has learned to stop calling tools",
            fix="stop the run; resume from a checkpoint before that with a lower algorithm.learning_rate, and reward "
            f"trials without a tool call less than those that fail; {GO_BACK}",
            evidence=evidence(steps, key),
        )
        return


def critic_collapsed(window: Window) -> Iterator[Symptom | Resolved]:
    """The critic explains nothing of the returns for ``BAD_CRITIC_STEPS`` steps, or its gradient norm is above
    ``CRITIC_NORM`` for ``IN_A_ROW`` steps (knowledge/liverl.md §7 T20)."""
    recent = window.beside.recent
    norm, variance = "critic/grad_norm", "critic/vf_explained_var"
    wild = newest(recent, norm)
    blind = newest(recent, variance, BAD_CRITIC_STEPS)
    if wild and all(step.values[norm] > CRITIC_NORM for step in wild):
        steps, key = wild, norm
    elif blind and all(step.values[variance] <= BAD_CRITIC for step in blind):
        steps, key = blind, variance
    else:
        return
    yield Symptom(
        id="critic_collapsed",
        severity="warning",
        title=f"the critic does not learn: {key} {steps[-1].values[key]:.3g}",
        cause=f"{key} was {'above' if key == norm else 'at most'} "
        f"{CRITIC_NORM if key == norm else BAD_CRITIC:g} for {len(steps)} steps: the advantages are noise; a weak "
        "critic with batches of failures only has this effect",
        fix="whiten the advantages, clip the critic's gradient at 10, and warm the critic up before the actor",
        evidence=evidence(steps[-SHOWN:], key),
    )


# --- joins ----------------------------------------------------------------------------------------------


def _reward(step: StepMetrics) -> float | None:
    return next((step.values[key] for key in _REWARDS if key in step.values), None)


def _spread(step: StepMetrics) -> float | None:
    """The highest reward of a step's trials minus the lowest; None if the step does not report them."""
    for key in _REWARDS:
        name = key.removesuffix("mean")
        if f"{name}max" in step.values and f"{name}min" in step.values:
            return step.values[f"{name}max"] - step.values[f"{name}min"]
    return None


def _most(step: StepMetrics) -> float | None:
    """The highest reward of a step's trials; None if the step does not report it."""
    names = (f"{key.removesuffix('mean')}max" for key in _REWARDS)
    return next((step.values[name] for name in names if name in step.values), None)


def _usual(recent: RecentSteps, key: str) -> float | None:
    """The median of a metric before the newest ``IN_A_ROW`` steps; None of fewer than ``BEFORE`` steps."""
    values = recent.values(key)[:-IN_A_ROW]
    return median(values) if len(values) >= BEFORE else None


def _reward_fell(recent: RecentSteps, *, strictly: bool = False) -> bool:
    """Whether the mean reward of the newest ``IN_A_ROW`` steps is below that of the first ones, or the same."""
    rewards = [reward for step in recent.steps if (reward := _reward(step)) is not None]
    if len(rewards) < 2 * IN_A_ROW:
        return False
    fell = fmean(rewards[:IN_A_ROW]) - fmean(rewards[-IN_A_ROW:])
    return fell > 0.0 if strictly else fell >= 0.0
