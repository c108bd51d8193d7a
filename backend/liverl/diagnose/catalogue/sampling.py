"""The rule for how trials are sampled where a launch script has started LiteLLM, which passes on what agents ask for.
Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Evidence, Symptom, TrialHead
from liverl.observe.trials.script_sampling import COMPARED, ScriptSampling

_ROLLOUT = "actor_rollout_ref.rollout"  # verl's own keys, of a run that somebody else has started
_CLOSE = 1e-6  # difference of two values that are the same, written in different ways


def sampled_otherwise(window: Window) -> Iterator[Symptom | Resolved]:
    """The requests of a launch script's trials ask for another temperature or top_p than the trainer assumes. The
    script's own LiteLLM passes it on, and no metric shows it.

    - the trainer's value is the one you mean -> take temperature and top_p out of the agents' requests, or give them
      the trainer's
    - the agents' value is the one you mean, and you watch a run of your own -> set
      ``actor_rollout_ref.rollout.temperature`` or ``top_p`` of the trainer to it
    - the agents' value is the one you mean, and the launch script runs here (``trainer.kind: command``) -> set
      ``algorithm.temperature`` or ``algorithm.top_p`` to it
    """
    now, meant = window.now, window.beside.sampling
    if meant is None:
        return
    newest = (h for h in now.trials.newest if not h.earlier and h.updated_at >= now.started_at)
    heads = [h for h in newest if h.temperatures or h.top_ps]
    others = [(head, found) for head in heads if (found := _others(head, meant))]
    if not others:
        return
    asked = {
        name: sorted({value for _, found in others for value in found.get(name, ())}) for name in COMPARED
    }
    names = [name for name in COMPARED if asked[name]]
    values = " and ".join(f"{name} {' or '.join(f'{v:g}' for v in asked[name][:SHOWN])}" for name in names)
    foreign = window.beside.foreign
    keys = " and ".join(
        f"{_ROLLOUT if foreign else 'algorithm'}.{name} is {_meant_words(meant, name)}" for name in names
    )
    other = (
        f"otherwise set {_ROLLOUT}"
        if foreign
        else "if the launch script trains with another value, set the key"
    )
    yield Symptom(
        id="sampled_otherwise",
        severity="warning",
        title=f"trials ask for another {' and '.join(names)}",
        cause=f"{len(others)} of {len(heads)} recorded trials asked for {values}, but {keys}: replies that are sampled "
        "with other parameters than the trainer assumes make its ratios wrong, and no metric shows it",
        fix="let the agents leave them out or ask for the trainer's (harbor_agent.temperature is what LiveRL's scripts "
        f"give their agents); {other} to it",
        evidence=tuple(Evidence(f"{head.path}: {_asked_words(found)}") for head, found in others[:SHOWN]),
        since=min(head.updated_at for head, _ in others),
    )


def _others(head: TrialHead, meant: ScriptSampling) -> dict[str, tuple[float, ...]]:
    """Parameter -> values that a trial asked for, without those that it may. Of a trial without a step it is not known
    whether it belongs to a validation."""
    of = (meant.training,) if head.step is not None else (meant.training, meant.validation)
    asked = {"temperature": head.temperatures, "top_p": head.top_ps}
    allowed = {name: [values[name] for values in of if name in values] for name in COMPARED}
    found = {
        name: tuple(value for value in values if not _is_one_of(value, allowed[name]))
        for name, values in asked.items()
        if allowed[name]
    }
    return {name: values for name, values in found.items() if values}


def _is_one_of(value: float, others: list[float]) -> bool:
    return any(math.isclose(value, other, abs_tol=_CLOSE) for other in others)


def _meant_words(meant: ScriptSampling, name: str) -> str:
    training, validation = meant.training.get(name), meant.validation.get(name)
    beside = "" if validation in (None, training) else f" (val_{name} {validation:g})"
    return f"{training:g}{beside}" if training is not None else f"not known{beside}"


def _asked_words(found: dict[str, tuple[float, ...]]) -> str:
    return ", ".join(f"{name} {' and '.join(f'{v:g}' for v in values)}" for name, values in found.items())
