"""Which run a command is about that only reads: also one that has ended. Commands that steer use ``find_run``."""

from __future__ import annotations

from pathlib import Path

from liverl.rundir.index import find_or_newest
from liverl.rundir.layout import RunDir
from liverl_tui.cli.output import echo


def run_to_read(run: Path | None, run_root: Path | None) -> RunDir:
    """The run that a user refers to, as ``find_run`` finds it. Where none is named and none is live: the newest one,
    which stderr then names with how it ended; stdout is left to the answer.

    Raises:
        RunLookupError: no run matches, several do, or the live ones are on other hosts.
    """
    found, newest = find_or_newest(run, run_root)
    if newest is not None:
        end = newest.words if newest.state == "lost" else f"it has ended: {newest.state}"
        echo(f"no run is live on this host; the newest is {newest.run} ({end})", err=True)
    return found
