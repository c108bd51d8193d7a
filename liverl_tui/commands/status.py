"""``status``: the present state, from the backend while it lives and from the files when it does not."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.runs import RunDir, describe, find_run
from liverl_tui.commands.options import run_options

if TYPE_CHECKING:
    from liverl.model import Snapshot

LAST_EVENTS = 10


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="The whole state as JSON.")
@click.option("--watch", is_flag=True, help="Again whenever it changes. Ctrl-C leaves.")
@run_options
def status_command(run: Path | None, run_root: Path | None, as_json: bool, watch: bool) -> int:
    """The present state of a run; of one that has ended, the last that is known."""
    from liverl.control.blocking import Connection
    from liverl.control.messages import NO_EVENTS, BackendDead

    found = find_run(run, run_root)
    try:
        with Connection(found.path) as connection:
            if not watch:
                _show(connection.snapshot(), as_json)
                return 0
            connection.subscribe(NO_EVENTS, snapshots=True, interval=1.0)
            while (message := connection.read(None)) is not None and message.bye is None:
                if message.snapshot is not None:
                    _clear(as_json)
                    _show(message.snapshot, as_json, compact=True)
    except BackendDead as error:
        _show_files(found, as_json, str(error))
    return 0


def _clear(as_json: bool) -> None:
    if sys.stdout.isatty() and not as_json:
        sys.stdout.write("\x1b[H\x1b[2J")


def _show(snapshot: Snapshot, as_json: bool, *, compact: bool = False) -> None:
    from liverl_tui.commands.table import render
    from liverl_tui.plain import wants_colour

    if as_json:
        import msgspec

        data: dict[str, Any] = {"live": True, **msgspec.to_builtins(snapshot)}
        click.echo(json.dumps(data, indent=None if compact else 2))
        return
    width = max(60, shutil.get_terminal_size((80, 24)).columns)
    click.echo(render(snapshot, width=width, colour=wants_colour(sys.stdout)))


def _show_files(run: RunDir, as_json: bool, why: str) -> None:
    """What the files say of a run without a backend."""
    import msgspec

    from liverl.control.history import last_events
    from liverl_tui.plain import EventLines

    info = describe(run.path)
    result = run.read_result()
    events = last_events(run.path, LAST_EVENTS)
    if as_json:
        data = {
            "live": False,
            "run": run.name,
            "run_dir": str(run.path),
            "state": result.state if result else "dead",
            "result": msgspec.to_builtins(result),
            "events": msgspec.to_builtins(events),
        }
        click.echo(json.dumps(data, indent=2))
        return
    if result is not None:
        ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(result.ended_at))
        click.echo(f"run {run.name} has ended: {result.state}, exit code {result.exit_code}, {ended}")
        click.echo(f"  attempt {result.attempt}, {result.steps} steps. {result.summary}".rstrip())
        if result.cause is not None:
            click.echo(f"  cause: {result.cause.service or 'run'}: {result.cause.text}")
    else:
        click.echo(f"NOT LIVE: {why}. What follows is the last that its files say.")
        left = "its services may still run" if info.state == "orphaned" else "nothing of it can be left here"
        click.echo(f"  {left}; to go on: liverl-tui up --run {run.path}")
    if events:
        click.echo("last events:")
        lines = EventLines(sys.stdout)
        for event in events:
            lines.write("  " + lines.format(event.at, event.service, event.text, event.level))
