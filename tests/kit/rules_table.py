"""Which rule fires on what, and on how many healthy histories it does not: ``python -m kit.rules_table``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from kit.learning_histories import History, healthy, probes
from liverl.diagnose.catalogue import broken_policy, gone_astray, gradients, off_policy, responses, step_times
from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.training import judge_course
from liverl.observe.metrics.recent import StepCollector

_NEW = tuple(
    one.__name__ for one in (broken_policy, gone_astray, gradients, off_policy, responses, step_times)
)
RULES = tuple(name for rule in FILE_RULES if rule.look.__module__ in _NEW for name in rule.ids)
OFTEN, SELDOM = 200, 10  # steps from which on not each step is judged, and how often then


def fired(history: History) -> dict[str, int]:
    """Alert -> the step at which it was raised first, if the rules look after every step, as they do in a run."""
    collector = StepCollector()
    found: dict[str, int] = {}
    for number, step in enumerate(history.steps, 1):
        collector.add([step])
        if number <= OFTEN or number % SELDOM == 0 or number == len(history.steps):
            for symptom in judge_course(collector.recent()):
                found.setdefault(symptom.id, step.step)
    return found


@cache
def healthy_histories() -> dict[str, History]:
    """Healthy histories by kind and name."""
    return {f"{one.kind}: {one.name}": one for one in healthy()}


@cache
def probe_histories() -> dict[str, tuple[str, History]]:
    """Probes by rule, kind and name: the rule that fires on it, and the history."""
    return {f"{rule}-{one.kind}: {one.name}": (rule, one) for rule, one in probes()}


@cache
def on_healthy(name: str) -> dict[str, int]:
    """The alerts that were raised on a healthy history: judging all takes seconds, so who lists them does not."""
    return fired(healthy_histories()[name])


@cache
def on_probe(name: str) -> dict[str, int]:
    """The alerts that were raised on a probe."""
    return fired(probe_histories()[name][1])


def table() -> Iterator[str]:
    """A line for each probe: rule, history, the step at which the rule fires; then one for each rule: on how many
    healthy histories it does not."""
    for key, (rule, one) in probe_histories().items():
        step = on_probe(key).get(rule, "-")
        yield f"{rule:22} fires at step {step:>3} of {len(one.steps):3}  {one.kind}: {one.name}"
    histories = {name: on_healthy(name) for name in healthy_histories()}
    for rule in RULES:
        wrong = [name for name, alerts in histories.items() if rule in alerts]
        silent = f"{len(histories) - len(wrong)} of {len(histories)}"
        yield f"{rule:22} is silent on {silent} healthy histories {', '.join(wrong)}".rstrip()
    recorded = sum(name.startswith("recorded") for name in histories)
    yield f"{len(histories)} healthy histories: {recorded} recorded, {len(histories) - recorded} simulated"


if __name__ == "__main__":
    print(*table(), sep="\n")
