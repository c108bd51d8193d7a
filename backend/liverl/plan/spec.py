"""The structs of a plan: frozen descriptions of services for the supervisor and for display.

Strings in ``argv``, ``env`` and ``files`` may contain placeholders that are filled in at each start:
``{python:NAME}`` (interpreter of the environment NAME), ``{port:NAME}`` (a port of this service, or the
``http`` port of the service NAME), ``{port:SERVICE.NAME}`` (any port of that service), ``{run_dir}``,
``{attempt_dir}``, ``{generation}``, ``{batch_end}`` (Unix seconds at which the batch job ends, less
``batch.margin``; empty if that is not known, and a variable that is nothing else is then not set). Only these
names are replaced; other braces are not changed.
"""

from __future__ import annotations

import re
import shlex
from typing import Literal

import msgspec

from liverl.engines import ENGINES, Engine
from liverl.engines.adapter.argv import IfKnown
from liverl.model import Carrier, ConfigChange, Inert, Owner, ServiceKind
from liverl.plan.inherit import Inherit
from liverl.util import redact

PLACEHOLDER = re.compile(r"\{(python|port|run_dir|attempt_dir|generation|batch_end)(?::([\w.-]+))?\}")
BATCH_END = "{batch_end}"
STEPS_KEY = "training.total_steps"  # says how many steps a run owes, unless something else does
TITLE = 80  # characters of a command that names a target of notifications
# The host of a port that listens at the gateway of the bridge of Docker on this machine, which is found when the socket
# is opened; without such a gateway the port is left out.
BRIDGE = "docker-bridge"
INDEX = "{index}"  # the number of a replica, in its template
Installer = Literal["uv", "pip"]
Condition = Literal[
    "environment_ready",  # the named Python environment is built
    "listening",  # the run holds the service's listening socket; connections wait until a process serves them
    "started",  # a process exists
    "ready",  # its ready probe succeeds
    "all_ready",  # N of N services of a kind are ready
    "discovered",  # N of N replicas in Ray have a name, an address and a healthy engine
    "exited_0",
    "joined",  # N hosts are nodes of our own Ray
]


# Kinds that complete with exit code 0. A service of any other kind is a server.
COMPLETING: frozenset[ServiceKind] = frozenset({"environment", "trainer", "task"})


class Dependency(msgspec.Struct, frozen=True):
    """A condition that must hold before a service starts."""

    condition: Condition
    on: str  # service name, environment name, or a kind for all_ready and discovered
    count: int | None = None  # for all_ready and discovered; None = as many as the plan expects


class Probe(msgspec.Struct, frozen=True):
    """One check. ``kind`` decides which fields are used, and when it succeeds:

    http: GET ``path`` on ``port`` returns 200; ``token_file`` adds that bearer token to the request.
    completion: a chat completion of ``model`` on ``port`` succeeds; ``token_file`` as above. With ``token_routes`` the
    three token routes that sessions need have to succeed too; if one of them refuses, the service fails for good.
    log_line: ``pattern`` (a regular expression) matches a line of the log after this generation's start.
    status_file: the JSON file ``path`` (``{generation}`` is filled in), written by the process itself, has its
    pid and ``"state": pattern``.
    process: the process exists.
    """

    kind: Literal["http", "completion", "log_line", "status_file", "process"]
    port: str = ""
    path: str = "/health"
    pattern: str = ""
    model: str = ""
    interval: float = 1.0  # seconds between two checks
    timeout: float = 5.0  # seconds for one check
    failures: int = 3  # consecutive failures after which the service is restarted (live) or degraded (ready)
    token_file: str = ""  # path of a file with a bearer token, relative to the run directory
    token_routes: bool = False
    waits_for: str = ""  # of log_line: what its line says, for people, behind "waits for"


class Probes(msgspec.Struct, frozen=True):
    """The checks of a service: ``startup`` must succeed within ``startup_deadline`` seconds and makes it ready;
    ``ready`` then moves it between ready and degraded; a failed ``live`` restarts it."""

    startup: Probe = Probe(kind="process")
    startup_deadline: float = 2700.0
    ready: Probe | None = None
    live: Probe | None = None


class RestartPolicy(msgspec.Struct, frozen=True):
    """When a service is restarted. More than ``max_failures`` failures within ``window`` seconds stop the restarts
    (``gave_up``).

    The first restart is immediate; later ones are delayed by ``base * 2**n`` seconds up to ``cap``, each +-``jitter``
    (0..1). Earlier failures no longer count once a generation has been ready for ``stable`` seconds.

    ``until_ready``: only a start is repeated that failed before the service was ready, and for a reason that may pass.
    ``passing`` says which: a text in the log of the start -> why it failed, as a sentence.
    """

    mode: Literal["never", "on_failure", "always", "until_ready"] = "on_failure"
    base: float = 1.0
    cap: float = 60.0
    jitter: float = 0.2
    window: float = 300.0
    max_failures: int = 5
    stable: float = 60.0
    passing: dict[str, str] = {}


