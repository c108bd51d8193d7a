"""Which rule fires on what, and on how many healthy histories it does not: ``python -m kit.rules_table``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from kit.learning_histories import History, healthy, probes
from liverl.diagnose.catalogue import gone_astray, gradients, off_policy, responses, step_times
from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.training import judge_course
from liverl.observe.metrics.recent import StepCollector

_NEW = tuple(one.__name__ for one in (gone_astray, gradients, off_policy, responses, step_times))
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
def on_healthy() -> dict[str, dict[str, int]]:
    """Healthy history, with its kind -> the alerts that were raised on it."""
    return {f"{one.kind}: {one.name}": fired(one) for one in healthy()}


@cache
def on_probes() -> tuple[tuple[str, str, dict[str, int], int], ...]:
    """(rule, history, the alerts that were raised on it, its steps)."""
    return tuple((rule, f"{one.kind}: {one.name}", fired(one), len(one.steps)) for rule, one in probes())


def table() -> Iterator[str]:
    """A line for each probe: rule, history, the step at which the rule fires; then one for each rule: on how many
    healthy histories it does not."""
    for rule, name, alerts, steps in on_probes():
        yield f"{rule:22} fires at step {alerts.get(rule, '-'):>3} of {steps:3}  {name}"
    histories = on_healthy()
    for rule in RULES:
        wrong = [name for name, alerts in histories.items() if rule in alerts]
        silent = f"{len(histories) - len(wrong)} of {len(histories)}"
        yield f"{rule:22} is silent on {silent} healthy histories {', '.join(wrong)}".rstrip()
    recorded = sum(name.startswith("recorded") for name in histories)
    yield f"{len(histories)} healthy histories: {recorded} recorded, {len(histories) - recorded} simulated"


if __name__ == "__main__":
    print(*table(), sep="\n")
