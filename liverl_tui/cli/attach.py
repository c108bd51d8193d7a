"""``attach``: look at a run. Nothing here can end it."""

from __future__ import annotations

from pathlib import Path

import click

from liverl.rundir.index import find_run
from liverl_tui.cli.options import named_run, run_options, show_options


@click.command("attach")
@named_run
@show_options
@run_options
def attach_command(run: Path | None, run_root: Path | None, no_ui: bool, plain: bool, readonly: bool) -> int:
    """Show a run; with --run also one that has ended, or whose backend is dead: its last state, from its files.

    Leaving never ends the run. The exit code is the run's once it has ended, and 0 before.
    """
    from liverl_tui.cli.mode import mode, show

    return show(find_run(run, run_root), mode(no_ui=no_ui, plain=plain), readonly=readonly)
