"""A run from a program: what ``liverl-tui up --detach --yes`` does with a configuration."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.daemon.launch import LaunchError, create_run, start_backend
from liverl.exit_codes import ExitCode
from liverl.model import Check
from liverl.rundir.layout import VALID_NAMES, RunDir, valid_name
from liverl.util.plural import quantity

if TYPE_CHECKING:
    from liverl.config import LoadedConfig


class ChecksFailed(LaunchError):
    """A check before the start failed; nothing was started, and no directory was made. ``checks``: all of them."""

    def __init__(self, checks: Sequence[Check]) -> None:
        failed = [f"{check.id}: {check.text}" for check in checks if check.status == "fail"]
        count = quantity(len(failed), "check")
        super().__init__(f"{count} failed before the start: {'; '.join(failed)}", ExitCode.PREFLIGHT)
        self.checks = tuple(checks)


def start_run(loaded: LoadedConfig, *, check: bool = True) -> Path:
    """Start a new run and return its directory once its backend accepts commands. Its services start after that: follow
    ``connect(run).events()``. The run goes on without this program; ``stop_run`` stops it. Relative paths of
    ``loaded`` that came from no file are those of the working directory. ``check``: make the checks of ``liverl-tui
    check`` first, which takes seconds; what they warn of stands in ``preflight.json``.

    Raises:
        ConfigError: a value of ``loaded`` cannot be used, such as ``model.tool_parser: auto`` of an unknown model.
        PlanError: no run can be made of it.
        ChecksFailed: a check failed.
        LaunchError: the run exists already, its name cannot be a directory's, its directory cannot be written, or its
            backend did not start.
    """
    from msgspec.structs import replace

    from liverl.config import resolved, run_directory
    from liverl.plan import make_plan
    from liverl.preflight import run_checks, tool_parser

    file = Path(loaded.file) if loaded.file else None
    config = resolved(loaded.config, env=os.environ, cwd=Path.cwd(), now=time.time(), file=file)
    run_dir = run_directory(config)
    for key, name in (("experiment.project_name", run_dir.parent.name), ("run.name", run_dir.name)):
        if not valid_name(name):
            raise LaunchError(f"{key}: {name!r} is not a valid name; {VALID_NAMES}", ExitCode.USAGE)
    if RunDir(run_dir).is_run():
        raise LaunchError(f"{run_dir} already exists: set another run.name", ExitCode.USAGE)
    whole = replace(loaded, config=config)
    plan = make_plan(whole, run_dir)
    settled = tool_parser.settled(whole, plan, os.environ)
    if settled is not whole:
        whole, plan = settled, make_plan(settled, run_dir)
    checks = run_checks(plan, whole.config) if check else None
    if checks is not None and any(one.status == "fail" for one in checks):
        raise ChecksFailed(checks)
    create_run(whole, plan, run_dir, checks)
    start_backend(run_dir)
    return run_dir
