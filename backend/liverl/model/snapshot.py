"""The whole state of a run at one moment."""

from typing import Literal

import msgspec

from liverl.model.carriers import CARRIER_WORDS, Carrier, CarrierWords, ProxyStatus, SessionsStatus, Traffic
from liverl.model.config_keys import ConfigChange
from liverl.model.findings import Symptom
from liverl.model.hosts import DiskStatus, GpuStatus, HostStats, NodeStatus
from liverl.model.replicas import ReplicaSet
from liverl.model.result import Result
from liverl.model.sandboxes import SandboxesStatus
from liverl.model.schema import SCHEMA
from liverl.model.services import ServiceStatus, StalledProcess
from liverl.model.times import UnixTime
from liverl.model.training import Rewards, StepMetrics, StepTime
from liverl.model.trials import TrialsStatus

# unsupervised: the backend has died, services go on; dead: the backend has died, and no service is left
RunState = Literal["starting", "running", "stopping", "done", "failed", "stopped", "unsupervised", "dead"]


class UnreadableFile(msgspec.Struct, frozen=True):
    """A file that could not or must not be read. ``path``: relative to the run's directory; ``why``: in words."""

    path: str
    why: str


class BackendInfo(msgspec.Struct, frozen=True):
    """The process that supervises the run."""

    pid: int
    started_at: UnixTime
    host: str
    version: str
    keeper_pid: int | None = None
    keeper_stalled: StalledProcess | None = None  # the keeper, while it is stopped or waits without progress
    rss_bytes: int | None = None


# What a smoke run (``Snapshot.smoke``) is called wherever its numbers are shown.
SMOKE = "SMOKE: small batches; its reward means nothing"


class Breakpoint(msgspec.Struct, frozen=True):
    """A ``breakpoint()`` that waits for a debugger. ``process``: as Ray names it: ``TaskRunner pid=12``, and ``ip=`` on
    another host; ``address``: where it listens there; ``command``: attaches to it, on that host."""

    process: str
    address: str
    command: str


class BatchEnd(msgspec.Struct, frozen=True):
    """The end of the batch job in which a run lives. ``at``: on the clock of ``Snapshot.at``, None: not known, and
    ``problem`` says why and what to do; ``by``: who says it: SLURM_JOB_END_TIME, squeue or batch.end_time; ``margin``:
    seconds before it in which nothing is begun that has to be done (``batch.margin``); ``unsaved``: why no checkpoint
    is saved before it, "": one is."""

    at: UnixTime | None
    by: str = ""
    problem: str = ""
    margin: float = 0.0
    unsaved: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """The whole state of a run at one moment. ``seq`` is that of the newest event that it includes."""

    seq: int
    at: UnixTime
    run: str  # project/name
    run_dir: str
    state: RunState
    phase: str  # for the user: what the run is doing
    attempt: int
    topology: str
    backend: BackendInfo
    started_at: UnixTime
    services: tuple[ServiceStatus, ...] = ()
    replicas: ReplicaSet = ReplicaSet()
    proxy: ProxyStatus = ProxyStatus()
    # None: the run has none, neither as a service nor in verl's workers
    sessions: SessionsStatus | None = None
    sandboxes: SandboxesStatus | None = None  # None: its trials have begun none in Docker
    carrier: Carrier = "proxy"  # what carries the trials
    step: int | None = None
    total_steps: int | None = None
    trials_per_step: int | None = None  # planned
    step_seconds: float | None = None  # median of the newest steps, to estimate the remaining time
    metrics: StepMetrics | None = None
    rewards: Rewards = Rewards()
    # Where the trainer logs its metrics besides: ``wandb`` -> URL of the run, ``tensorboard`` -> folder.
    trackers: dict[str, str] = {}
    policy_version: int | None = None
    trials: TrialsStatus = TrialsStatus()
    gpus: tuple[GpuStatus, ...] = ()
    gpu_note: str | None = None  # why no GPUs are shown
    host: HostStats = HostStats()
    disk: DiskStatus | None = None  # None: not measured
    symptoms: tuple[Symptom, ...] = ()
    muted: tuple[Symptom, ...] = ()  # alerts that ``diagnosis.mute`` of the configuration names
    unreadable: tuple[UnreadableFile, ...] = ()  # capped
    changes: tuple[ConfigChange, ...] = ()  # of the configuration, in any attempt
    smoke: bool = False  # a run with small batches, whose reward means nothing
    result: Result | None = None
    schema: int = SCHEMA
    nodes: tuple[NodeStatus, ...] = ()  # of a run on several hosts, which join the Ray that it started
    batch_end: BatchEnd | None = None  # None: it lives in no batch job with an end
    breakpoints: tuple[
        Breakpoint, ...
    ] = ()  # that wait for a debugger; the trainer makes no progress until then
    step_time: StepTime | None = None  # None: its metrics do not say how long the parts of a step take

    @property
    def carrier_words(self) -> CarrierWords:
        """What carries the trials, in words."""
        return CARRIER_WORDS[self.carrier]

    @property
    def awaits_closing(self) -> bool:
        """Whether the backend has died, and the trainer has ended without an error after all steps: the training is
        complete, and only a new backend can stop what is left and write the result."""
        trainer = next((s for s in self.services if s.kind == "trainer"), None)
        made = self.total_steps is not None and (self.step or 0) >= self.total_steps > 0
        ended = trainer is not None and not trainer.members and trainer.exit is not None
        clean = ended and trainer is not None and trainer.exit is not None and trainer.exit.code == 0
        return self.state in ("unsupervised", "dead") and self.result is None and made and clean

    @property
    def has_list(self) -> bool:
        """Whether anything is known that keeps a list of replicas for new trials: of a run that somebody else started
        a proxy may not be visible."""
        known = self.carrier != "proxy" or self.proxy.address is not None or self.carrier_service is not None
        return self.carrier_words.keeps_list and known

    def spares(self, service: ServiceStatus) -> bool:
        """Whether the trials do without this service: the one of proxy and sessions that does not carry them, and the
        environment of the proxy."""
        unused = {"proxy", "sessions"} - {self.carrier}
        return service.kind in unused or service.name.removeprefix("env:") in unused

    @property
    def carrier_service(self) -> ServiceStatus | None:
        """The service that carries the trials; None if the run has none."""
        return next((s for s in self.services if s.kind == self.carrier), None)

    @property
    def carrier_down(self) -> ServiceStatus | None:
        """What carries the trials, if it has served, does not serve now, and should; None otherwise."""
        service = self.carrier_service
        return service if service is not None and service.down_since is not None else None

    @property
    def traffic(self) -> Traffic:
        """Address, replicas and requests of what carries the trials."""
        if self.carrier == "proxy":
            proxy = self.proxy
            return Traffic(proxy.address, proxy.backends, proxy.requests, proxy.failures)
        sessions = self.sessions or SessionsStatus()
        return Traffic(sessions.address, sessions.backends, sessions.requests, sessions.failed)

    def service(self, name: str) -> ServiceStatus | None:
        """The service of that name; None if the run has none."""
        return next((s for s in self.services if s.name == name), None)
