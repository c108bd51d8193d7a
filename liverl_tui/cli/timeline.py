"""``timeline``: where the time of a step goes."""

from __future__ import annotations

from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.numbers import STEP
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.cli.state_to_read import state_to_read
from liverl_tui.text.errors import CliError


@click.command("timeline")
@click.option("--step", type=STEP, metavar="N", help="Step N, not the newest one that has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every lane.")
@named_run
@run_options
def timeline_command(run: Path | None, run_root: Path | None, step: int | None, as_json: bool) -> int:
    """Show where the time of one step goes: its parts, what its trials waited for, the slowest trials, replicas, GPUs.

    The run may be live or ended. The interface draws the same with I.
    """
    from liverl.offline.timeline_shown import NoSuchStep, timeline_shown
    from liverl_tui.text.timeline import lines

    found = run_to_read(run, run_root)
    try:
        shown = timeline_shown(found, *state_to_read(found), step)
    except NoSuchStep as error:
        raise CliError(str(error), ExitCode.NO_RUN) from None
    if as_json:
        import msgspec

        echo_json(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
        return ExitCode.OK
    for line in lines(shown):
        echo(line)
    return ExitCode.OK
