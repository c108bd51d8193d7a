"""``runs``: all runs of this host in the interface."""

from __future__ import annotations

from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import UpOptions
from liverl_tui.text.errors import CliError


@click.command("runs")
@click.option(
    "--run-root",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A further directory of runs, beside those that this host knows of.",
)
@click.option("--readonly", is_flag=True, help="Refuse every key that would change a run.")
def runs_command(run_root: Path | None, readonly: bool) -> int:
    """Show all runs of this host and user, live ones first: reward, steps, time, size, model, and why they failed.

    Enter opens a run; Space marks runs, and c compares two to six of them. Nothing is started. In scripts: liverl-tui
    ls --json, and liverl-tui compare RUN RUN --json.
    """
    from liverl_tui.cli.mode import all_runs, mode

    if run_root is not None and not run_root.is_dir():
        raise CliError(f"--run-root: there is no directory {run_root}", ExitCode.USAGE)
    if mode(no_ui=False, plain=False) != "interface":
        raise CliError(
            "runs needs a terminal (stdin, stdout and stderr, and TERM not dumb); to print the list: "
            + UpOptions(run_root=run_root).command_line(command="ls"),
            ExitCode.USAGE,
        )
    return all_runs(run_root, readonly=readonly)
