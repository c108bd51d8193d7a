"""How an attempt ended."""

from typing import Literal

import msgspec

from liverl.model.findings import Cause
from liverl.model.sandboxes import SandboxesEnd
from liverl.model.schema import SCHEMA
from liverl.model.times import UnixTime


class SubmittedJob(msgspec.Struct, frozen=True):
    """A job that a launch script has handed to a scheduler, and whose end is not known. ``system``: ray, slurm or
    kubernetes; ``address``: of Ray's job server, empty if the script did not print it."""

    system: str
    id: str
    address: str = ""


class Result(msgspec.Struct, frozen=True):
    """``result.json``: how an attempt ended. ``total_steps``: those that the training owed, None if nobody says;
    ``steps_by``: who says so, and other numbers where they differ; ``made``: steps of this attempt, None if they were
    not counted; ``job``: that its script has submitted; ``sandboxes``: what its trials had in Docker, None if nothing
    was begun there."""

    state: Literal["done", "failed", "stopped"]
    exit_code: int
    cause: Cause | None
    steps: int
    started_at: UnixTime
    ended_at: UnixTime
    attempt: int = 1
    summary: str = ""
    schema: int = SCHEMA
    resume: str | None = None  # the command that goes on with the run; None if it is done
    total_steps: int | None = None
    steps_by: str = ""
    made: int | None = None
    job: SubmittedJob | None = None
    sandboxes: SandboxesEnd | None = None
