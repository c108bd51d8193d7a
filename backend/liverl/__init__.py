"""The headless backend of liverl-tui: configuration, plan, supervision and state of runs, without a terminal.

Each name below is imported on first use, so that ``import liverl`` stays fast::

    import liverl

    loaded = liverl.load_config("config.yaml")
    run_dir = liverl.start_run(loaded)
    snapshot = liverl.snapshot("runs/project/name")
    liverl.command("runs/project/name", "restart", service="proxy")
    result = liverl.stop_run("runs/project/name")
    async with liverl.connect("runs/project/name") as client:
        async for event in client.events(from_seq=0):
            ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from liverl.version import __version__

if TYPE_CHECKING:
    from liverl.config import ConfigError, LoadedConfig, load_config
    from liverl.control.blocking import command
    from liverl.control.client import Client, connect
    from liverl.control.messages import BackendDead, BackendElsewhere, CommandError, ControlError
    from liverl.daemon.launch import LaunchError
    from liverl.daemon.start_run import ChecksFailed, start_run
    from liverl.model import Event, Result, ServiceStatus, Snapshot
    from liverl.offline.state import snapshot
    from liverl.offline.stop import stop_run
    from liverl.plan import PlanError, make_plan
    from liverl.plan.spec import Plan
    from liverl.rundir.index import find_run, live_runs
    from liverl.rundir.layout import RunDir

# Public name -> the module that defines it.
_MODULES = {
    "ConfigError": "liverl.config",
    "LoadedConfig": "liverl.config",
    "load_config": "liverl.config",
    "command": "liverl.control.blocking",
    "snapshot": "liverl.offline.state",
    "stop_run": "liverl.offline.stop",
    "Client": "liverl.control.client",
    "connect": "liverl.control.client",
    "BackendDead": "liverl.control.messages",
    "BackendElsewhere": "liverl.control.messages",
    "CommandError": "liverl.control.messages",
    "ControlError": "liverl.control.messages",
    "LaunchError": "liverl.daemon.launch",
    "ChecksFailed": "liverl.daemon.start_run",
    "start_run": "liverl.daemon.start_run",
    "Event": "liverl.model",
    "Result": "liverl.model",
    "ServiceStatus": "liverl.model",
    "Snapshot": "liverl.model",
    "PlanError": "liverl.plan",
    "make_plan": "liverl.plan",
    "Plan": "liverl.plan.spec",
    "RunDir": "liverl.rundir.layout",
    "find_run": "liverl.rundir.index",
    "live_runs": "liverl.rundir.index",
}

__all__ = [
    "BackendDead",
    "BackendElsewhere",
    "ChecksFailed",
    "Client",
    "CommandError",
    "ConfigError",
    "ControlError",
    "Event",
    "LaunchError",
    "LoadedConfig",
    "Plan",
    "PlanError",
    "Result",
    "RunDir",
    "ServiceStatus",
    "Snapshot",
    "__version__",
    "command",
    "connect",
    "find_run",
    "live_runs",
    "load_config",
    "make_plan",
    "snapshot",
    "start_run",
    "stop_run",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'liverl' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
