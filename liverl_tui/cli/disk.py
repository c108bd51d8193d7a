"""``disk``: what a run holds on disk."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.progress import Progress
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.disk import WIDE, lines


@click.command("disk")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; sizes are bytes.")
@named_run
@run_options
def disk_command(run: Path | None, run_root: Path | None, as_json: bool) -> int:
    """Show what a run holds on disk by kind, which command removes what is not needed of it, and its checkpoints with
    size, step, and whether they are complete. Nothing is removed.
    """
    from liverl.offline.run_disk import run_disk

    found = run_to_read(run, run_root)
    with Progress() as progress:
        disk = run_disk(found.path, progress.say)
    if as_json:
        import msgspec

        echo_json(msgspec.json.format(msgspec.json.encode(disk), indent=2).decode())
        return ExitCode.OK
    for line in lines(disk, shutil.get_terminal_size((WIDE, 24)).columns, time.strftime("%H:%M:%S")):
        echo(line)
    return ExitCode.OK
