"""``plan``: print what a configuration would start, or the stored plan of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.rundir.layout import RunDir
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular
from liverl_tui.cli.options import UpOptions, config_options, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config.schema import RunConfig
    from liverl.model import Check, Unchecked
    from liverl.plan.spec import Plan


@click.command("plan")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--name", metavar="NAME", help="Name of the run (default: the current time).")
@config_options
@run_options
def plan_command(as_json: bool, run: Path | None, **values: Any) -> int:
    """Show what a configuration would start, what was checked and what was not; with --run, the plan with which
    that run was started. Starts nothing. Exits with 3 if a check of your data, agents, tasks, model or launch script
    fails."""
    from liverl.model import Unchecked
    from liverl.plan.render import plan_json, plan_text

    checks: list[Check] = []
    if run is not None:
        plan, env = _stored(find_run(run, values["run_root"])), None
        left = [Unchecked("plan", "this is the plan with which the run was started; nothing is checked")]
    else:
        from liverl_tui.cli.target import load_target

        target = load_target(UpOptions.of(values))
        for warning in target.loaded.warnings:
            echo(f"warning: {warning}", err=True)
        plan, env = target.plan(), os.environ
        checks, left = _checked(plan, target.loaded.config)
    if as_json:
        echo_json(plan_json(plan, env, checks, left).rstrip("\n"))
    else:
        echo(plan_text(plan, env).rstrip("\n"))
        for check in checks:
            echo(f"{'check' if check.status == 'ok' else check.status:<10} {check.name}: {check.text}")
        for one in left:
            echo(f"unchecked  {one.name}: {one.text}")
    return ExitCode.PREFLIGHT if any(check.status == "fail" for check in checks) else ExitCode.OK


def _checked(plan: Plan, config: RunConfig) -> tuple[list[Check], list[Unchecked]]:
    """What was checked, and what was not."""
    from liverl.preflight.unchecked import unchecked

    left = list(unchecked(plan, config))
    names = {one.name for one in left}  # a check that was not made says ok
    made = _checks(plan, config)
    return [check for check in made if check.status != "ok" or check.name not in names], left


def _checks(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """What can be checked on any host with the files: the user's data, agents, tasks, model and launch script. The
    environments that exist are asked."""
    from liverl.preflight import launch_script, verl

    if config.trainer.kind == "verl":
        yield from verl.checks(plan, config)
    yield from launch_script.checks(plan)


def _stored(run: RunDir) -> Any:
    """The plan that a run was started with.

    Raises:
        CliError: the file is not a plan.
    """

    from liverl.plan.spec import Plan

    try:
        # Shown as recorded: ``plan.moved`` replaces the names of moved modules only when a service is started.
        return decode_json(read_regular(run.plan), type=Plan)
    except BAD_JSON as error:
        raise CliError(f"{run.plan} cannot be read: {error}") from error
