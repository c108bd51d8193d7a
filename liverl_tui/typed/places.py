"""Commands that go to a place: ``goto`` (a time or line of a log, a step, a trial), ``gpu``."""

from __future__ import annotations

import time
from collections.abc import Iterator

from liverl.logs.times import parse_moment
from liverl.model import TrialHead
from liverl.util.plural import quantity
from liverl_tui.typed.command import (
    Act,
    Command,
    Completion,
    Here,
    TypedError,
    missing,
    one_of,
    starting,
    wrong,
)

_EXPECTED = "a time (14:03, 5m ago), step N, trial N, the name of a trial, or the number of a line"
_STEP, _TRIAL = "step", "trial"


def _newest_step(here: Here) -> int:
    """The newest step that has begun."""
    snapshot = here.snapshot
    if snapshot is None:
        return 0
    return max([snapshot.step or 0, *(step.step for step in snapshot.trials.steps)])


def _trials(here: Here) -> tuple[TrialHead, ...]:
    return here.snapshot.trials.newest if here.snapshot is not None else ()


def _parse_goto(text: str, here: Here) -> Act:
    if not text:
        raise missing("goto", _EXPECTED)
    first, _, rest = text.partition(" ")
    if first == _STEP:
        return _to_step(rest.strip(), here)
    if first == _TRIAL and rest.strip():
        return _to_trial(rest.strip())
    if text.isascii() and text.isdigit():
        return _to_line(text)
    for head in _trials(here):
        if text in (head.name, head.path):
            return lambda host: host.navigation.open_trial(head.path)
    try:
        parse_moment(text, here.now, here.now)
    except ValueError as error:
        if text[0].isdigit():
            raise TypedError(f"goto: {error}") from None
        if " " not in text and _more_trials(here):
            return _to_trial(text)
        choices = [_STEP, _TRIAL, *(head.name for head in _trials(here))]
        raise wrong("goto", text, _EXPECTED, choices) from None
    return lambda host: host.navigation.open_log_time(text)


def _more_trials(here: Here) -> bool:
    """Whether the run has trials that its state does not name."""
    return here.snapshot is not None and here.snapshot.trials.total > len(_trials(here))


def _to_trial(text: str) -> Act:
    """``text``: the number of a row in the list of trials, or the name of any trial of the run, or a part of it."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        if int(text) < 1:
            raise wrong("goto trial", text, "the number of a row, from 1, or a name")
        return lambda host: host.navigation.open_trial_row(int(text))
    return lambda host: host.navigation.find_trial(text)


def _to_step(text: str, here: Here) -> Act:
    newest = _newest_step(here)
    if not newest:
        raise TypedError("goto: no step has begun yet")
    expected = f"the number of a step from 1 to {newest}"
    if not text:
        raise missing("goto step", expected)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= newest):
        raise wrong("goto step", text, expected)
    return lambda host: host.navigation.open_step(int(text))


def _to_line(text: str) -> Act:
    if len(text) > 12 or int(text) < 1:
        raise wrong("goto", text, "the number of a line, from 1")
    return lambda host: host.navigation.open_log_line(int(text))


def _complete_goto(text: str, here: Here) -> Iterator[Completion]:
    clock = time.strftime("%H:%M", time.localtime(here.now))
    places = [
        Completion(clock, "the log at a time of day"),
        Completion("5m", "the log 5 minutes ago"),
    ]
    snapshot = here.snapshot
    steps = snapshot.trials.steps if snapshot is not None else ()
    numbers = [Completion(f"{_STEP} {step.step}", f"its {quantity(step.total, 'trial')}") for step in steps]
    trials = [Completion(head.name, f"trial of step {head.step}, {head.task}") for head in _trials(here)]
    yield from starting(text, [*numbers[:3], *places, *numbers[3:], *trials])


def _gpus(here: Here) -> dict[str, tuple[str, str]]:
    """Index -> UUID and owner."""
    gpus = here.snapshot.gpus if here.snapshot is not None else ()
    return {str(gpu.index): (gpu.uuid, gpu.owner) for gpu in gpus}


def _parse_gpu(text: str, here: Here) -> Act:
    gpus = _gpus(here)
    if not gpus:
        raise TypedError("gpu: this machine has no GPU")
    uuid, _ = gpus[one_of("gpu", text, "the number of a GPU", list(gpus))]
    return lambda host: host.navigation.open_gpu(uuid)


def _complete_gpu(text: str, here: Here) -> Iterator[Completion]:
    yield from starting(text, [Completion(index, owner) for index, (_, owner) in _gpus(here).items()])


PLACES: tuple[Command, ...] = (
    Command(
        "goto",
        "TIME|step N|trial N|TRIAL|LINE",
        "Go to a time or a line of the log, to the trials of a step, to row N of the list of trials, or to any trial",
        _parse_goto,
        _complete_goto,
    ),
    Command("gpu", "N", "Show the details of a GPU", _parse_gpu, _complete_gpu),
)
