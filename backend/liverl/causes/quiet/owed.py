"""How many steps a training has to make in all (it "owes" them), and which source says so. Pure."""

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
        """``from its log; 20 from training.total_steps``; empty where all sources agree."""
        if not self.others:
            return ""
        return "; ".join(
            [f"from {self.source}", *(f"{steps} from {source}" for steps, source in self.others)]
        )


def owed(told: Told, passed: Passed | None = None) -> Owed | None:
    """The number of steps of the whole training, from the first source that has it; None if none has.

    The sources, in this order: the trainer's progress bar, if it differs from the total in its log; that total; another
    bar or counter; the configuration that the trainer printed; a command line in its log; ``passed``: what the trainer
    was given, or what the user's file sets (never a default, for a launch script).

    verl's bar counts steps of the trainer. In its fully asynchronous mode the total in the log counts samples of the
    rollouter, so the bar decides if both are present."""
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
