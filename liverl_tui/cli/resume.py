"""A run with another configuration: what ``up --resume`` with --set, --config or --profile changes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl.rundir.layout import RunDir
from liverl_tui.cli.options import UpOptions
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config import LoadedConfig
    from liverl.daemon.plan_change import PlanChange

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
    from liverl.daemon import next_attempt
    from liverl.daemon.launch import LaunchError

    try:
        return next_attempt.changed_run(
            run, sets=options.sets, config=options.config, profile=options.profile
        )
    except LaunchError as error:
        raise CliError(str(error), error.exit_code) from error