class StopStage(msgspec.Struct, frozen=True):
    """Send ``signal`` to ``target`` (the main process or its whole tree), then wait up to ``grace`` seconds."""

    signal: Literal["INT", "TERM", "KILL", "USR1"]
    target: Literal["leader", "tree"]
    grace: float


DEFAULT_STOP: tuple[StopStage, ...] = (
    StopStage("TERM", "leader", 10.0),
    StopStage("TERM", "tree", 5.0),
    StopStage("KILL", "tree", 5.0),
)


class PortSpec(msgspec.Struct, frozen=True):
    """A port of a service. ``number`` 0: any free port, chosen for each generation. ``held``: the run holds the
    listening socket and passes it to each generation as an inherited file descriptor: that of the first such port is
    ``LIVERL_LISTEN_FD``, that of a further one ``LIVERL_LISTEN_FD_NAME``. ``host``: an address, a name, or ``BRIDGE``.
    ``key``: the configuration key of the number, where 0 is allowed; "" without one.
    """

    name: str
    number: int = 0
    host: str = "127.0.0.1"
    held: bool = False
    key: str = ""

    @property
    def words(self) -> str:
        """``port 4000 (infrastructure.litellm_port)``; ``causes.inputs.refused`` reads it."""
        return f"port {self.number} ({self.key})" if self.key else f"port {self.number}"


class FileSpec(msgspec.Struct, frozen=True):
    """A file written before each start; ``path`` is relative to the run directory. Its placeholders are in strings of
    JSON."""

    path: str
    text: str
    mode: int = 0o644


class ServiceSpec(msgspec.Struct, frozen=True):
    """A service: how to start, check, restart and stop it. Strings may contain placeholders (see the module)."""

    name: str
    kind: ServiceKind
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    unset_env: tuple[str, ...] = ()
    inherits: Inherit = "all"  # which of the caller's variables it gets; "all" in plans of earlier versions
    pass_env: tuple[str, ...] = ()  # patterns of further ones, from supervise.pass_env
    # Variable -> absolute path of the file that contains its value. Secrets are read at each start and are in no plan.
    secret_env: dict[str, str] = {}
    optional_arguments: tuple[
        IfKnown, ...
    ] = ()  # behind argv, where the packages of ``environment`` know them
    cwd: str = "{run_dir}"
    environment: str | None = None  # name in Plan.environments; None = the backend's own interpreter
    depends_on: tuple[Dependency, ...] = ()
    ports: tuple[PortSpec, ...] = ()
    probes: Probes = Probes()
    restart: RestartPolicy = RestartPolicy()
    stop: tuple[StopStage, ...] = DEFAULT_STOP
    drain: tuple[StopStage, ...] = ()  # how a replaced generation ends; empty = no swap, stop then start
    gpus: int = 0  # number of whole GPUs that it needs
    files: tuple[FileSpec, ...] = ()
    ends_run: bool = False  # the run ends when it exits: with code 0 as done, else as failed
    fatal: bool = True  # the run fails if this service gives up
    # A file, relative to the run directory, that must have changed since the last automatic start; "" = none.
    restart_needs: str = ""
    # Reads boot stages in its log: litellm, trainer, ray, smoke, or an engine's; "" = none.
    stage_parser: str = ""
    owner: Owner = "ours"

    @property
    def completes(self) -> bool:
        """Whether the service runs to its end, so that exit code 0 is success. Otherwise it is a server, which must run
        until it is stopped.

        Derived from ``kind``, so that it is correct for plans of older versions too.
        """
        return self.kind in COMPLETING

    @property
    def host(self) -> str:
        """Host of its first port; loopback without ports."""
        return self.ports[0].host if self.ports else "127.0.0.1"


class InstallStep(msgspec.Struct, frozen=True):
    """Requirements to install with ``installer`` from ``index_url`` ("" = the environment's index)."""

    requirements: tuple[str, ...] = ()
    installer: Installer = "uv"
    index_url: str = ""


class EnvironmentSpec(msgspec.Struct, frozen=True):
    """A named Python environment: either an existing ``venv_path`` or ``requirements``, which are installed into a
    cache. ``venv_path`` "self" is the interpreter that runs liverl-tui.

    ``first`` is installed before the others and not changed by them. ``index_url`` and ``find_links`` may contain
    ``${NAME}``, a variable that is read when the environment is built.
    """

    name: str
    requirements: tuple[str, ...] = ()
    venv_path: str | None = None
    python: str | None = None  # version or interpreter for uv; None = the one that runs liverl-tui
    installer: Installer = "uv"
    index_url: str = ""  # "" = the index for which the installer is configured
    find_links: tuple[str, ...] = ()
    first: InstallStep = InstallStep()
    lock: bool = True  # install what a lock names, where there is one for these requirements
    local_copy: str = "false"  # true: copied from a network to a local disk; a folder: always copied to it


