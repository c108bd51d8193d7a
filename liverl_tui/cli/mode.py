"""How a run is shown: in the interface, or as lines of text. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from liverl.exit_codes import ExitCode
from liverl.rundir.commands import attach_command, ended_commands
from liverl.rundir.index import RunLookupError, describe, elsewhere_message
from liverl.rundir.layout import RemoteBackend, RunDir, backend_alive
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from pathlib import Path

    from liverl_tui.app.start import Closed
    from liverl_tui.cli.plain import EventLines

Mode = Literal[
    "interface",
    "plain",  # one line per event, and the state of the run in sentences
    "lines",  # one line per event
]

BEFORE = 20  # older events that are shown first


def mode(*, no_ui: bool, plain: bool) -> Mode:
    """How to show a run, given the options: the interface, or ``plain`` if stdin, stdout or stderr is no terminal or
    the terminal is dumb."""
    if plain:
        return "plain"
    if no_ui:
        return "lines"
    # Textual reads from stdin and draws on stderr; a pipe on stdout expects text.
    ends = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return "interface" if ends and os.environ.get("TERM", "dumb") != "dumb" else "plain"


def show(run: RunDir, how: Mode, *, readonly: bool = False, text: str = "") -> int:
    """Show a run that this process has not started; the exit code. Ctrl-C does not stop the run: as lines it raises
    KeyboardInterrupt. ``text``: the first line, where the run is shown as lines.

    Raises:
        RunLookupError: the run is live on another host.
        ControlError: shown as lines, and the run has neither a backend nor a result.
    """
    if how == "interface":
        if isinstance(backend_alive(run.path), RemoteBackend):
            raise RunLookupError(elsewhere_message(describe(run.path)))
        return interface(run, readonly=readonly)
    return _lines(run, how, text)


def interface(run: RunDir, *, readonly: bool, start: Callable[..., object] | None = None) -> int:
    """Show the interface on a run and return the exit code. ``start``: starts the backend first; None if it is
    alive already.

    Raises:
        LaunchError: the backend did not start.
    """
    from liverl_tui.app.start import run_interface

    closed = run_interface(run, readonly=readonly, start=start)
    if start is not None and os.environ.get("SLURM_JOB_ID"):
        echo("note: this is a Slurm job; the run is stopped when the job ends", err=True)
    return _next_runs(closed, readonly)


def all_runs(run_root: Path | None, *, readonly: bool = False, told: str = "") -> int:
    """Show the list of all runs, and the one that is opened from it; the exit code. ``run_root``: a further directory
    of runs; ``told``: why the list is shown, said on it and, where no run was opened from it, afterwards."""
    from liverl_tui.app.start import run_list

    closed = run_list(run_root, told)
    if told and closed.next_run is None and closed.exit_code == ExitCode.OK:
        echo(told, err=True)
    return _next_runs(closed, readonly)


def _next_runs(closed: Closed, readonly: bool) -> int:
    """Show each run that the user chooses in the one before; the exit code of the last one.

    Raises:
        UntrustedRun: another user could have changed the run.
    """
    from liverl_tui.app.start import run_interface

    while closed.next_run is not None:
        run = RunDir(closed.next_run)
        if not readonly:
            from liverl_tui.cli.target import require_trusted

            require_trusted(run, ())
        closed = run_interface(run, readonly=readonly)
    return closed.exit_code


def _lines(run: RunDir, how: Mode, text: str) -> int:
    """Print the last ``BEFORE`` events and follow the run to its end; the run's exit code."""
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
        echo(f"detached; run {run.name} goes on\nto attach again: {attach_command(run.path)}", err=True)
        raise


def _ended(run: RunDir, lines: EventLines, how: Mode) -> int:
    """Print the last events and the last state of a run that has ended; its exit code."""
    from liverl.control.history import last_events
    from liverl.offline.run import OfflineRun
    from liverl_tui.text.facts import plain_facts

    for event in last_events(run.path, BEFORE):
        lines.event(event)
    snapshot = OfflineRun(run.path).poll() if how == "plain" else None
    if snapshot is not None:
        for sentence in plain_facts(snapshot):
            lines.state(snapshot.at, sentence)
    result = run.read_result()
    if result is None:
        raise CliError(f"run {run.name} has started another attempt; attach again")
    lines.note(f"run {run.name} has ended: {result.state}, exit code {result.exit_code}")
    lines.note(ended_commands(run.path))
    return result.exit_code
