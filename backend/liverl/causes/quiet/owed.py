"""How many steps a training owes, and who says so. Pure."""

from __future__ import annotations

import msgspec

from liverl.causes.quiet.told import Told

OWN = "its log"


class Passed(msgspec.Struct, frozen=True):
    """Steps by the configuration of a run. ``source``: the key, and where it stands ("training.total_steps of
    my.yaml:4"); ``epochs_key``: the key for the number of epochs, as the user writes it."""

    steps: int | None = None
    source: str = "training.total_steps"
    epochs_key: str = "trainer.total_epochs"


class Owed(msgspec.Struct, frozen=True):
    """``steps``: those of the whole training; ``source``: who says so; ``others``: what else was said, as (steps,
    source), where it differs."""

    steps: int
    source: str
    others: tuple[tuple[int, str], ...] = ()

    @property
    def differing(self) -> str:
        """``by its log; 20 by training.total_steps``; empty where all sources agree."""
        if not self.others:
            return ""
        return "; ".join([f"by {self.source}", *(f"{steps} by {source}" for steps, source in self.others)])


def owed(told: Told, passed: Passed | None = None) -> Owed | None:
    """What a training owes: by its own sentence, else by its bar, else by the configuration that it printed, else by a
    command line in its log, else by ``passed``, what it was given or what the user's file sets. A default is never
    ``passed`` to a script. None: nobody says.

    verl's bar counts what the trainer does; in its fully asynchronous mode the sentence is the rollouter's, which
    counts samples, so that the bar decides where both are there."""
    said = [
        (told.bar if told.bar != told.total else None, "its progress bar"),
        (told.total, OWN),
        (told.counted, "its progress bar"),
        (told.configured, "the configuration in its log"),
        (told.asked, "the command line in its log"),
        (passed.steps, passed.source) if passed is not None else (None, ""),
    ]
    known = [(steps, source) for steps, source in said if steps]
    if not known:
        return None
    steps, source = known[0]
    others: dict[int, str] = {}
    for number, who in known[1:]:
        if number != steps:
            others.setdefault(number, who)
    return Owed(steps, source, tuple(others.items()))
