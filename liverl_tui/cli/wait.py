"""``wait``: block until a run is ready or done."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive, read_backend
from liverl_tui.cli.numbers import seconds
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.control.blocking import Connection

_GOAL = {"ready": "become ready", "done": "end"}
LOOK_S = 0.5  # seconds between two looks at the files of another user's run
SILENT_S = 10.0  # a backend that is ending may not answer for a while; after this time it is an error


@click.command("wait")
@named_run
@click.option(
    "--for",
    "what",
    type=click.Choice(["ready", "done"]),
    default="ready",
    show_default=True,
    help="The state to wait for.",
)
@click.option(
    "--timeout",
    type=seconds(),
    metavar="SECONDS",
    help=f"Wait at most this many seconds, then exit with code {ExitCode.TIMEOUT}.",
)
@run_options
def wait_command(run: Path | None, run_root: Path | None, what: str, timeout: float | None) -> int:
    """Wait until a run is ready or done.

    Exit codes: 0 if the run became ready, the run's own exit code if the run has ended, 4 if its backend died without
    a result, 124 on a timeout.
    """
    found = find_run(run, run_root)
    code = wait_for(found, what, timeout)
    result = found.read_result() if code != ExitCode.OK else None
    if result is not None:
        echo(f"run {found.name} has ended: {result.summary or result.state}", err=True)
    return code


def wait_for(run: RunDir, what: str, timeout: float | None) -> int:
    """Block until the run is ready or done, for at most ``timeout`` seconds (None = for ever); the exit code, as in
    ``wait --help``.

    Raises:
        ControlError: there is no backend and no result.
        CliError: timed out.
    """
    from liverl.control.blocking import Connection
    from liverl.control.messages import NO_EVENTS, BackendDead, BackendOfOther, BackendSilent
    from liverl.daemon.waiting import Waiting

    deadline = None if timeout is None else time.monotonic() + timeout
    patience, waiting = time.monotonic() + SILENT_S, Waiting(partial(echo, err=True))
    while True:
        try:
            with Connection(run.path) as connection:
                connection.subscribe(NO_EVENTS, snapshots=True)
                return wait_on(connection, run, what, deadline)
        except BackendDead:
            result = run.read_result()
            if result is None:
                raise
            return result.exit_code
        except BackendOfOther:
            code = _by_files(run, what)
            if code is not None:
                return code
            _check_time(run, what, deadline)
            time.sleep(LOOK_S)
        except BackendSilent:
            # It is busy, stopped by a signal, or ending: then it closes its socket first. As long as its process
            # lives, so does the run; how long it says nothing proves nothing.
            alive = backend_alive(run.path)
            if isinstance(alive, LiveBackend):
                patience = time.monotonic() + SILENT_S
                waiting.look("the backend", alive.record.pid, "it does not answer")
            elif time.monotonic() > patience:
                raise
            _check_time(run, what, deadline)
            time.sleep(0.1)


def _by_files(run: RunDir, what: str) -> int | None:
    """The exit code where the files of another user's live run say that it is so far; None if they do not."""
    result = run.read_result()
    if result is not None:
        return result.exit_code
    snapshot, record = run.read_snapshot(), read_backend(run.path)
    newest = snapshot is not None and record is not None and snapshot.backend.pid == record.pid
    if what == "ready" and newest and snapshot is not None and snapshot.state == "running":
        return ExitCode.OK
    return None


def _check_time(run: RunDir, what: str, deadline: float | None) -> None:
    """Raises:
    CliError: the deadline has passed.
    """
    if deadline is not None and time.monotonic() > deadline:
        raise CliError(f"timed out waiting for run {run.name} to {_GOAL[what]}", ExitCode.TIMEOUT)


def wait_on(connection: Connection, run: RunDir, what: str, deadline: float | None) -> int:
    """``wait_for`` on a connection that is subscribed to snapshots; ``deadline`` is on the monotonic clock.

    Raises:
        BackendDead: the backend ended without a result.
        CliError: timed out.
    """
    from liverl.control.blocking import await_gone
    from liverl.control.messages import BackendDead

    while True:
        message = connection.read(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if message is None:
            raise CliError(f"timed out waiting for run {run.name} to {_GOAL[what]}", ExitCode.TIMEOUT)
        if message.snapshot is not None:
            if what == "ready" and message.snapshot.state == "running":
                return ExitCode.OK
            if what == "ready" and message.snapshot.result is not None:
                return message.snapshot.result.exit_code
        elif message.bye is not None:
            break
    await_gone(run.path, SILENT_S)
    result = run.read_result()
    if result is None:
        raise BackendDead(
            f"the backend of {run.name} ended without a result: see {run.backend_log}", run.path
        )
    return result.exit_code
