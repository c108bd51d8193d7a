"""Everything about one service, as the backend sends it: what it was started with, its probes, its generations."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.model import Exit, ServiceKind
from liverl.plan.spec import RestartPolicy, StopStage


class ProbeFacts(msgspec.Struct, frozen=True):
    """A probe, and its newest outcome. ``at`` is None where none is known; ``problem`` None where it held."""

    name: Literal["startup", "ready", "live"]
    what: str  # in words
    interval: float  # seconds
    timeout: float  # seconds
    failures: int  # in a row that count
    at: float | None = None
    problem: str | None = None


class Generation(msgspec.Struct, frozen=True):
    """One start of the service, as it was journalled."""

    attempt: int
    generation: int
    role: str  # current, incoming, retiring
    started_at: float
    pid: int | None = None
    ready_at: float | None = None
    ended_at: float | None = None
    exit: Exit | None = None
    why: str = ""  # why it ended or was ended
    log: str | None = None  # relative to the run directory


class GpuUse(msgspec.Struct, frozen=True):
    uuid: str
    pid: int
    memory: int | None


class ServiceDetail(msgspec.Struct, frozen=True):
    """``live``: told by the backend; else from the plan, where placeholders may stand for what is not known."""

    name: str
    kind: ServiceKind
    live: bool
    argv: tuple[str, ...] = ()
    cwd: str = ""
    env: dict[str, str] = {}  # what we set, or what differs from the backend's own
    unset_env: tuple[str, ...] = ()
    environment: str | None = None  # name of its Python environment
    interpreter: str | None = None
    requirements: tuple[str, ...] = ()  # of an environment
    depends_on: tuple[str, ...] = ()  # in words
    probes: tuple[ProbeFacts, ...] = ()
    startup_deadline: float | None = None  # seconds
    restart: RestartPolicy = RestartPolicy()
    stop: tuple[StopStage, ...] = ()
    drain: tuple[StopStage, ...] = ()
    generations: tuple[Generation, ...] = ()  # oldest first
    gpu_memory: tuple[GpuUse, ...] = ()
    members: tuple[int, ...] = ()  # pids of a replica that is an actor; a service's stand in its status
