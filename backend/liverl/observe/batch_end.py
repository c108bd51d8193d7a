"""When the batch job that a process runs in ends, by its time limit: of Slurm, else as the user says."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping

import msgspec

from liverl.config.end_time import end_seconds
from liverl.procs.asking import ask_program, last_words
from liverl.util.ages import ago, clock

VARIABLE, KEY = "SLURM_JOB_END_TIME", "batch.end_time"
JOB = "SLURM_JOB_ID"
SQUEUE_S = 10.0  # seconds for its answer: the controller of a large cluster is slow
# What squeue prints of a job without a time limit (squeue(1), %e; Slurm 22.05 prints the first two).
_NO_LIMIT = ("N/A", "NONE", "UNLIMITED")

Ask = Callable[[str], str | None]  # job -> what squeue prints; None: it has no limit


class BatchEndRead(msgspec.Struct, frozen=True):
    """``at``: Unix seconds by the system's clock, None: not known; ``by``: who says so; ``problem``: why it is not
    known, one sentence with what to do, else ""."""

    at: float | None = None
    by: str = ""
    problem: str = ""


class NoEnd(Exception):
    """Why an end cannot be read, in words that go behind the name of what was asked."""


def squeue_end(job: str) -> str | None:
    """The end of a Slurm job, as squeue prints it; None if it has no time limit. Blocks for ``SQUEUE_S`` at most.

    Raises:
        NoEnd: it cannot be told.
    """
    if re.fullmatch(r"\d{1,12}", job) is None:
        raise NoEnd(f"was not asked, because {JOB} is {job!r:.40} and no number")
    try:
        done = ask_program(
            ("squeue", "-h", "-j", job, "-o", "%e"),
            SQUEUE_S,
            env={**os.environ, "SLURM_TIME_FORMAT": "standard"},  # a user's may print "Tomorr 08:00"
        )
    except subprocess.TimeoutExpired:
        raise NoEnd(f"did not answer within {SQUEUE_S:g} s") from None
    except OSError as error:
        raise NoEnd(f"cannot be started ({error.strerror})") from None
    if done.returncode:
        raise NoEnd(f"failed: {last_words(done):.120}")
    lines = done.stdout.split()
    if not lines:
        raise NoEnd(f"does not know job {job}")
    # A heterogeneous job has a line for each component; they share the limit of the allocation.
    return None if lines[0] in _NO_LIMIT else lines[0]


def read_batch_end(
    env: Mapping[str, str], configured: str, now: float, ask: Ask = squeue_end
) -> BatchEndRead | None:
    """The end of the present job; None if there is neither a job with a limit nor ``configured`` (``batch.end_time``).
    Blocks where squeue is asked.

    The first of these that tells one: SLURM_JOB_END_TIME (Slurm from 23.02 on), squeue, ``batch.end_time``. ``env``: of
    this process; ``now``: Unix seconds.
    """
    problems: list[str] = []

    def read(name: str, text: str) -> BatchEndRead | None:
        try:
            at = end_seconds(text)
        except ValueError as error:
            problems.append(f"{name} cannot be read: {error}")
            return None
        if at <= now:
            problems.append(f"{name} is {clock(at)}, {ago(now - at)} in the past")
            return None
        return BatchEndRead(at, name)

    if env.get(VARIABLE) and (found := read(VARIABLE, env[VARIABLE])):
        return found
    if env.get(JOB):
        try:
            text = ask(env[JOB])
        except NoEnd as error:
            problems.append(f"squeue {error}")
        else:
            if text is not None and (found := read("squeue", text)):
                return found
            if text is None:
                problems.clear()  # Slurm says that there is no end
    if configured and (found := read(KEY, configured)):
        return found
    if not problems:
        return None
    words = problems[-1]
    fix = "set it to" if words.startswith(KEY) else f"set {KEY} to"
    none = ', or to "" if there is none' if words.startswith(KEY) else ""
    return BatchEndRead(problem=f"{words}; {fix} the end of the present job{none}")
