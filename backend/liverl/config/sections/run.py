"""The sections of config.yaml that are ours: the run, its environments, its services and its views.

``default.yaml`` holds every default and explains every key with its unit.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from liverl.config.sections.value_types import (
    Count,
    CountOrZero,
    Engine,
    Installer,
    Name,
    Seconds,
    SecondsOrZero,
    Share,
    Topology,
    TrainerKind,
)

SELF = "self"  # a venv_path: the interpreter that runs liverl-tui, whose extras have installed the component


class Run(Struct, frozen=True, kw_only=True):
    topology: Topology
    engine: Engine
    name: str
    run_root: str
    seed: CountOrZero
    replicas: Count


class FirstEntry(Struct, frozen=True, kw_only=True):
    """What is installed before the rest of an environment; the rest does not change it."""

    requirements: tuple[Name, ...] = ()
    installer: Installer = "pip"
    index_url: str = ""


class EnvironmentEntry(Struct, frozen=True, kw_only=True):
    """One named Python environment. A ``venv_path`` is used as it is (``SELF``: the interpreter
    that runs us); else ``requirements`` are installed."""

    requirements: tuple[Name, ...] = ()
    venv_path: str | None = None
    python: str | None = None
    installer: Installer = "uv"
    index_url: str = ""
    find_links: tuple[Name, ...] = ()
    first: FirstEntry = FirstEntry()


class Trainer(Struct, frozen=True, kw_only=True):
    kind: TrainerKind
    restart: Literal["never", "from_checkpoint"]
    command: tuple[Name, ...] | None
    overrides: dict[str, Any]


class Proxy(Struct, frozen=True, kw_only=True):
    host: Name
    request_timeout: Seconds
    drain_timeout: Seconds
    cooldown_time: SecondsOrZero


class Supervise(Struct, frozen=True, kw_only=True):
    scan_interval: Seconds
    startup_deadline: Seconds
    replica_stagger: SecondsOrZero
    stop_grace: SecondsOrZero
    tree_grace: SecondsOrZero
    kill_grace: Seconds
    restart_base: SecondsOrZero
    restart_cap: Seconds
    restart_jitter: Share
    storm_window: Seconds
    storm_failures: Count
    stable_after: SecondsOrZero

    @property
    def stop_budget(self) -> float:
        """Seconds one service may take to end, all stages together."""
        return self.stop_grace + self.tree_grace + self.kill_grace


class Observe(Struct, frozen=True, kw_only=True):
    replicas_interval: Seconds
    gpus_interval: Seconds
    host_interval: Seconds
    trials_interval: Seconds


class Ui(Struct, frozen=True, kw_only=True):
    theme: Name
    mouse: bool
    bell: bool
    refresh_interval: Seconds


class LateReplica(Struct, frozen=True, kw_only=True):
    index: CountOrZero
    seconds: SecondsOrZero


class Faults(Struct, frozen=True, kw_only=True):
    late_replica: LateReplica
    slow_start: SecondsOrZero
    crash_at_step: Count | None
    hang_at_step: Count | None
    ignore_sigterm: tuple[Name, ...]
    leak_worker: bool
    tool_executor: Literal["full", "empty"]
    parsable_every: Count | None
    stream_chunk_delay: SecondsOrZero


class Embedded(Struct, frozen=True, kw_only=True):
    turn_latency: SecondsOrZero
    faults: Faults
