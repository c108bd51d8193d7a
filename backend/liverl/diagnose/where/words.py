"""Where the time of a step goes, in lines of plain text. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.diagnose.where.bottleneck import LEAST_SHARE, LEAST_STEPS, NOUNS, QUEUED
from liverl.diagnose.where.parts import GENERATE, OTHER
from liverl.model import StepTime
from liverl.observe.trials.phases import AGENT, MODEL
from liverl.util.ages import step_length

_WORDS = {
    "generate": "rollouts",
    "model": "the model",
    "tool": "tools",
    "sandbox": "sandboxes",
    "verifier": "verifiers",
    "agent": "agents",
    "reward": "reward function",
    "log_probs": "log-probabilities",
    "update": "update",
    "weights": "weights",
    "checkpoint": "checkpoint",
    "validation": "validation",
}
SEEN = 0.01  # of a step: smaller parts are not named


def lines(time: StepTime) -> list[str]:
    """The shares of a step, which add up to all of it; the sentence of its bottleneck, or that none is named; and what
    takes longer than before."""
    of = "the newest step" if time.steps == 1 else f"the median of the newest {time.steps} steps"
    told = [f"a step takes {step_length(time.seconds)} ({of}): {shares_words(time)}"]
    told.append(
        f"bottleneck: {'; '.join(filter(None, (time.bottleneck.sentence, _cpus(time))))}"
        if time.bottleneck is not None
        else ": ".join(filter(None, none_named(time)))
    )
    if time.slower:
        told.append(f"slower: {time.slower}")
    return told


def part_words(part: str) -> str:
    """What people read of a part of a step: ``the model``."""
    return "the rest" if part == OTHER else _WORDS.get(part, part)


def rollouts_whole(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by part, with the rollouts as one part in place of what their trials waited for."""
    waits = [value for part, value in seconds.items() if part in NOUNS]
    rest = {part: value for part, value in seconds.items() if part not in NOUNS}
    return {GENERATE: rest.pop(GENERATE, 0.0) + sum(waits), **rest} if waits else rest


def shares_words(time: StepTime) -> str:
    """``the model 81 %, tools 18 %, the rest 1 %``."""
    named = {
        part_words(part): round(100 * share)
        for part, share in time.shares.items()
        if share >= SEEN and part != OTHER
    }
    rest = 100 - sum(named.values())  # what has no name, what is small, and what medians do not add up to
    if rest > 0:
        named["the rest"] = rest
    return ", ".join(f"{name} {percent} %" for name, percent in named.items())


def none_named(time: StepTime) -> tuple[str, str]:
    """Of a step of which no advice is certain: what it waits for most, else that no bottleneck is named; and why, or
    what may be worth a try."""
    if time.steps < LEAST_STEPS:
        return (
            "no bottleneck is named",
            f"that takes {LEAST_STEPS} steps, and {time.steps} said how long they took",
        )
    largest = max(time.shares, key=lambda part: time.shares[part], default="")
    if largest == GENERATE:
        return (
            "no bottleneck is named",
            f"what the trials waited for is known of fewer than {LEAST_STEPS} of them",
        )
    none, why = _largest(time) or "no single bottleneck", []
    if largest == MODEL and _largest(time) and time.engine is not None:
        why.append(f"the engines themselves take about {100 * time.engine:.0f} % of that")
    if time.cpus_full:
        why.append(_cpus(time))
    if time.queue is not None and time.queue >= QUEUED:
        why.append(f"trials spend {100 * time.queue:.0f} % of their time in the queue")
        # Whether more at once would shorten the step is not said by its times: calls of busy replicas take longer.
        if time.queue_key:
            why.append(f"more at once ({time.queue_key}) help only while replicas and hosts have room")
    return none, "; ".join(why)


def _largest(time: StepTime) -> str:
    """What the trials wait for most, with its share of the step; "" if that is too little, or known of too few."""
    largest = max(time.shares, key=lambda part: time.shares[part], default="")
    if time.steps < LEAST_STEPS or largest not in NOUNS or time.shares[largest] < LEAST_SHARE:
        return ""
    share = f"{100 * time.shares[largest]:.0f} % of the step"
    if largest == AGENT:
        return f"{share} the agents' own programs work, beside recorded calls of the model"
    return f"{share} the trials wait for {NOUNS[largest]}"


def _cpus(time: StepTime) -> str:
    """That the host has no room for more trials at once; "" if it has, or that is not known."""
    return "the CPUs of the host are full: more trials at once would not help" if time.cpus_full else ""


def note(time: StepTime) -> str:
    """One sentence below a picture of one step: of which steps it is, and their bottleneck, or that none is named."""
    of = "newest step" if time.steps == 1 else f"newest {time.steps} steps (median)"
    return f"{of}: {_note(time)}"


def _note(time: StepTime) -> str:
    if time.bottleneck is not None:
        return "; ".join(filter(None, (time.bottleneck.sentence, _cpus(time))))
    none, why = none_named(time)
    shares = shares_words(time) if time.shares else ""
    if not _largest(time):
        return ": ".join(filter(None, (none, "; ".join(filter(None, (shares, why))))))
    # What is first is kept where there is little room. The largest part is named already.
    others = shares.partition(", ")[2]
    return "; ".join(filter(None, (": ".join(filter(None, (none, why))), others)))