class Settings(msgspec.Struct, frozen=True):
    """Intervals and limits of the backend itself, all in seconds. ``keep_steps``: the newest steps whose trials keep
    all their files; None: all of them do. ``mute``: ids of alerts that are not raised; ``rules``: absolute paths of
    files with rules of the site, beside our catalogue of causes. ``metrics_port``: on which Prometheus reads the run's
    metrics, 0: none; ``metrics_token_file``: absolute path of the token's file, empty: one of the run's own.
    ``docker_host``: of the daemon whose bridge ports with the host ``BRIDGE`` are for, "": as the trainer's variables
    say. ``batch_end_time``: of the batch job, as the user says; ``batch_margin``: seconds before its end;
    ``batch_unsaved``: why the trainer saves no checkpoint before it, "": it does."""

    scan_interval: float = 2.0
    host_interval: float = 2.0
    gpus_interval: float = 2.0
    replicas_interval: float = 1.0
    trials_interval: float = 1.0
    snapshot_interval: float = 0.5
    cooldown: float = 30.0
    replica_stagger: float = 0.0  # between the starts of two replicas on GPUs
    stuck_after: float = 15.0  # after SIGKILL; the run then ends although processes remain
    keep_steps: int | None = None
    # Seconds for removing what trials left in Docker; None: nothing is removed
    sweep_sandboxes: float | None = None
    mute: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    max_replicas: int | None = None  # without a GPU; None: as many as the machine should carry
    metrics_port: int = 0
    metrics_token_file: str = ""
    docker_host: str = ""
    batch_end_time: str = ""
    batch_margin: float = 180.0
    batch_unsaved: str = "an earlier version of liverl-tui has planned it"


class NotifyTarget(msgspec.Struct, frozen=True):
    """Who is told. command: ``words``, a program and its arguments. webhook, apprise: ``file``, the absolute path of
    the file with the address, which is read at each delivery and never saved."""

    kind: Literal["command", "webhook", "apprise"]
    words: tuple[str, ...] = ()
    file: str = ""

    @property
    def title(self) -> str:
        """Who is told, in words, without an address or a key: ``webhook in /path``, ``command notify-me --quiet``."""
        if self.kind != "command":
            return f"{self.kind} in {self.file}"
        line = shlex.join(redact.command(self.words))
        return f"command {line if len(line) <= TITLE else line[: TITLE - 1] + '…'}"


class NotifyPlan(msgspec.Struct, frozen=True):
    """Who is told of which events of the run; ``min_level`` is that of alerts, ``timeout`` seconds for a delivery."""

    targets: tuple[NotifyTarget, ...] = ()
    events: tuple[str, ...] = ()
    min_level: Literal["info", "warning", "critical"] = "critical"
    timeout: float = 10.0


class NodeChecks(msgspec.Struct, frozen=True):
    """What each host of a run on several must have before the trainer starts; see ``liverl.hosts.checks``.

    ``paths``: key of the configuration -> path that it must see; ``writable``: keys of those to which it must be able
    to write; ``reach``: name -> ``host:port`` that it must reach; ``gpus``: of its own in Ray; ``shm``: bytes of
    /dev/shm; ``source``: folder from which verl is imported, "" = any; ``env``: variables of verl's processes there.
    Paths, addresses and variables with placeholders as in ServiceSpec.
    """

    paths: dict[str, str] = {}
    writable: tuple[str, ...] = ()
    reach: dict[str, str] = {}
    gpus: int = 0
    shm: int = 0
    source: str = ""
    env: dict[str, str] = {}


class RayPlan(msgspec.Struct, frozen=True):
    """The Ray cluster of topology verl, and how replicas are found in it.

    ``owner`` ours: the service ``service`` is its head, and ``token_file`` (relative to the run directory) must contain
    a token before that starts. foreign: the cluster at ``address`` was not started by this run; it is only read and
    never stopped, ``service`` and ``port`` are empty, and ``token_file`` is an absolute path, or empty if there is
    none. With a trainer of kind command, values that are empty here are determined once its script has started Ray.
    """

    owner: Owner
    address: str  # host:port of the GCS, for RAY_ADDRESS; with placeholders as in ServiceSpec
    dashboard: str  # host:port of the dashboard's REST interface; of our own head, only the host is used
    namespace: str  # namespace of the named actors; "" = any
    environment: str  # name in Plan.environments, in which ray can be imported; "" = see ``python``
    token_file: str
    expected: int  # replicas, ranks 0 to expected-1
    # Seconds that a rank may spend in a stage: without a living actor (missing since the trainer's start, or pending
    # since Ray first listed it), then without an address, then without a response from /health.
    actor_deadline: float
    address_deadline: float
    health_deadline: float
    service: str = ""  # name in Plan.services
    port: str = ""  # name of that service's port for the dashboard
    # For processes that connect to the cluster; with placeholders as in ServiceSpec.
    child_env: dict[str, str] = {}
    temp_dir: str = ""  # of our own head, if we chose its name: removed when the run has ended successfully
    python: str = ""  # interpreter of those processes, if it is in no environment of the plan
    hosts: int = 1  # that the run needs, our own head's included; a trainer of kind command counts its own
    checks: NodeChecks | None = None  # of each host; None: of a run on one, and in plans of earlier versions
    node_deadline: float = 1800.0  # seconds for all of them to join
    earlier: bool = False  # also count replicas older than the trainer: the user named this cluster


