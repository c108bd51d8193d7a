"""What a plan is made of: frozen descriptions of services, readable by people and by the supervisor alike.

Strings in ``argv``, ``env`` and ``files`` may hold placeholders that are filled at each start:
``{python:NAME}`` (interpreter of the environment NAME), ``{port:NAME}`` (a port of this service, or the
``http`` port of the service NAME), ``{port:SERVICE.NAME}`` (any port of that service), ``{run_dir}``,
``{attempt_dir}``, ``{generation}``. Only these names are replaced; other braces stay as they are.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.engines import ENGINES, Engine
from liverl.model import Inert, Owner, ServiceKind

Installer = Literal["uv", "pip"]
Condition = Literal[
    "environment_ready",  # the named Python environment is built
    "listening",  # the run holds the service's socket: connections queue, whoever serves them later
    "started",  # a process exists
    "ready",  # its ready probe holds
    "all_ready",  # N of N services of a kind are ready
    "discovered",  # N of N replicas that Ray holds are named, addressed and healthy
    "exited_0",
]


# Exit 0 is their success; whatever is of another kind is a server.
COMPLETING: frozenset[ServiceKind] = frozenset({"environment", "trainer", "task"})


class Dependency(msgspec.Struct, frozen=True):
    condition: Condition
    on: str  # service name, environment name, or a kind for all_ready and discovered
    count: int | None = None  # for all_ready and discovered; None = as many as the plan expects


class Probe(msgspec.Struct, frozen=True):
    """One check. ``kind`` decides which fields count.

    http: GET ``path`` on ``port`` gives 200; ``token_file`` makes it carry that bearer token.
    completion: one real chat completion of ``model`` is answered.
    log_line: ``pattern`` (regular expression) appears in the log after this generation's start.
    status_file: the JSON file ``path`` (``{generation}`` is filled in), written by the process itself, names its
    pid and says ``"state": pattern``. process: the process exists.
    """

    kind: Literal["http", "completion", "log_line", "status_file", "process"]
    port: str = ""
    path: str = "/health"
    pattern: str = ""
    model: str = ""
    interval: float = 1.0  # seconds between two checks
    timeout: float = 5.0  # seconds for one check
    failures: int = 3  # in a row before it counts as failed (live) or degraded (ready)
    token_file: str = ""  # of a bearer token; relative to the run directory


class Probes(msgspec.Struct, frozen=True):
    """Three meanings: ``startup`` decides when it is ready for the first time, within ``startup_deadline``
    seconds; ``ready`` moves it between ready and degraded; ``live`` ends and restarts it."""

    startup: Probe = Probe(kind="process")
    startup_deadline: float = 2700.0
    ready: Probe | None = None
    live: Probe | None = None


class RestartPolicy(msgspec.Struct, frozen=True):
    """``window`` seconds in which more than ``max_failures`` failures are a storm (``gave_up``).

    The first restart is immediate; then ``base * 2**n`` seconds up to ``cap``, each +-``jitter``.
    A generation that stays ready for ``stable`` seconds forgives what came before.
    """

    mode: Literal["never", "on_failure", "always"] = "on_failure"
    base: float = 1.0
    cap: float = 60.0
    jitter: float = 0.2
    window: float = 300.0
    max_failures: int = 5
    stable: float = 60.0


class StopStage(msgspec.Struct, frozen=True):
    """Send ``signal`` to ``target`` and give it ``grace`` seconds before the next stage."""

    signal: Literal["INT", "TERM", "KILL", "USR1"]
    target: Literal["leader", "tree"]
    grace: float


DEFAULT_STOP: tuple[StopStage, ...] = (
    StopStage("TERM", "leader", 10.0),
    StopStage("TERM", "tree", 5.0),
    StopStage("KILL", "tree", 5.0),
)


class PortSpec(msgspec.Struct, frozen=True):
    """``number`` 0 = any free port, chosen anew for each generation. ``held`` = the run holds the listening
    socket and hands it to each generation as an inherited file descriptor (``LIVERL_LISTEN_FD``)."""

    name: str
    number: int = 0
    host: str = "127.0.0.1"
    held: bool = False


class FileSpec(msgspec.Struct, frozen=True):
    """A file written before each start; ``path`` is relative to the run directory."""

    path: str
    text: str
    mode: int = 0o644


class ServiceSpec(msgspec.Struct, frozen=True):
    name: str
    kind: ServiceKind
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    unset_env: tuple[str, ...] = ()
    # Variable -> absolute path of the file that holds its value: a secret is read at each start and is in no plan.
    secret_env: dict[str, str] = {}
    cwd: str = "{run_dir}"
    environment: str | None = None  # name in Plan.environments; None = the backend's own interpreter
    depends_on: tuple[Dependency, ...] = ()
    ports: tuple[PortSpec, ...] = ()
    probes: Probes = Probes()
    restart: RestartPolicy = RestartPolicy()
    stop: tuple[StopStage, ...] = DEFAULT_STOP
    drain: tuple[StopStage, ...] = ()  # how a replaced generation ends; empty = no swap, stop then start
    gpus: int = 0  # how many whole GPUs it needs
    files: tuple[FileSpec, ...] = ()
    ends_run: bool = False  # its exit is the run's end: 0 = done, else failed
    fatal: bool = True  # giving up on it fails the run
    restart_needs: str = (
        ""  # a file (in the run directory) that must have changed since the last automatic start
    )
    stage_parser: str = ""  # litellm, trainer, ray, the name of an engine's boot log, or none
    owner: Owner = "ours"

    @property
    def completes(self) -> bool:
        """Whether exit 0 is a success. A service of any other kind is a server, which runs until it is stopped.

        Derived from ``kind``, so that the plans of older versions say it too.
        """
        return self.kind in COMPLETING


class InstallStep(msgspec.Struct, frozen=True):
    """``requirements`` by one installer, from one index ("" = the environment's)."""

    requirements: tuple[str, ...] = ()
    installer: Installer = "uv"
    index_url: str = ""


class EnvironmentSpec(msgspec.Struct, frozen=True):
    """A named Python environment: either an existing ``venv_path`` or ``requirements`` built into a cache.
    ``venv_path`` "self" is the interpreter that runs us.

    ``first`` is installed before the others, which leave it as it is. ``index_url`` and ``find_links`` may hold
    ``${NAME}``, a variable that is read when the environment is built.
    """

    name: str
    requirements: tuple[str, ...] = ()
    venv_path: str | None = None
    python: str | None = None  # version or interpreter for uv; None = the one that runs us
    installer: Installer = "uv"
    index_url: str = ""  # "" = what the installer is configured with
    find_links: tuple[str, ...] = ()
    first: InstallStep = InstallStep()


class Settings(msgspec.Struct, frozen=True):
    """How the backend itself behaves. Seconds, all of them."""

    scan_interval: float = 2.0
    host_interval: float = 2.0
    gpus_interval: float = 2.0
    replicas_interval: float = 1.0
    trials_interval: float = 1.0
    snapshot_interval: float = 0.5
    cooldown: float = 30.0
    replica_stagger: float = 0.0  # between the starts of two replicas on GPUs
    stuck_after: float = 15.0  # of a tree that SIGKILL does not end, before the run ends without it


class RayPlan(msgspec.Struct, frozen=True):
    """The Ray cluster of topology verl, and how the replicas in it are found.

    ``owner`` ours: the service ``service`` is its head, and ``token_file`` (relative to the run directory) must hold
    a token before that starts. foreign: the cluster at ``address`` is somebody else's; it is read and never ended,
    ``service`` and ``port`` are empty, and ``token_file`` is an absolute path, or empty where there is none. With a
    trainer of kind command what is empty here is found out once its script has started Ray.
    """

    owner: Owner
    address: str  # host:port of the GCS: what RAY_ADDRESS says; placeholders as in ServiceSpec
    dashboard: str  # host:port of the dashboard's REST interface; of our own head the host alone counts
    namespace: str  # of the named actors; "" = any
    environment: str  # name in Plan.environments: the Python in which children may import ray
    token_file: str
    expected: int  # replicas, ranks 0 to expected-1
    # Seconds that a rank may stay in a stage: without an actor that is alive (missing since the trainer's start, or
    # pending since Ray lists it), then without an address, then without an answer from /health.
    actor_deadline: float
    address_deadline: float
    health_deadline: float
    service: str = ""  # name in Plan.services
    port: str = ""  # that service's port of the dashboard
    child_env: dict[str, str] = {}  # of children that talk to the cluster; placeholders as in ServiceSpec
    temp_dir: str = ""  # of our own head, where its name is ours too: it goes with a run that ends well
    python: str = ""  # interpreter of those children, where it is in no environment of the plan
    earlier: bool = (
        False  # replicas that were there before the trainer count too: the caller named this cluster
    )


class Plan(msgspec.Struct, frozen=True):
    run: str  # project/name
    run_dir: str
    topology: Literal["managed", "verl", "in_process"]
    environments: tuple[EnvironmentSpec, ...]
    services: tuple[ServiceSpec, ...]
    replica_template: ServiceSpec | None  # what `scale` clones; its name holds {index}
    expected_replicas: int
    replica_arguments: dict[str, tuple[str, ...]] = {}  # further argv of single replicas, by index (faults)
    total_steps: int | None = None
    trials_per_step: int | None = None  # prompts times trials per prompt, where we configure the trainer
    served_model: str = ""
    trial_timeout: float = 2400.0
    ray: RayPlan | None = None  # topology verl
    engine: str = ""  # name in liverl.engines; "": a plan of an older version
    adopted_port: int | None = None  # where the proxy of a trainer of kind command listens
    settings: Settings = Settings()
    inert: tuple[Inert, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def replica_engine(self) -> Engine:
        """The engine of the replicas. A plan of an older version, or one whose engine is not known any more, tells it
        by the template's environment."""
        if self.engine in ENGINES:
            return ENGINES[self.engine]
        where = self.replica_template.environment if self.replica_template is not None else "vllm"
        return next((e for e in ENGINES.values() if e.environment == where), ENGINES["vllm"])
