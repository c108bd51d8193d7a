"""``status``: print the state of a run, from its backend while that is alive, otherwise from its files."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.model import SMOKE
from liverl.rundir.cleaned import read_cleaned
from liverl.rundir.commands import next_command
from liverl.rundir.layout import RunDir
from liverl.util.plural import plural
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo, echo_exact, echo_json, echo_styled
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.cli.state_to_read import LAST_WRITTEN, age_words, say_silent
from liverl_tui.text.as_typed import as_typed
from liverl_tui.text.errors import CliError
from liverl_tui.text.words import step_of

if TYPE_CHECKING:
    from liverl.control.blocking import Connection
    from liverl.model import Snapshot

LAST_EVENTS = 10  # shown of a run without a backend
INTERVAL_S = 1.0  # between two snapshots of --watch
WIDE = 10_000  # columns where stdout is no terminal: nothing is cut
LEAST_WIDTH = 60  # columns of the table, also on a narrower terminal


@click.command("status")
@named_run
@click.option("--json", "as_json", is_flag=True, help="Print the whole state as JSON.")
@click.option(
    "--prometheus", is_flag=True, help="Print the state as metrics, in the text format of Prometheus."
)
@click.option(
    "--watch",
    is_flag=True,
    help="Print again on every change, until the run ends. Ctrl-C ends only this command.",
)
@run_options
def status_command(
    run: Path | None, run_root: Path | None, as_json: bool, prometheus: bool, watch: bool
) -> int:
    """Show the current state of a run, or the last known state of a run that has ended."""
    from liverl.control.blocking import Connection
    from liverl.control.messages import BackendDead, BackendOfOther, BackendSilent

    if prometheus and (as_json or watch):
        raise click.UsageError("--prometheus goes with neither --json nor --watch")
    run_dir = run_to_read(run, run_root)
    if prometheus:
        return _metrics(run_dir)
    watching = False
    try:
        with Connection(run_dir.path) as connection:
            watching = watch
            if not watch:
                _show(connection.snapshot(), as_json)
            elif as_json or not _can_redraw():
                _blocks(connection, as_json)
            else:
                _redraw(connection)
    except BackendOfOther as error:
        _show_files(run_dir, str(error), as_json, compact=watch, live=True)
    except BackendSilent as error:
        _show_files(run_dir, str(error), as_json, compact=watch, live=True, silent=True)
        return ExitCode.FAILED
    except BackendDead as error:
        _show_files(run_dir, str(error), as_json, compact=watch)
        return ExitCode.NO_RUN if watching and run_dir.read_result() is None else ExitCode.OK
    return ExitCode.OK


def _metrics(run: RunDir) -> int:
    """Print the metrics of a run, of one without a backend those of its last state."""
    from liverl.exposition.series import exposition
    from liverl.offline.present import present_or_recorded

    snapshot, live, silent = present_or_recorded(run)
    if silent:
        say_silent(silent, snapshot)
    elif snapshot is None:
        raise CliError(f"no state of run {run.name} is recorded in {run.path}", ExitCode.FAILED)
    if snapshot is not None:
        echo_exact(exposition(snapshot, live=live).decode(), nl=False)
    return ExitCode.FAILED if silent else ExitCode.OK


def _can_redraw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _show(snapshot: Snapshot, as_json: bool) -> None:
    if as_json:
        echo_json(_json(snapshot, live=True, indent=2))
    else:
        # Nothing is cut in a file, unless COLUMNS is set.
        wide = 80 if sys.stdout.isatty() else WIDE
        width = max(LEAST_WIDTH, shutil.get_terminal_size((wide, 24)).columns)
        echo_styled(_table(snapshot, width))


def _json(snapshot: Snapshot, *, live: bool, indent: int | None, **more: Any) -> str:
    from liverl.model import SCHEMA
    from liverl.snapshot_json import plain_snapshot

    # The schema is that of this output, also if another version recorded the snapshot.
    fields = {**plain_snapshot(snapshot), **more, "schema": SCHEMA}
    return json.dumps({"schema": SCHEMA, "live": live, **fields}, indent=indent)


def _table(snapshot: Snapshot, width: int) -> list[str]:
    from liverl_tui.cli.plain import wants_colour
    from liverl_tui.cli.status_table import render

    return render(snapshot, width=width, colour=wants_colour(sys.stdout)).splitlines()


# -- --watch


def _redraw(connection: Connection) -> None:
    """Redraw the table in place on a terminal until the backend says bye."""
    from liverl.control.messages import NO_EVENTS
    from liverl_tui.cli.live_text import Redrawn

    connection.subscribe(NO_EVENTS, snapshots=True, interval=INTERVAL_S)
    newest: Snapshot | None = None
    with Redrawn(sys.stdout) as screen:
        while True:
            message = connection.read(None, screen.fd)
            if message is None:
                screen.settled()
            elif message.bye is not None:
                return
            elif message.snapshot is not None:
                newest = message.snapshot
            if newest is not None:
                screen.draw(_table(newest, screen.width))


def _blocks(connection: Connection, as_json: bool) -> None:
    """Print one line of JSON per snapshot, or sentences and an empty line per snapshot with a new fact."""
    from liverl.control.messages import NO_EVENTS
    from liverl_tui.text.facts import plain_facts

    connection.subscribe(NO_EVENTS, snapshots=True, interval=INTERVAL_S)
    last: Snapshot | None = None  # the newest that was printed
    while (message := connection.read(None)) is not None and message.bye is None:
        snapshot = message.snapshot
        if snapshot is None:
            continue
        if as_json:
            echo_json(_json(snapshot, live=True, indent=None))
        elif last is None or plain_facts(snapshot, last):
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.at))
            echo("\n".join([f"{snapshot.run} at {at}", *plain_facts(snapshot), ""]))
            last = snapshot
        sys.stdout.flush()


# -- without a backend


def _show_files(
    run: RunDir, why: str, as_json: bool, *, compact: bool, live: bool = False, silent: bool = False
) -> None:
    """Print what the files record of a run whose backend does not run, or does not answer this user. ``why``: the
    reason; ``compact``: JSON in one line; ``live``: the backend runs, and what it has written is newer than what can be
    seen from outside; ``silent``: it answers nobody, which is an error."""
    import msgspec

    from liverl.control.history import last_events
    from liverl.model import SCHEMA
    from liverl.offline.left import standing
    from liverl.offline.recorded import recorded
    from liverl.offline.run import OfflineRun
    from liverl_tui.cli.plain import EventLines

    result = run.read_result()
    events = last_events(run.path, LAST_EVENTS)
    snapshot = recorded(run) if live else OfflineRun(run.path).poll()
    if silent:
        say_silent(why, snapshot if as_json else None)
    if as_json:
        fields: dict[str, Any] = {
            "run": run.name,
            "run_dir": str(run.path),
            "state": result.state
            if result
            else snapshot.state
            if snapshot
            else "starting"
            if live
            else "dead",
            "result": msgspec.to_builtins(result),
            "events": msgspec.to_builtins(events),
        }
        if live and result is None:
            last = (
                f". The last that is known: {snapshot.phase}"
                if snapshot is not None and snapshot.phase
                else ""
            )
            fields["phase"] = f"{why}{last}"
        indent = None if compact else 2
        text = json.dumps({"schema": SCHEMA, "live": False, **fields}, indent=indent)
        echo_json(text if snapshot is None else _json(snapshot, live=False, indent=indent, **fields))
        return
    if result is not None:
        ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(result.ended_at))
        echo(f"run {run.name} has ended: {result.state}, exit code {result.exit_code}, {ended}")
        total = result.total_steps
        more = bool(total) and result.steps > (total or 0)
        steps = str(result.steps) if more else step_of(result.steps, total, " of ")
        steps += f" {plural(result.steps if more else total or result.steps, 'step')}"
        steps += f" ({total} wanted)" if more else ""
        # The table below begins with the summary.
        echo(
            f"  attempt {result.attempt}, {steps}. {'' if snapshot is not None else result.summary}".rstrip()
        )
        if snapshot is not None and snapshot.smoke:
            echo(f"  {SMOKE}")
        if (command := next_command(result)) is not None:
            echo(f"  to resume: {as_typed(command)}")
    elif live:
        if not silent:
            echo(f"{why}\nThis is the newest state that its files record{age_words(snapshot)}:")
        elif snapshot is not None:
            echo(f"This is {LAST_WRITTEN}{age_words(snapshot)}:")
    else:
        echo(f"NOT LIVE: {why}. This is the last state recorded in the files of run {run.name}.")
        echo(f"  {as_typed(standing(run.path, snapshot).sentence)}")
    for removal in read_cleaned(run.path):
        echo(f"  {removal.words}")
    if snapshot is not None:
        echo("")
        _show(snapshot, as_json=False)
        echo("")
    if events:
        echo("last events:")
        lines = EventLines(sys.stdout)
        for event in events:
            lines.write("  " + lines.format(event.at, event.service, event.text, event.level))
