"""``events``: the run's story, from the backend while it lives and from the file when it does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl_tui.cli.options import named_run, run_options

if TYPE_CHECKING:
    from liverl.control.messages import Cursor
    from liverl.model import Event


@click.command("events")
@named_run
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends. Ctrl-C only leaves.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option(
    "--since", "seq", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only those after SEQ."
)
@run_options
def events_command(run: Path | None, run_root: Path | None, follow: bool, as_json: bool, seq: int) -> int:
    """What happened in a run, one line per event."""
    found = find_run(run, run_root)
    show = _Show(as_json)
    from liverl.control.history import read_events
    from liverl.control.messages import Cursor

    cursor = Cursor(seq)
    for event in cursor.new(read_events(found.path, seq)):
        show.event(event)
    if follow and isinstance(backend_alive(found.path), LiveBackend):
        _follow(found, cursor.seq, show)
    return ExitCode.OK


class _Show:
    def __init__(self, as_json: bool) -> None:
        from liverl_tui.cli.plain import EventLines

        self.as_json = as_json
        self.lines = EventLines(sys.stdout)

    def event(self, event: Event) -> None:
        if self.as_json:
            import msgspec

            self.lines.write(msgspec.json.encode(event).decode())
        else:
            self.lines.event(event)


def _follow(run: RunDir, seq: int, show: _Show) -> None:
    from liverl.control.history import read_events
    from liverl.control.messages import BackendDead, Cursor

    cursor = Cursor(seq)
    try:
        _live(run, cursor, show)
    except BackendDead:
        # A run that ends while we connect leaves no goodbye: its file has the rest.
        for event in cursor.new(read_events(run.path, cursor.seq)):
            show.event(event)
        if run.read_result() is None:
            raise


def _live(run: RunDir, cursor: Cursor, show: _Show) -> None:
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
