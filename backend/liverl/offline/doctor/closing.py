"""Which log's word that a program ended without an error counts for the training. Pure.

A script that only submits a job, a proxy and a server end with 0 while the training beside them stands still."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from liverl.causes.quiet.told import Told
from liverl.offline.doctor.logs import Log
from liverl.offline.doctor.silence import LEAST_S, Tail
from liverl.offline.doctor.training import Training

TAIL = 16 << 10  # bytes at the end of a log in which its program says that it has ended
# Seconds by which a script may seem to end before the last line of the trainer that it waits for
TOGETHER_S = 60.0
_SERVER = re.compile(r"LiteLLM|vLLM|SGLang|Ray|Prometheus|kernel|transcript", re.IGNORECASE)


def own_end(told: Told) -> str:
    """The line at the end of a log by which its own program says that it has ended; empty without one."""
    return told.closed if told.closed_at >= max(0, told.read_to - TAIL) else ""


class LogRead(msgspec.Struct, frozen=True):
    """What was read of one log: what it says of a training, and how it ends."""

    log: Log
    training: Training
    tail: Tail

    @property
    def told(self) -> Told:
        """What it tells of the progress of a training."""
        return self.training.told


def end_of(trainer: LogRead, others: Sequence[LogRead]) -> str:
    """The line by which the program of a training has ended: of its own log, else of that of a script which may have
    waited for it. Empty without one."""
    if own := own_end(trainer.told):
        return own
    for other in others:
        if (line := own_end(other.told)) and _may_have_waited(other, trainer):
            return line
    return ""


def _may_have_waited(script: LogRead, trainer: LogRead) -> bool:
    """Whether the end of a script says that the trainer, which writes another log, has ended: it is no server, it has
    neither submitted a job whose end it does not tell nor put a program into the background, and the trainer's log
    neither went on behind it nor stood still for long before."""
    told, tail = script.told, trainer.tail
    if _SERVER.search(script.log.input.what) and not script.log.trains:
        return False
    if told.background or any(not job.end for job in told.jobs):
        return False
    if tail.at is not None and tail.last is not None and tail.last - tail.at > LEAST_S:
        return False
    written = tail.last if tail.last is not None else trainer.log.over
    return script.log.over >= written - TOGETHER_S
