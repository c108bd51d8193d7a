"""What a step waits for most, in one sentence with the key that moves it; nothing where that is not certain. Pure.

False advice is worse than none. So a sentence needs ``LEAST_STEPS`` steps, ``LEAST_SHARE`` of their time, and a part
that is the largest one: rollouts that only wait for a model that works are no fault, and where they are most of a step
nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from liverl.diagnose.advice import ANY, WORKERS, Means, fitting, keys_in
from liverl.diagnose.where import parts
from liverl.diagnose.where.rollouts import SANDBOX, VERIFIER, Rollouts
from liverl.model import Bottleneck, ReplicaTimes
from liverl.observe.trials.phases import AGENT, MODEL, TOOL
from liverl.observe.trials.replica_names import replica_name

LEAST_STEPS = 5
LEAST_SHARE = 0.3
QUEUED = 0.1  # of the trials' time: from there on more of them at once would shorten the step
SLOW = 2.0  # times the seconds per token of the other replicas: less may be the length of their prompts
FEW = 5  # trials of a replica; of fewer nothing is concluded
BUSIER = 1.5  # times the trials of the others: it is not slow, it has more to do
TAIL, WAVES, REPLICA = "tail", "waves", "replica"
_CLOCKS = "nvidia-smi -q -d PERFORMANCE,CLOCK"
NOUNS = {
    SANDBOX: "sandboxes",
    MODEL: "the model",
    TOOL: "tools",
    VERIFIER: "verifiers",
    AGENT: "their agents",
}


class Kind(NamedTuple):
    """Who runs the trials, as far as their files say: Harbor, or the embedded trainer; else verl's agent loops or a
    program of the user's."""

    harbor: bool = False
    embedded: bool = False


class Advice(NamedTuple):
    """``who``: what the step does or waits for; ``fix``: what to do, with the ``key`` that does it."""

    who: str
    fix: str
    key: str


# Parts of a step beside the rollouts.
_PARTS = {
    parts.REWARD: Advice(
        "is the reward function",
        "make it faster, or let it judge several trials at once ({key})",
        "reward.function",
    ),
    parts.LOG_PROBS: Advice(
        "is the log-probabilities of the trainer and the reference policy",
        "give the trainer more GPUs ({key}), or keep the reference policy on its GPUs where memory is free "
        "(training.ref_offload: false)",
        "infrastructure.nnodes",
    ),
    parts.UPDATE: Advice(
        "is the update of the policy",
        "give the trainer more GPUs ({key}), or keep the optimizer on its GPUs where memory is free "
        "(training.actor_offload: false)",
        "infrastructure.nnodes",
    ),
    parts.WEIGHTS: Advice(
        "sends weights to the replicas",
        "look at the network between trainer and replicas: nvidia-smi topo -m, and NCCL_DEBUG: INFO in {key}",
        "trainer.env",
    ),
    parts.CHECKPOINT: Advice(
        "saves a checkpoint", "save less often ({key}), or to a faster disk", "training.save_freq"
    ),
    parts.VALIDATION: Advice("is validation", "validate less often ({key})", "training.test_freq"),
}
# Of the embedded trainer, which has no GPUs.
_EMBEDDED = {
    parts.UPDATE: Advice(
        "is the update of the policy",
        "make fewer updates in a step with a larger {key}",
        "training.train_prompt_mini_batch_size",
    ),
}
# What trials wait for, if all of them run at once.
_CPUS = Advice(
    "",
    "give each sandbox more CPUs ({key}), and look at the load of their host",
    "harbor_agent.environment_override_cpus",
)
_HARBOR = {
    SANDBOX: Advice(
        "",
        "build their images before the run, and keep them ({key}: false)",
        "harbor_agent.environment_force_build",
    ),
    TOOL: _CPUS,
    VERIFIER: _CPUS,
}
_OWN = {
    TOOL: Advice(
        "", "make the tools of your agent faster ({key}), and look at the load of their host", "agent.command"
    ),
    VERIFIER: Advice("", "make the verifier faster ({key})", "agent.verifier"),
}


def bottleneck(
    shares: Mapping[str, float],
    rollouts: Rollouts | None,
    kind: Kind,
    names: Mapping[str, str],
    run: Means = ANY,
) -> Bottleneck | None:
    """What a step waits for most. ``shares``: of its parts, 0..1, with what the trials waited for in place of generate
    where ``rollouts`` are known; ``names``: root address of a replica -> its name; ``run``: what an advice may
    name. The steps are the caller's to count."""
    found = _bottleneck(shares, rollouts, kind, names)
    return None if found is None else _fitted(found, run)


def _fitted(found: Bottleneck, run: Means) -> Bottleneck:
    """The sentence with an advice that fits, or without one; ``key``: the first one that it still names."""
    what, _, fix = found.sentence.partition(": ")
    fits = fitting(fix, run)
    key = found.key if found.key in fits else next(iter(keys_in(fits)), "")
    return replace(found, sentence=f"{what}: {fits}" if fits else what, key=key)


def _bottleneck(
    shares: Mapping[str, float],
    rollouts: Rollouts | None,
    kind: Kind,
    names: Mapping[str, str],
) -> Bottleneck | None:
    largest = max(shares, key=lambda part: shares[part], default="")
    generate = sum(share for part, share in shares.items() if part == parts.GENERATE or part in NOUNS)
    if rollouts is not None and generate >= max(shares[part] for part in shares if part not in NOUNS):
        found = [*_of_last(generate, rollouts, kind), *_of_replicas(shares, rollouts, kind, names)]
        found = [one for one in found if one.share >= LEAST_SHARE]
        if found:
            return max(found, key=lambda one: one.share)
        if largest in NOUNS and shares[largest] >= LEAST_SHARE:
            return _of_waits(largest, shares[largest], rollouts, kind)
    if largest in _PARTS and shares[largest] >= LEAST_SHARE:
        advice = (_EMBEDDED if kind.embedded else {}).get(largest, _PARTS[largest])
        return _told(shares[largest], largest, advice)
    return None


