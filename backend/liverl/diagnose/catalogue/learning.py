"""Rules for what the policy learns from: rewards, and the trainer's own metrics. Pure.

The limits are those of the reference documents: verl's FAQ, and the pages on scaling and on training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from liverl.diagnose.catalogue.asynchronous import fresher
from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import evidence, newest, tells
from liverl.diagnose.catalogue.groups import complete_step, complete_steps, groups_of, heads_of, without_tools
from liverl.diagnose.catalogue.metrics import flat_steps, gradient_zero, no_advantage, solved
from liverl.diagnose.catalogue.off_policy import weights_not_delivered
from liverl.diagnose.catalogue.precision import weigh
from liverl.diagnose.catalogue.reward_levels import CAN_FAIL, KEEP, level_of
from liverl.diagnose.tracker import FEWEST, SHOWN, Resolved, Window
from liverl.model import Evidence, Snapshot, StepTrials, Symptom
from liverl.observe.metrics.recent import RecentSteps
from liverl.observe.metrics.solved import FULL
from liverl.util.plural import quantity

PROBS_DIFF = 0.01  # verl's FAQ: below 0.005 is normal, above this the engine's precision is off
PEARSON = 0.99  # of the probabilities that engine and trainer give a token; 0.999 is usual
ROLLOUT_KL = 0.01  # 3e-4 is usual
# Where the mean difference is that small, the divergence must be this many times larger: it is a mean of log ratios,
# which rare tokens rule. A healthy run on CPUs (recordings/verl_cpu/run6steps) had 0.067 at a difference of 0.0002.
VERY_FAR = 10.0
# Mean difference below which a correlation means nothing; healthy runs on H200 had up to 0.0014.
PEARSON_FROM = 0.002
BROKEN_PEARSON = 0.9  # 0.75 was measured where routing was corrupted: the policy then learns noise
# Share of groups whose rewards are all the same from which miles' advisory warns, and so many groups at least.
EQUAL_GROUPS, LEAST_GROUPS = 0.5, 8
AT_ONCE = 3.0  # times the difference of the step before: it has not grown there; an estimate
_MEASURES = (("training/rollout_probs_diff_mean", PROBS_DIFF), ("rollout_corr/kl", ROLLOUT_KL * VERY_FAR))
DROPPED = 0.1  # share (0..1) of trajectories that a filter drops
# LiveRL's reason for dropping a trajectory -> what helps (liverl.md §8; R5 for the sandbox)
_AGAINST = {
    "timeout": "raise harbor_agent.override_timeout_sec and max_timeout_sec to twice as much, or lower "
    "harbor_runtime.num_workers by half if the sandboxes are slow",
    "overlong": "raise training.max_response_length to twice as much, or let the agent summarise earlier turns",
    "max_turns_reached": "raise harbor_agent.max_iterations to twice as many",
    "env_setup_failed": "look why sandboxes do not start: it is no fault of the model; lower "
    "harbor_runtime.num_workers by half",
}
_UNKNOWN_REASON = (
    "check the reasons first; env_setup_failed and timeout are failures of the sandboxes, not of the model"
)


@silent_while_broken
def rewards_equal(window: Window) -> Iterator[Symptom | Resolved]:
    """All trials of the newest complete step, or of one that has ended since the look before, have the same reward. It
    is not raised if half of them called no tool, which is then the cause (``zero_tool_calls``), nor if the reward has
    been flat for several steps (``reward_flat``).

    - all rewards are the lowest, and the tools of a trial returned errors or nothing (``liverl-tui trials show
      TRIAL``) -> the tools or the sandbox are broken: correct those first
    - all rewards are the lowest, the tools work, and a good answer got it, too -> the verifier or the reward function
      is wrong: try it by hand on that answer
    - all rewards are the lowest, and the answers are bad -> the tasks are too hard: take easier ones, or a stronger
      model
    - all rewards are the highest, and a trial is as good as its reward says (``liverl-tui trials show TRIAL``) -> the
      step is solved: let the run go on, or leave out tasks that are always solved
    - all rewards are the highest, and a trial is not as good as that -> the verifier or the reward function cannot
      fail, or the policy has found a gap in it: close the gap, and go back to the checkpoint before it
      (``liverl-tui checkpoints back``)
    - all rewards are the same value between -> compare a good and a bad answer: if both got it, the reward function
      does not tell them apart; else use harder tasks
    """
    now = window.now
    if flat_steps(window.beside.recent) or solved(window) is not None:
        yield Resolved("rewards_equal")
        return
    step, reward = next(_steps_of_one_reward(window), (None, None))
    if step is None or reward is None:
        return
    seen = (one.mean_reward for one in now.trials.steps if one.mean_reward is not None)
    level = level_of(reward, seen)
    heads = heads_of(now, step)
    counted = sum(head.counted_reward is not None for head in heads)
    # Of a step that is not listed whole, it is not known how many have one.
    some = len(heads) == step.total and counted < step.total
    every = (
        f"{counted} of {step.total} trials of step {step.step} have a reward that counts, and all of these have "
        f"{reward:g}"
        if some
        else f"every trial of step {step.step} has the reward {reward:g}"
    )
    title, cause, fix = {
        "none": (
            f"no learning signal in step {step.step}",
            f"{every}: all advantages are zero, so the policy learns nothing from this step",
            "check the tool results and the verifier of a trial: tools that do nothing have the same effect as tasks "
            "that are too hard",
        ),
        "solved": (
            f"step {step.step} is solved: all rewards are {reward:g}",
            f"{every}: the policy solves these tasks in every trial, so there is nothing left to learn from them",
            f"{KEEP}, or leave out those that are always solved; {CAN_FAIL}",
        ),
        "same": (
            f"no learning signal in step {step.step}",
            f"{every}: all advantages are zero, so the policy learns nothing from this step",
            f"compare a good and a bad trial: the reward function gives both {reward:g}; if all are equally good, use "
            "harder tasks",
        ),
    }[level]
    yield Symptom(
        id="rewards_equal",
        severity="warning" if level == "none" else "info",
        title=title,
        cause=cause,
        fix=f"look first why the other {quantity(step.total - counted, 'trial')} have none; then {fix}"
        if some
        else fix,
        evidence=tuple(
            Evidence(f"{h.path}: reward {reward:g}", value=reward)
            for h in heads
            if h.counted_reward is not None
        )[:SHOWN],
        since=max(head.updated_at for head in heads),
        step=step.step,
    )


@silent_while_broken
def groups_equal(window: Window) -> Iterator[Symptom | Resolved]:
    """In each group of trials of the newest complete step all rewards are the same, though they differ from group to
    group: advantages are relative to the group, so all of them are zero (knowledge/liverl.md §7 T9). Of a step with
    more trials than are listed the trainer's own advantages say it. It is not raised if the gradient has been 0 for
    several steps (``gradient_zero``)."""
    now = window.now
    step = complete_step(now)
    if tells(gradient_zero, window):
        yield Resolved("groups_equal")
        return
    if step is None or without_tools(step):
        return
    groups = {name: rewards for name, rewards in groups_of(now, step).items() if len(rewards) > 1}
    if not groups:
        if now.metrics is None or now.metrics.step != step.step or not no_advantage(now.metrics):
            return
    elif len(groups) < 2 or any(min(rewards) != max(rewards) for rewards in groups.values()):
        return
    elif len({rewards[0] for rewards in groups.values()}) == 1:
        return  # ``rewards_equal``
    yield Symptom(
        id="groups_equal",
        severity="info",
        title=f"no group of step {step.step} has different rewards",
        cause=f"{_equal_words(step.step, groups, _trials_word(now, step))}: advantages are relative to the trials of "
        "the same task, so all are zero and the policy learns nothing from this step",
        fix="use tasks of middling difficulty, or raise training.n_resp_per_prompt; small batches have such steps by "
        "chance",
        evidence=tuple(
            Evidence(f"group {name}: {len(rewards)} trials, reward {rewards[0]:g}", value=rewards[0])
            for name, rewards in sorted(groups.items())[:SHOWN]
        )
        or (Evidence(f"step {step.step}: all advantages are 0", value=0.0),),
        since=max((head.updated_at for head in heads_of(now, step)), default=None),
        step=step.step,
    )


def _trials_word(now: Snapshot, step: StepTrials) -> str:
    """What those are called whose rewards are compared: ``trained trials`` where others are not trained."""
    return "trials" if all(head.counts for head in heads_of(now, step)) else "trained trials"


def _equal_words(step: int, groups: Mapping[str, Sequence[float]], trials: str) -> str:
    """What the ``trials`` of each group have got. ``groups``: the rewards of each; empty: only that they are the same
    in each is known."""
    of_each = sorted({rewards[0] for rewards in groups.values()})
    if not groups:
        return f"all {trials} of a task had the same reward in step {step}, in each task"
    if any(0.0 < reward < FULL for reward in of_each):
        return (
            f"all {trials} of a task had the same reward in each of the {len(groups)} tasks of step {step} "
            f"({of_each[0]:g} to {of_each[-1]:g})"
        )
    solved = sum(rewards[0] > 0.0 for rewards in groups.values())
    return (
        f"{solved} of {len(groups)} tasks of step {step} {'was' if solved == 1 else 'were'} solved in all "
        f"{trials}, the others in none"
    )


@silent_while_broken
def groups_mostly_equal(window: Window) -> Iterator[Symptom | Resolved]:
    """From at least ``EQUAL_GROUPS`` of the groups of the newest complete step nothing is learned, but not of all of
    them: all rewards of the group are the same, or none of its trials is trained. Small steps have such shares by
    chance.

    - the cause says that tasks had no trial that was trained -> correct first what ends those trials, which the alert
      ``trials_not_trained`` names: a group that failed says nothing about its task
    - all trials were trained -> leave out tasks that always have the same reward, or double
      ``training.n_resp_per_prompt``
    """
    now = window.now
    step = complete_step(now)
    if step is None or without_tools(step):
        return
    groups = groups_of(now, step)
    failed = sum(not rewards for rewards in groups.values())
    equal = {name: rewards for name, rewards in groups.items() if len(rewards) > 1 and len(set(rewards)) == 1}
    lost = failed + len(equal)
    if len(groups) < LEAST_GROUPS or not EQUAL_GROUPS <= lost / len(groups) < 1.0:
        return
    above = sum(rewards[0] > 0.0 for rewards in equal.values())
    why = [f"{failed} of {len(groups)} tasks had no trial that was trained"] if failed else []
    why += (
        [
            f"all {_trials_word(now, step)} of {len(equal)} of {len(groups)} tasks had the same reward (above 0 in "
            f"{above}, not in {len(equal) - above})"
        ]
        if equal
        else []
    )
    yield Symptom(
        id="groups_mostly_equal",
        severity="info",
        title=f"{lost} of {len(groups)} groups have no signal",
        cause=f"in step {step.step} {'; '.join(why)}: nothing is learned from these, and the update is as noisy as one "
        f"of {quantity(len(groups) - lost, 'task')}",
        fix="correct first what ends the trials that are not trained, which the alert trials_not_trained names: a "
        "group that failed is no reason to leave out its task"
        if failed
        else "leave out tasks whose trials always have the same reward, or double training.n_resp_per_prompt",
        evidence=tuple(
            Evidence(f"group {name}: {len(rewards)} trials, reward {rewards[0]:g}", value=rewards[0])
            if rewards
            else Evidence(f"group {name}: no trial was trained")
            for name, rewards in sorted(groups.items())
            if not rewards or name in equal
        )[:SHOWN],
    )


@silent_while_broken
def rollout_mismatch(window: Window) -> Iterator[Symptom | Resolved]:
    """The engine and the trainer give the same tokens different probabilities. It is not raised if the difference has
    grown from near 0: then new weights do not arrive (``weights_not_delivered``). A divergence that is estimated from
    samples varies from step to step, so it counts only if it is over its limit in each of the newest three steps.

    Cascade attention can be the cause only on GPUs other than Hopper, with long prompts, and with some versions of
    vLLM (knowledge/liverl.md §7 T13). The alert names it unless one of these three is known not to hold.

    - the difference is there from step 1 on, and the model is a mixture of experts -> set the two keys of the
      router's replay that the alert names
    - it is there from step 1 on, and engine and trainer have other data types (``vllm.dtype``; verl's log says the
      trainer's) -> give both the same
    - it is there from step 1 on, and the data types are the same -> compare the prompt of a trial with the chat
      template: ``liverl-tui trials show TRIAL --tokens``
    - the alert says that they agreed before -> look at what changed at that step (``liverl-tui events``): a replica or
      the trainer was started again, or one update was too large
    - the run is asynchronous (``standalone`` or fully async), and the difference grew when rollouts ran ahead ->
      lower ``verl.fully_async.staleness_threshold``, as the alert says
    - the alert names cascade attention first -> switch that off: ``verl.disable_cascade_attn: true``
    """
    metrics = window.now.metrics
    if metrics is None or tells(weights_not_delivered, window):
        return
    diff = metrics.values.get("training/rollout_probs_diff_mean")
    pearson = metrics.values.get("training/rollout_actor_probs_pearson_corr")
    kl = _divergence(window.beside.recent)
    off: list[Evidence] = []
    largest = ROLLOUT_KL
    if diff is not None and diff > PROBS_DIFF:
        off.append(Evidence(f"training/rollout_probs_diff_mean {diff:.4g}, above {PROBS_DIFF}", value=diff))
    if diff is not None and diff < PEARSON_FROM:
        pearson = None  # where all probabilities are nearly 1, only noise is left, which has no correlation
        largest *= VERY_FAR
    if pearson is not None and pearson < PEARSON:
        text = f"training/rollout_actor_probs_pearson_corr {pearson:.4g}, below {PEARSON}"
        off.append(Evidence(text, value=pearson))
    if kl is not None and abs(kl) > largest:
        off.append(Evidence(f"rollout_corr/kl {kl:.4g}, above {largest:g}", value=kl))
    if not off:
        return
    broken = pearson is not None and pearson < BROKEN_PEARSON
    staler = fresher(metrics.values)
    begin = _begins(window.beside.recent)
    yield Symptom(
        id="rollout_mismatch",
        severity="critical" if broken else "warning",
        title="engine and trainer disagree on probabilities"
        if begin is None
        else f"engine and trainer disagree since step {begin}",
        step=begin,
        cause=f"in step {metrics.step} {off[0].text}: the policy is trained on tokens whose probabilities differ "
        "between engine and trainer, and grad_norm may rise steadily"
        + ("" if begin is None else f"; up to step {begin - 1} they agreed"),
        fix=(
            f"{weigh(window).fix}compare the data types of engine and trainer, the chat template with the messages "
            "that the agents send, and, for mixture-of-experts models, set actor_rollout_ref.actor.router_replay.mode: "
            "R3 and actor_rollout_ref.rollout.enable_rollout_routing_replay: true (keys of trainer.overrides)"
            if begin is None
            else f"find what changed at step {begin}: replicas or a trainer that were started again, or a resume with "
            "other settings (liverl-tui events); weights that no longer arrive (liverl-tui metrics export --key "
            "timing_s/update_weights); or an update that was too large: if entropy or lengths jumped as well, lower "
            "algorithm.learning_rate and go back to an earlier checkpoint. Data types and the chat template are not "
            "the likely cause: the steps before agreed with the same ones"
        )
        + ". If rollouts run ahead of the trainer (standalone, async), older weights explain a part of the difference"
        + ("" if staler is None else f": {staler}"),
        evidence=tuple(off),
    )


def _begins(recent: RecentSteps) -> int | None:
    """The step with which the difference began at once: it was within its limit in all steps before, then ``AT_ONCE``
    times as large as in the step before, and has been over the limit in most steps since. None if it was there from
    the first step on, has come slowly, or that is not known."""
    for key, limit in _MEASURES:
        points = [(step, abs(value)) for step, value in recent.course(key)]
        at = next((at for at, (_, value) in enumerate(points) if value > limit), None)
        if at is None or 2 * sum(value > limit for _, value in points[at:]) < len(points) - at:
            continue
        (last, agreed), (first, differs) = points[max(0, at - 1)], points[at]
        return int(first) if first - last == 1 and differs >= AT_ONCE * agreed else None
    return None


def _divergence(recent: RecentSteps) -> float | None:
    """The value of ``rollout_corr/kl`` that is nearest to 0 in the newest ``IN_A_ROW`` steps; None if one lacks it."""
    key = "rollout_corr/kl"
    return min((step.values[key] for step in newest(recent, key)), key=abs, default=None)


def learning_rate_zero(window: Window) -> Iterator[Symptom | Resolved]:
    """The learning rate is 0. It is not raised in the first step, since a warm-up may begin at 0, nor in the last one,
    since a decay may end at 0."""
    metrics, total = window.now.metrics, window.now.total_steps
    if metrics is None or total is None or not 2 <= metrics.step < total:
        return
    if metrics.values.get("actor/lr") == 0.0:
        yield Symptom(
            id="learning_rate_zero",
            severity="critical",
            title="the policy does not learn",
            cause=f"the learning rate (actor/lr) was 0 in step {metrics.step}: updates change no weights",
            fix="set algorithm.learning_rate above 0; if the learning rate decays, set training.total_steps",
            evidence=(Evidence(f"step {metrics.step}: actor/lr 0", value=0.0),),
        )


def trajectories_dropped(window: Window) -> Iterator[Symptom | Resolved]:
    """The trainer's filter dropped more than ``DROPPED`` of the trajectories of each of the newest steps.

    - the first reason of the evidence is ``timeout`` -> raise the time-outs of a trial; lower
      ``harbor_runtime.num_workers`` if the sandboxes are slow
    - the first reason is ``overlong`` -> raise ``training.max_response_length``, or let the agent summarise earlier
      turns
    - the first reason is ``max_turns_reached`` -> raise ``harbor_agent.max_iterations``
    - the first reason is ``env_setup_failed`` -> the sandboxes do not start: ``trials_fail_in_setup`` says how to
      find out why
    - there is another reason, or none -> open a trial that was dropped: ``liverl-tui trials ls --flag error``
    """
    key, prefix = "trajectory_filter/invalid_ratio", "trajectory_filter/reason/"
    steps = newest(window.beside.recent, key)
    if not steps or any(step.values[key] <= DROPPED for step in steps):
        return
    metrics, share = steps[-1], steps[-1].values[key]
    reasons = sorted(
        ((v, k.removeprefix(prefix)) for k, v in metrics.values.items() if v and k.startswith(prefix)),
        reverse=True,
    )
    known = next((reason for _, reason in reasons if reason in _AGAINST), "")
    yield Symptom(
        id="trajectories_dropped",
        severity="warning",
        title="trajectories are dropped before the update",
        cause=f"{share:.0%} of the trajectories of step {metrics.step} were dropped: the policy is trained "
        f"on the rest, whose rewards and lengths may differ. It was above {DROPPED:.0%} in the last {len(steps)} steps",
        fix=_AGAINST.get(known, _UNKNOWN_REASON),
        evidence=tuple(Evidence(f"{name}: {number:g}", value=number) for number, name in reasons[:SHOWN])
        or evidence(steps, key),
    )


# --- joins ----------------------------------------------------------------------------------------------


def _steps_of_one_reward(window: Window) -> Iterator[tuple[StepTrials, float]]:
    """Of the steps that have become complete since the previous look, those whose trials all have the same reward, and
    that reward, the earliest first: which step is named does not depend on when a look happens to be. Without a new
    step the newest one is judged."""
    steps = list(complete_steps(window.now))
    before = None if window.before is None else complete_step(window.before)
    new = [] if before is None else [step for step in steps if step.step > before.step]
    for step in reversed(new or steps[:1]):
        if not without_tools(step) and (reward := _only_reward(window.now, step)) is not None:
            yield step, reward


def _only_reward(now: Snapshot, step: StepTrials) -> float | None:
    """The reward that every trial of the step got; None if they differ, or are not known."""
    rewards = [reward for head in heads_of(now, step) if (reward := head.counted_reward) is not None]
    mean = step.mean_reward
    if len(rewards) < FEWEST or mean is None or min(rewards) != max(rewards):
        return None
    # ``newest`` may hold only a part of a large step, but the mean is over all of it.
    return rewards[0] if abs(mean - rewards[0]) < 1e-9 else None
