"""Settings whose order or sum leaves a step of a run no room. Each is allowed, and none does what it says. To add one,
write a function below and add it to ``RULES``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.model import Check

_STEPS, _SAVE, _TEST = "training.total_steps", "training.save_freq", "training.test_freq"


def checks(config: RunConfig) -> Iterator[Check]:
    """What every rule finds; nothing where all of them have room."""
    for rule in RULES:
        yield from rule(config)


def _saves(c: RunConfig) -> Iterator[Check]:
    steps, every = c.training.total_steps, c.training.save_freq
    if when.command(c) or steps is None or not 0 < steps < every:
        return
    yield _warn(
        _SAVE,
        f"{every} is beyond {_STEPS}, {steps}: the only checkpoint is the last step's, and a run that ends before "
        "it begins again at step 1",
        f"set {_SAVE} to at most {max(1, steps // 2)}",
        {_SAVE: str(max(1, steps // 2))},
    )


def _validates(c: RunConfig) -> Iterator[Check]:
    steps, every = c.training.total_steps, c.training.test_freq
    if not when.verl_trainer(c) or steps is None or not 0 < steps < every:
        return
    yield _warn(
        _TEST,
        f"{every} is beyond {_STEPS}, {steps}: no validation comes before that of the last step",
        f"set {_TEST} to at most {max(1, steps // 2)}",
        {_TEST: str(max(1, steps // 2))},
    )


def _restarts(c: RunConfig) -> Iterator[Check]:
    s = c.supervise
    if s.restart_base > s.restart_cap:
        yield _warn(
            "supervise.restart_base",
            f"{s.restart_base:g} s is more than supervise.restart_cap, {s.restart_cap:g} s, which is then taken",
            f"set supervise.restart_base to at most {s.restart_cap:g}, or raise supervise.restart_cap",
            {"supervise.restart_base": f"{s.restart_cap:g}"},
        )


def _storms(c: RunConfig) -> Iterator[Check]:
    """Failures are counted within a time that their own delays fill: the first restart waits for nothing, each further
    one twice as long as the one before."""
    s = c.supervise
    least = (1.0 - s.restart_jitter) * sum(
        min(s.restart_cap, s.restart_base * 2.0**n) for n in range(min(s.storm_failures - 1, 1000))
    )
    if least >= s.storm_window:
        wanted = int(2 * least) + 1
        yield _warn(
            "supervise.storm_window",
            f"{s.storm_window:g} s is over before supervise.storm_failures, {s.storm_failures}, can have happened: the "
            f"delays between the restarts alone take {least:.0f} s, so that a service which always fails is restarted "
            "for ever",
            f"set supervise.storm_window to at least {wanted}, or lower supervise.storm_failures",
            {"supervise.storm_window": str(wanted)},
        )


def _warn(key: str, text: str, fix: str, patch: dict[str, str]) -> Check:
    return Check(key, "warn", text, fix=fix, patch=patch, guess=True)


RULES: tuple[Callable[[RunConfig], Iterator[Check]], ...] = (_saves, _validates, _restarts, _storms)
