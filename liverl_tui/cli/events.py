"""``events``: print the events of a run, from its backend while that is alive, otherwise from its files."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl.util.visible import visible_json
from liverl_tui.cli.numbers import EVENT, LINES
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.control.messages import Cursor
    from liverl.model import Event


@click.command("events")
@named_run
@click.option(
    "-f", "--follow", is_flag=True, help="Print new events until the run ends. Ctrl-C ends only this command."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option(
    "--since",
    metavar="AGE",
    help="Print only events newer than this: 30s, 5m, 1h30m, 2d. A number means --after.",
)
@click.option(
    "--after", "seq", type=EVENT, default=0, metavar="SEQ", help="Print only events after number SEQ."
)
@click.option("-n", "--lines", type=LINES, metavar="N", help="Print only the newest N events.")
@run_options
def events_command(
    run: Path | None,
    run_root: Path | None,
    follow: bool,
    as_json: bool,
    since: str | None,
    seq: int,
    lines: int | None,
) -> int:
    """Print the events of a run, one per line."""
    begin = 0.0
    if since is not None and since.isascii() and since.isdecimal():  # as before AGE was known here
        seq = max(seq, int(since))
    elif since is not None:
        from liverl.logs.times import parse_age

        try:
            begin = time.time() - parse_age(since)
        except ValueError as error:
            raise CliError(f"--since: {error}", ExitCode.USAGE) from None
    run_dir = run_to_read(run, run_root)
    show = _Show(as_json)
    from liverl.control.history import read_events
    from liverl.control.messages import Cursor

    cursor = Cursor(seq)
    events: Iterable[Event] = cursor.new(read_events(run_dir.path, seq))
    events = (event for event in events if event.at >= begin)
    for event in events if lines is None else deque(events, lines):
        show.event(event)
    if follow and isinstance(backend_alive(run_dir.path), LiveBackend):
        _follow(run_dir, cursor.seq, show)
    return ExitCode.OK


class _Show:
    """Writes events to stdout, each as a line for people or as a JSON object."""

    def __init__(self, as_json: bool) -> None:
        from liverl_tui.cli.plain import EventLines

        self.as_json = as_json
        self.lines = EventLines(sys.stdout)

    def event(self, event: Event) -> None:
        if self.as_json:
            import msgspec

            self.lines.write(visible_json(msgspec.json.encode(event).decode()))
        else:
            self.lines.event(event)


def _follow(run: RunDir, seq: int, show: _Show) -> None:
    """Show the events after number ``seq`` until the run ends.

    Raises:
        BackendDead: the backend died and the run has no result.
    """
    from liverl.control.history import read_events
    from liverl.control.messages import BackendDead, Cursor

    cursor = Cursor(seq)
    try:
        _live(run, cursor, show)
    except BackendDead:
        # If the run ends while we connect, no bye message comes; the remaining events are in its files.
        for event in cursor.new(read_events(run.path, cursor.seq)):
            show.event(event)
        if run.read_result() is None:
            raise


def _live(run: RunDir, cursor: Cursor, show: _Show) -> None:
    """Show events as the backend sends them, until it says bye."""
    from liverl.control.blocking import Connection

    with Connection(run.path) as connection:
        connection.subscribe(cursor.seq)
        while True:
            message = connection.read(None)
            if message is None or message.bye is not None:
                return
            if message.event is not None:
                for event in cursor.new((message.event,)):
                    show.event(event)
            elif message.resync is not None:
                for event in connection.events_after(cursor):
                    show.event(event)