class ScriptOutputs(msgspec.Struct, frozen=True):
    """Where a launch script may write, besides the trials in the run directory and its standard output; all absolute.

    ``trials``: folders of trials; ``trial_globs``: the same for a name of the project that only the script knows. On
    ``nodes`` > 1 hosts each host may have one of its own beside them. ``logs``: globs that the user gave; without any,
    the first of ``train_logs`` and of ``vllm_logs`` that the script writes, unless its output names another.
    """

    trials: tuple[str, ...]
    trial_globs: tuple[str, ...] = ()
    nodes: int = 1
    logs: tuple[str, ...] = ()
    train_logs: tuple[str, ...] = ()
    vllm_logs: tuple[str, ...] = ()
    # ``LoadedConfig.given``: the keys that the user has given. None: not known, as in plans of earlier versions, in
    # which the script got the variables of all keys.
    given: dict[str, str] | None = None


class Plan(msgspec.Struct, frozen=True):
    """Everything that a run starts, and how. Saved as ``plan.json`` in the run directory."""

    run: str  # project/name
    run_dir: str
    topology: Literal["managed", "verl", "in_process"]
    environments: tuple[EnvironmentSpec, ...]
    services: tuple[ServiceSpec, ...]
    replica_template: ServiceSpec | None  # the service that `scale` copies; its name contains {index}
    expected_replicas: int
    replica_arguments: dict[str, tuple[str, ...]] = {}  # index -> further argv of that replica (faults)
    total_steps: int | None = None  # that the trainer is given, or the user's file sets
    steps_by: str = ""  # who says so, "training.total_steps (my.yaml:4)"
    trials_per_step: int | None = None  # prompts x trials per prompt, if we configure the trainer
    served_model: str = ""
    trial_timeout: float = 2400.0  # seconds; the proxy's request timeout
    ray: RayPlan | None = None  # topology verl
    engine: str = ""  # name in liverl.engines; "" in the plan of an older version
    serves: str = ""  # what the replicas are, in words; "" in the plan of an older version
    # Directory of the checkpoints from the newest of which each attempt goes on, in the run directory unless absolute;
    # "" = the run has none, its launch script or its configuration decides, or an older version planned it.
    resumes_from: str = ""
    cpus: bool = False  # nothing of the run computes on GPUs; False in the plan of an older version
    # File with the token that the replicas require on every port, relative to the run directory; "" = they require
    # none, as in plans of older versions and with replicas that verl or a script starts on GPUs.
    replica_token_file: str = ""
    adopted_port: int | None = None  # port of the proxy that a trainer of kind command starts
    script: ScriptOutputs | None = None  # of a trainer of kind command
    carrier: Carrier = "proxy"  # what carries the trials
    settings: Settings = Settings()
    notify: NotifyPlan = NotifyPlan()
    inert: tuple[Inert, ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[ConfigChange, ...] = ()  # with which attempts of the run began, oldest first
    smoke: tuple[str, ...] = ()  # of a smoke run: what was made small, "key 64 -> 8"; () of any other

    @property
    def needs_token_routes(self) -> bool:
        """Whether the run has the service ``sessions``, which asks every replica over HTTP. Sessions inside verl's
        workers do not."""
        return any(spec.kind == "sessions" for spec in self.services)

    @property
    def may_use_ray(self) -> bool:
        """Whether anything of the run may be a process of Ray: verl's, or what a launch script starts."""
        return self.ray is not None or self.script is not None

    @property
    def replica_engine(self) -> Engine:
        """The engine of the replicas. If this version has no engine of that name (or the plan of an older version names
        none), the template's environment decides, and vLLM is the default."""
        if self.engine in ENGINES:
            return ENGINES[self.engine]
        where = self.replica_template.environment if self.replica_template is not None else "vllm"
        return next((e for e in ENGINES.values() if e.environment == where), ENGINES["vllm"])
