"""The sections of config.yaml that liverl-tui adds to LiveRL's: the run, environments, services and views.

``default.yaml`` contains every default and explains every key with its unit.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from liverl.config.sections.value_types import (
    BodyBytes,
    Count,
    CountOrZero,
    Engine,
    Installer,
    Name,
    PollSeconds,
    PortOrAny,
    PortOrOff,
    PositiveShare,
    Seconds,
    SecondsOrZero,
    SessionProcesses,
    Share,
    Topology,
    TrainerKind,
)

# As a venv_path: the interpreter that runs liverl-tui, with the component installed by an extra.
SELF = "self"
HARBOR = "harbor"  # the environment whose packages are known: an entry may be empty


class Run(Struct, frozen=True, kw_only=True):
    """``run``: topology, engine, name and directory of the run, and the number of replicas."""

    topology: Topology
    engine: Engine
    name: str
    run_root: str
    seed: CountOrZero
    replicas: Count


class FirstEntry(Struct, frozen=True, kw_only=True):
    """Packages that are installed into an environment before the others, which do not change them."""

    requirements: tuple[Name, ...] = ()
    installer: Installer = "pip"
    index_url: str = ""


def names_a_folder(text: str) -> bool:
    """Whether a value of ``local_copy`` is a folder and no misspelt ``true``."""
    return text.startswith(("/", "~", ".")) or "/" in text


class EnvironmentEntry(Struct, frozen=True, kw_only=True):
    """A named Python environment: an existing one at ``venv_path`` (``SELF``: that of liverl-tui), which is not
    changed, or else one into which ``requirements`` are installed, in the versions of a ``lock`` where there is one."""

    requirements: tuple[Name, ...] = ()
    venv_path: str | None = None
    python: str | None = None
    installer: Installer = "uv"
    index_url: str = ""
    find_links: tuple[Name, ...] = ()
    first: FirstEntry = FirstEntry()
    lock: bool = True
    local_copy: str = "false"


class Trainer(Struct, frozen=True, kw_only=True):
    """``trainer``: which trainer runs, whether it is restarted, and its overrides, or its command with working
    directory, variables and logs."""

    kind: TrainerKind
    restart: Literal["never", "from_checkpoint"]
    command: tuple[Name, ...] | None
    cwd: str
    env: dict[str, str]
    logs: tuple[Name, ...]
    overrides: dict[str, Any]


class Proxy(Struct, frozen=True, kw_only=True):
    """``proxy``: what carries the trials; listen address and time limits (seconds) of LiteLLM and of the sessions."""

    trials_through: Literal["auto", "litellm", "sessions"]
    host: Name
    advertise: str
    request_timeout: Seconds
    drain_timeout: Seconds
    cooldown_time: SecondsOrZero
    max_body_bytes: BodyBytes


class SessionScheduler(Struct, frozen=True, kw_only=True):
    """``session_proxy.scheduler``: when requests wait for room in a replica's KV cache."""

    enabled: bool
    high_watermark: PositiveShare
    hit_threshold: Share
    idle_grace: SecondsOrZero
    poll: PollSeconds


class SessionProxy(Struct, frozen=True, kw_only=True):
    """``session_proxy``: the service that records trials as tokens. A port of 0 means any free one."""

    port: PortOrAny
    rewrite: Literal["split", "mask", "recompute"]
    asides: Literal["skip", "train"]
    main_agent_prefix_match: Count
    models: tuple[Name, ...]
    patience: Seconds
    max_replica_deaths: Count
    in_flight: Count
    rows_per_trial: Count
    tokenizer: Literal["auto", "engine"]
    processes: SessionProcesses | Literal["auto"]
    scheduler: SessionScheduler


class Supervise(Struct, frozen=True, kw_only=True):
    """``supervise``: how services are started, stopped and restarted. Times are seconds."""

    scan_interval: Seconds
    startup_deadline: Seconds
    replica_stagger: SecondsOrZero
    max_replicas: Count | None
    stop_grace: SecondsOrZero
    tree_grace: SecondsOrZero
    kill_grace: Seconds
    restart_base: SecondsOrZero
    restart_cap: Seconds
    restart_jitter: Share
    storm_window: Seconds
    storm_failures: Count
    stable_after: SecondsOrZero
    trusted_roots: tuple[Name, ...]
    pass_env: tuple[Name, ...]


class Sandboxes(Struct, frozen=True, kw_only=True):
    """``sandboxes``: whose the sandboxes of trials in Docker are, and their end. ``stop_timeout``: seconds."""

    labels: bool
    stop_timeout: Seconds
    sweep: bool


class Observe(Struct, frozen=True, kw_only=True):
    """``observe``: seconds between two readings of each kind, and where Prometheus reads them."""

    replicas_interval: Seconds
    gpus_interval: Seconds
    host_interval: Seconds
    trials_interval: Seconds
    metrics_port: PortOrOff
    metrics_token_file: str


class Network(Struct, frozen=True, kw_only=True):
    """``network``: the interface over which the hosts of a run talk; "" = what each library chooses."""

    interface: str


class Batch(Struct, frozen=True, kw_only=True):
    """``batch``: the job of a batch system in which the run lives. ``end_time``: see ``liverl.config.end_time``, "" =
    as Slurm says; ``margin``: seconds."""

    end_time: str
    margin: SecondsOrZero


class Retention(Struct, frozen=True, kw_only=True):
    """``retention``: which trials keep all their files; None: all of them."""

    keep_steps: Count | None


class Diagnosis(Struct, frozen=True, kw_only=True):
    """``diagnosis``: ids of alerts that are not raised; checked by the command line, which has the rules. ``rules``:
    files with rows of a site beside our catalogue of causes."""

    mute: tuple[Name, ...]
    rules: tuple[Name, ...]


class Ui(Struct, frozen=True, kw_only=True):
    """``ui``: settings of the terminal interface."""

    theme: Name
    mouse: bool
    bell: bool
    desktop: Literal["auto", "osc9", "osc777", "off"]
    refresh_interval: Seconds
    keys: dict[
        str, str
    ]  # entry of the table of keys -> its keys; checked by the interface, which has the table


class LateReplica(Struct, frozen=True, kw_only=True):
    """A fault: the replica ``index`` starts to listen ``seconds`` late; 0 = off."""

    index: CountOrZero
    seconds: SecondsOrZero


class Faults(Struct, frozen=True, kw_only=True):
    """``embedded.faults``: faults injected into the embedded engine and trainer, for tests."""

    late_replica: LateReplica
    slow_start: SecondsOrZero
    crash_at_step: Count | None
    hang_at_step: Count | None
    nan_at_step: Count | None
    ignore_sigterm: tuple[Name, ...]
    leak_worker: bool
    tool_executor: Literal["full", "empty"]
    parsable_every: Count | None
    stream_chunk_delay: SecondsOrZero
    slow_replica: SecondsOrZero
    slow_tool: SecondsOrZero
    slow_sandbox: SecondsOrZero
    slow_last: SecondsOrZero
    slow_update: SecondsOrZero


class Embedded(Struct, frozen=True, kw_only=True):
    """``embedded``: settings of the embedded run."""

    turn_latency: SecondsOrZero
    faults: Faults
