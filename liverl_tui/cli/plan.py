"""``plan``: print what a configuration would start, or the stored plan of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl_tui.cli.check import ELSEWHERE, GPU_MEMORY, Host, checks_of
from liverl_tui.cli.check_table import table
from liverl_tui.cli.options import UpOptions, config_options, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.target import load_target, stored_plan
from liverl_tui.text.checks import counted


@click.command("plan")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--all",
    "every_key",
    is_flag=True,
    help="List also the keys that have no effect here and that you did not set.",
)
@ELSEWHERE
@GPU_MEMORY
@click.option("--name", metavar="NAME", help="Name of the run (default: the current time).")
@config_options
@run_options
def plan_command(
    as_json: bool, every_key: bool, elsewhere: bool, gpu_memory: float | None, run: Path | None, **values: Any
) -> int:
    """Show what a configuration would start, and what `check` finds; with --run, the plan with which that run was
    started. Nothing is started. Exits with 3 if a check fails that would fail on any host. --other-host leaves out the
    checks that look at this host."""
    from liverl.model import Check
    from liverl.plan.render import plan_json, plan_text
    from liverl.preflight.registry import OF_HOST

    if run is not None:
        plan, env = stored_plan(find_run(run, values["run_root"])), None
        text = "this is the plan with which the run was started; nothing is checked"
        checks = [Check("plan", "skipped", text, "plan")]
    else:
        target = load_target(UpOptions.of(values))
        for warning in target.loaded.warnings if as_json else ():  # the text of the plan has them itself
            echo(f"warning: {warning}", err=True)
        plan, env = target.plan(), os.environ
        checks = checks_of(plan, target.loaded.config, Host(elsewhere, gpu_memory))
    if as_json:
        echo_json(plan_json(plan, env, checks).rstrip("\n"))
    else:
        echo(plan_text(plan, env, every_key=every_key).rstrip("\n"))
        echo("")
        for line in (*table(checks), counted(checks)):
            echo(line)
    failed = any(check.status == "fail" and check.id not in OF_HOST for check in checks)
    return ExitCode.PREFLIGHT if failed else ExitCode.OK
