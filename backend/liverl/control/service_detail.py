"""Details of one service, as the backend sends them: its command and environment, probes and generations."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.model import Exit, ServiceKind
from liverl.plan.spec import RestartPolicy, StopStage


class ProbeFacts(msgspec.Struct, frozen=True):
    """A probe and its newest outcome. ``at`` is None if no outcome is known; ``problem`` is None if it succeeded."""

    name: Literal["startup", "ready", "live"]
    what: str  # for the user: what is checked
    interval: float  # seconds
    timeout: float  # seconds
    failures: int  # consecutive failures that have a consequence
    at: float | None = None
    problem: str | None = None


class Generation(msgspec.Struct, frozen=True):
    """One start of the service, as recorded in the journal."""

    attempt: int
    generation: int
    role: str  # current, incoming, retiring
    started_at: float
    pid: int | None = None
    ready_at: float | None = None
    ended_at: float | None = None
    exit: Exit | None = None
    why: str = ""  # for the user: why it exited or was stopped
    log: str | None = None  # relative to the run directory


class GpuUse(msgspec.Struct, frozen=True):
    """GPU memory (bytes; None = not known) that one process uses on the GPU ``uuid``."""

    uuid: str
    pid: int
    memory: int | None


class ServiceDetail(msgspec.Struct, frozen=True):
    """Details of one service. ``live``: from its backend; otherwise from the plan, with placeholders for unknown
    values."""

    name: str
    kind: ServiceKind
    live: bool
    argv: tuple[str, ...] = ()
    cwd: str = ""
    env: dict[str, str] = {}  # variables that we set, or that differ from the backend's own
    unset_env: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()  # names of the backend's variables that it does not inherit
    environment: str | None = None  # name of its Python environment
    interpreter: str | None = None
    requirements: tuple[str, ...] = ()  # of an environment
    depends_on: tuple[str, ...] = ()  # conditions, as texts for the user
    probes: tuple[ProbeFacts, ...] = ()
    startup_deadline: float | None = None  # seconds
    restart: RestartPolicy = RestartPolicy()
    stop: tuple[StopStage, ...] = ()
    drain: tuple[StopStage, ...] = ()
    generations: tuple[Generation, ...] = ()  # oldest first
    gpu_memory: tuple[GpuUse, ...] = ()
    # Pids of a replica that is a Ray actor. Those of a service are in its status.
    members: tuple[int, ...] = ()
