"""``attach``: look at a live run. Nothing here can end it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from liverl.runs import RunDir, find_run
from liverl_tui.commands.options import run_options

BEFORE = 20  # events shown from before we came


@click.command("attach")
@click.option("--no-ui", is_flag=True, help="One line per event instead of the interface.")
@run_options
def attach_command(run: Path | None, run_root: Path | None, no_ui: bool) -> int:
    """Show a live run until it ends; the exit code is the run's. Ctrl-C leaves, and the run goes on."""
    return attach(find_run(run, run_root))


def attach(run: RunDir, text: str = "") -> int:
    """Follow ``run`` from its newest events on; its exit code."""
    from liverl.control.blocking import snapshot
    from liverl_tui.plain import EventLines, Follower

    lines = EventLines(sys.stdout)
    seq = snapshot(run.path).seq
    lines.note(text or f"attached to run {run.name} in {run.path}")
    try:
        return Follower(run, lines, from_seq=max(0, seq - BEFORE)).follow()
    except KeyboardInterrupt:
        click.echo(f"left; run {run.name} goes on. Back to it: liverl-tui attach --run {run.path}", err=True)
        raise
