"""``plan``: print what a configuration would start, or the stored plan of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.rundir.layout import RunDir
from liverl.util.bad_json import BAD_JSON
from liverl.util.regular_file import read_regular
from liverl_tui.cli.options import UpOptions, config_options, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config.schema import RunConfig
    from liverl.model import Check
    from liverl.plan.spec import Plan


@click.command("plan")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--name", metavar="NAME", help="Name of the run (default: the current time).")
@config_options
@run_options
def plan_command(as_json: bool, run: Path | None, **values: Any) -> int:
    """Show what a configuration would start; with --run, what that run was started as. Starts nothing. Exits with 3
    if a check of your data, agents or tasks fails; with --json there are no checks."""
    from liverl.plan.render import plan_json, plan_text

    checks: Iterable[Check] = ()
    failed = False
    if run is not None:
        plan, env = _stored(find_run(run, values["run_root"])), None
    else:
        from liverl_tui.cli.target import load_target

        target = load_target(UpOptions.of(values))
        for warning in target.loaded.warnings:
            echo(f"warning: {warning}", err=True)
        plan, env = target.plan(), os.environ
        checks = _own_run(plan, target.loaded.config)
    if as_json:
        echo_json(plan_json(plan, env).rstrip("\n"))
    else:
        echo(plan_text(plan, env).rstrip("\n"))
        for check in checks:
            echo(f"{'check' if check.status == 'ok' else check.status:<10} {check.name}: {check.text}")
            failed = failed or check.status == "fail"
    return ExitCode.PREFLIGHT if failed else ExitCode.OK


def _own_run(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """What is found of the user's data, agents and tasks; the environments that exist are asked."""
    if config.trainer.kind != "verl":
        return
    from liverl.preflight import harbor, verl

    yield from verl.own_run(plan, config)
    yield from harbor.checks(plan, config)


def _stored(run: RunDir) -> Any:
    """The plan that a run was started with.

    Raises:
        CliError: the file is not a plan.
    """
    import msgspec

    from liverl.plan.spec import Plan

    try:
        # Shown as recorded: ``plan.moved`` replaces the names of moved modules only when a service is started.
        return msgspec.json.decode(read_regular(run.plan), type=Plan)
    except BAD_JSON as error:
        raise CliError(f"{run.plan} cannot be read: {error}") from error