def limit_of(kind: Kind) -> str:
    """The key that limits how many trials run at once; "" if their files do not say who runs them."""
    return WORKERS if kind.harbor or kind.embedded else ""


def _queued(rollouts: Rollouts) -> bool:
    return rollouts.queue is not None and rollouts.queue >= QUEUED


def _told(share: float, what: str, advice: Advice) -> Bottleneck:
    fix = advice.fix.format(key=advice.key)
    return Bottleneck(
        round(share, 3), what, f"{100 * share:.0f} % of the step {advice.who}: {fix}", advice.key
    )


def _of_last(generate: float, rollouts: Rollouts, kind: Kind) -> Iterator[Bottleneck]:
    """The trials that end last: they are slow, or they only begin late."""
    last = rollouts.last
    if last is None:
        return
    share = generate * last.share
    named = (
        f"the slowest of {last.of} trials"
        if last.trials == 1
        else f"the {last.trials} slowest of {last.of} trials"
    )
    if not last.long:
        if _queued(rollouts) and limit_of(kind):
            begins = "begins" if last.trials == 1 else "begin"
            late = (
                f"the last of {last.of} trials"
                if last.trials == 1
                else f"the last {last.trials} of {last.of} trials"
            )
            yield _told(
                share,
                WAVES,
                Advice(f"waits for {late}, which {begins} late", "run more at once ({key})", WORKERS),
            )
        return
    whose = "its" if last.trials == 1 else "their"
    told = last.waits in NOUNS and last.waits != AGENT
    mostly = f", most of {whose} time for {NOUNS[last.waits]}" if told else ""
    more = f", or run more trials at once ({WORKERS})" if _queued(rollouts) else ""
    if kind.harbor:
        fix, key = "end such trials earlier ({key}: 0.9)", "harbor_runtime.tail_kill_target"
    else:
        fix, key = "end such trials earlier ({key})", "harbor_agent.override_timeout_sec"
    yield _told(share, TAIL, Advice(f"waits for {named}{mostly}", f"{fix}{more}", key))


def _of_replicas(
    shares: Mapping[str, float], rollouts: Rollouts, kind: Kind, names: Mapping[str, str]
) -> Iterator[Bottleneck]:
    """One replica that takes much longer for a token than the others, in most steps and over all of them."""
    together = _together(rollouts.replicas)
    rates = {name: rate for name, rate in _rates(together).items() if together[name].trials >= FEW}
    if len(rates) < 2:
        return
    slow = max(rates, key=lambda name: rates[name])
    usual = _usual(rates, slow)
    trials = median(together[name].trials for name in rates if name != slow)
    if rates[slow] < SLOW * usual or together[slow].trials > BUSIER * trials:
        return
    each = [step for one in rollouts.replicas if slow in (step := _rates(one)) and len(step) > 1]
    if 2 * sum(step[slow] >= SLOW * _usual(step, slow) for step in each) <= rollouts.steps:
        return
    # The rollouts end with its trials: they would wait for the model as long as those of the others do.
    replica, times = replica_name(slow, names), rates[slow] / usual
    if kind.embedded:
        fix, key = "look at the load of its host, or restart it ({key})", f"liverl-tui restart {replica}"
    else:
        fix, key = "look for other processes on its GPUs and for throttled clocks ({key})", _CLOCKS
    yield _told(
        shares.get(MODEL, 0.0) * (1.0 - usual / rates[slow]),
        REPLICA,
        Advice(
            f"waits for {replica}, which takes {times:.1f} times as long for a token as the other replicas",
            fix,
            key,
        ),
    )


def _of_waits(what: str, share: float, rollouts: Rollouts, kind: Kind) -> Bottleneck | None:
    """What most of the trials' time goes to. That a model answers is what rollouts are for: no bottleneck is known of
    it, and none of an agent whose calls have no durations."""
    if what in (MODEL, AGENT):
        return None
    who = f"the trials wait for {NOUNS[what]}"
    if _queued(rollouts) and limit_of(kind):
        fix = "run more trials at once ({key}) while the host of their sandboxes has CPUs free"
        return _told(share, what, Advice(who, fix, WORKERS))
    advice = (_HARBOR if kind.harbor else _OWN).get(what)
    return _told(share, what, advice._replace(who=who)) if advice is not None and not kind.embedded else None


def _together(steps: Iterable[Mapping[str, ReplicaTimes]]) -> dict[str, ReplicaTimes]:
    found: dict[str, ReplicaTimes] = {}
    for step in steps:
        for name, times in step.items():
            known = found.get(name, ReplicaTimes(0, 0, 0.0))
            found[name] = ReplicaTimes(
                known.trials + times.trials, known.tokens + times.tokens, known.seconds + times.seconds
            )
    return found


def _rates(replicas: Mapping[str, ReplicaTimes]) -> dict[str, float]:
    """Seconds per sampled token of each replica that sampled some."""
    return {
        name: times.seconds / times.tokens
        for name, times in replicas.items()
        if times.tokens > 0 and times.seconds > 0.0
    }


def _usual(rates: Mapping[str, float], but: str) -> float:
    return median(rate for name, rate in rates.items() if name != but)
