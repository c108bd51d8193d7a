"""A run with another configuration: what ``up --resume`` with --set, --config or --profile changes in it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.exit_codes import ExitCode
from liverl.rundir.layout import RunDir
from liverl_tui.cli.options import UpOptions
from liverl_tui.text.errors import CliError
from liverl_tui.text.words import one_line

if TYPE_CHECKING:
    from liverl.config import LoadedConfig, RunConfig
    from liverl.daemon.plan_change import PlanChange
    from liverl.model import ConfigChange

_NAMES = ("run.name", "experiment.exp_name")


def names_no_run(options: UpOptions) -> bool:
    """Whether neither --name nor the configuration of ``options`` names a run, so that --resume means the newest one.

    A file that is no complete configuration counts as naming none; what is wrong with it is said when it is applied.
    """
    from liverl.config import ConfigError, load_config

    if options.name is not None or any(s.partition("=")[0].strip() in _NAMES for s in options.sets):
        return False
    try:
        config = load_config(options.config, profile=options.profile, read_secrets=False).config
    except ConfigError:
        return True
    return not (config.run.name or config.experiment.exp_name)


def changed_run(run: RunDir, options: UpOptions) -> tuple[LoadedConfig, PlanChange] | None:
    """The configuration of ``run`` with the keys that the options set, and what the backend needs to begin an attempt
    with it. None if the run has these values already.

    Raises:
        ConfigError: the configuration, saved or changed, is not valid.
        CliError: a key cannot be changed in an existing run, or this version cannot start the configuration.
    """
    from msgspec.structs import replace

    from liverl.config import dump_yaml, resolved
    from liverl.config.changes import changes
    from liverl.config.load import load_over
    from liverl.daemon.plan_change import PlanChange
    from liverl.observe.config_edits import was_edited
    from liverl_tui.cli.target import Target

    if not run.config.exists():
        raise CliError(
            f"{run.config} does not exist, so the configuration of run {run.name} cannot be changed; to resume it "
            f"unchanged: liverl-tui up --resume {run.path}",
            ExitCode.USAGE,
        )
    if was_edited(run.path, run.config):
        raise CliError(
            f"{run.config} was edited after the run was created, so what differs from its plan is not known; undo the "
            "edit, then give the new values with --set or --config",
            ExitCode.USAGE,
        )
    before = load_over(run.config, read_secrets=False).config

    def load(checked: bool) -> LoadedConfig:
        loaded = load_over(
            run.config, options.config, profile=options.profile, sets=options.sets, checked=checked
        )
        named = _named(loaded.config, before)
        config = resolved(named, env=os.environ, cwd=Path.cwd(), now=time.time(), file=options.config)
        return replace(loaded, config=config)

    # First what can never be changed: such a value may contradict the run's other keys as well.
    _refuse(run, changes(before, load(checked=False)))
    loaded = load(checked=True)
    found = changes(before, loaded)
    if not found:
        return None
    plan = Target(loaded, run.path).plan()
    file = os.path.abspath(options.config) if options.config is not None and options.config.is_file() else ""
    return loaded, PlanChange(plan, dump_yaml(loaded.config, loaded.kept), found, file)


def _named(config: RunConfig, before: RunConfig) -> RunConfig:
    """``config`` with the name and run root of the run where the user's own are empty, which stands for a new name."""
    from msgspec.structs import replace

    run = replace(
        config.run,
        name=config.run.name or before.run.name,
        run_root=config.run.run_root or before.run.run_root,
    )
    return replace(config, run=run)


def _refuse(run: RunDir, found: tuple[ConfigChange, ...]) -> None:
    """Check that each change is allowed between two attempts.

    Raises:
        CliError: some are not; the message names each with its reason.
    """
    from liverl.config.changes import on_change

    refused = [c for c in found if on_change(c.key).kind == "never"]
    if not refused:
        return
    what = "1 key" if len(refused) == 1 else f"{len(refused)} keys"
    lines = [f"{what} cannot be changed in run {run.name}; nothing was changed or started:"]
    lines += [f"  {c.where}: {one_line(c.words)}\n      {on_change(c.key).words}" for c in refused]
    lines.append("To use other values, start another run: liverl-tui up --name NEW")
    lines.append("To see what can be changed: liverl-tui config --changes")
    raise CliError("\n".join(lines), ExitCode.USAGE)
