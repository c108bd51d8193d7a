"""How a run is shown: by the interface, or as lines. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import click

from liverl.rundir.index import RunLookupError, describe, elsewhere_message
from liverl.rundir.layout import RemoteBackend, RunDir, backend_alive
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl_tui.cli.plain import EventLines

Mode = Literal[
    "interface",
    "plain",  # one line per event, and the facts in sentences
    "lines",  # one line per event
]

BEFORE = 20  # events shown from before we came


def mode(*, no_ui: bool, plain: bool) -> Mode:
    """What was asked for, and what this terminal can do."""
    if plain:
        return "plain"
    if no_ui:
        return "lines"
    # Textual reads from stdin and draws on stderr; a pipe at stdout wants text.
    ends = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return "interface" if ends and os.environ.get("TERM", "dumb") != "dumb" else "plain"


def show(run: RunDir, how: Mode, *, readonly: bool = False, text: str = "") -> int:
    """Show a run that nobody here has started; its exit code where it ends. Nothing here can end it.

    Raises:
        RunLookupError: it lives on another host.
        ControlError: as lines, and it has neither a backend nor a result.
    """
    if how == "interface":
        if isinstance(backend_alive(run.path), RemoteBackend):
            raise RunLookupError(elsewhere_message(describe(run.path)))
        return interface(run, readonly=readonly)
    return _lines(run, how, text)


def interface(run: RunDir, *, readonly: bool, start: Callable[[], object] | None = None) -> int:
    """The interface, on a run whose backend may have to be started first.

    Raises:
        LaunchError: it did not start.
    """
    from liverl_tui.app.start import run_interface

    code = run_interface(run, readonly=readonly, start=start)
    if start is not None and os.environ.get("SLURM_JOB_ID"):
        click.echo("note: this is a Slurm job; the run is stopped when the job ends", err=True)
    return code


def _lines(run: RunDir, how: Mode, text: str) -> int:
    from liverl.control.blocking import snapshot
    from liverl.control.messages import BackendDead
    from liverl_tui.cli.plain import EventLines, Follower

    lines = EventLines(sys.stdout)
    try:
        seq = snapshot(run.path).seq
    except BackendDead:
        if run.read_result() is None:
            raise
        return _ended(run, lines, how)
    lines.note(text or f"attached to run {run.name} in {run.path}")
    try:
        return Follower(run, lines, from_seq=max(0, seq - BEFORE), facts=how == "plain").follow()
    except KeyboardInterrupt:
        click.echo(
            f"detached; run {run.name} is still running. To attach again: liverl-tui attach --run {run.path}",
            err=True,
        )
        raise


def _ended(run: RunDir, lines: EventLines, how: Mode) -> int:
    """The last state of a run that has ended."""
    from liverl.control.history import last_events
    from liverl.offline.run import OfflineRun
    from liverl_tui.text.facts import plain_facts

    for event in last_events(run.path, BEFORE):
        lines.event(event)
    last = OfflineRun(run.path).poll() if how == "plain" else None
    if last is not None:
        for sentence in plain_facts(last):
            lines.state(last.at, sentence)
    result = run.read_result()
    if result is None:
        raise CliError(f"run {run.name} has started another attempt; attach again")
    lines.note(f"run {run.name} has ended: {result.state}, exit code {result.exit_code}")
    return result.exit_code
