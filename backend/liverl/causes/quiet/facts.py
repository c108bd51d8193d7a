"""What logs of a trainer or of its launch script say of its work: steps, epochs, batches, jobs, its end. Pure.

``told`` reads it from their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from liverl.model import Evidence

LAST_WORDS = 2 << 10  # bytes at the end of a log in which a script tells how its trainer ended


class Submitted(msgspec.Struct, frozen=True):
    """A job that a script has handed to a scheduler. ``system``: ray, slurm or kubernetes; ``address``: of Ray's job
    server; ``end``: how its log says that the job ended (succeeded, failed, stopped), empty if it does not."""

    system: str
    id: str
    address: str = ""
    end: str = ""


class Told(msgspec.Struct, frozen=True):
    """What the log of one process, or several logs together, say. None or empty: the log does not say it.

    ``total``: steps of the whole training, by the trainer's own sentence; ``bar``: by verl's bar of its progress;
    ``counted``: by another bar or counter of a training ("step 3/20"); ``configured``: by the configuration that it
    printed; ``asked``: by a command line in the log. ``step``: newest training step; ``made``: steps of this process,
    None if no trainer has printed anything; ``began``: step at which it began, 0 from scratch; ``batches``: of one
    epoch; ``epochs``: passes over the data; ``val_only``: it was told to validate only; ``used_up``: the line that says
    that the data is used up; ``checkpoint``: from which it went on; ``jobs``: in the order of their submission;
    ``background``: the line that shows a program that was put into the background; ``progress_at``: byte behind the
    last sign of progress, -1 without one; ``signs_at``: behind the last line of a trainer about its steps; ``closed``:
    the line behind the last progress by which a trainer, or its script, says that it ends, and ``closed_at``: where it
    begins, -1 without one; ``failed`` and ``failed_at``: likewise of a line that tells another exit code than 0;
    ``finished``: the trainer says that its training is complete; ``rate``: seconds of a step by
    its bar; ``trains``: a trainer has printed something; ``read_to``: byte up to which the log was read;
    ``left_out``: what was not read of it, in words; ``proofs``: of each fact by its name, of a job by its id, the line
    that tells it.
    """

    total: int | None = None
    bar: int | None = None
    counted: int | None = None
    configured: int | None = None
    asked: int | None = None
    step: int | None = None
    made: int | None = None
    began: int | None = None
    batches: int | None = None
    epochs: int | None = None
    val_only: bool = False
    used_up: str = ""
    checkpoint: str = ""
    jobs: tuple[Submitted, ...] = ()
    background: str = ""
    progress_at: int = -1
    signs_at: int = -1
    closed: str = ""
    closed_at: int = -1
    failed: str = ""
    failed_at: int = -1
    finished: bool = False
    rate: float | None = None
    trains: bool = False
    read_to: int = 0
    left_out: str = ""
    proofs: dict[str, Evidence] = {}

    @property
    def has_bar(self) -> bool:
        """Whether a trainer has begun to count its steps."""
        return self.bar is not None or self.counted is not None

    @property
    def ends_failed(self) -> bool:
        """Whether an exit code other than 0 is among the last lines of the log."""
        return bool(self.failed) and self.failed_at >= self.read_to - LAST_WORDS

    @property
    def has_training(self) -> bool:
        """Whether a trainer itself wrote of its steps there; a command line that starts one is not enough."""
        return bool(self.total) or self.has_bar or self.step is not None


def joined(parts: Sequence[Told]) -> Told:
    """What several logs of one process tell together: a script may write its trainer's log elsewhere. The first one
    that tells a fact counts, except for numbers that grow; ``failed`` only if it is among the last lines
    of a log."""
    found: dict[str, Any] = {"left_out": "; ".join(part.left_out for part in parts if part.left_out)}
    for part in parts:
        for name in Told.__struct_fields__:
            value = getattr(part, name)
            if name == "proofs":
                found[name] = {**value, **found.get(name, {})}
            if value is None or value in ("", ()) or value is False or name in _OF_A_LOG:
                continue
            if name == "failed" and not part.ends_failed:
                continue
            if name in ("step", "made") and name in found:
                found[name] = max(found[name], value)
            else:
                found.setdefault(name, value)
    return Told(**found)


# facts about one log, or joined otherwise
_OF_A_LOG = ("progress_at", "signs_at", "closed_at", "failed_at", "read_to", "left_out", "proofs")
