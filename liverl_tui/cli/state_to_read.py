"""The state of a run for a command that only reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from liverl_tui.cli.output import echo

if TYPE_CHECKING:
    from liverl.model import Snapshot
    from liverl.rundir.layout import RunDir

LAST_WRITTEN = "the last state that its backend wrote"


def state_to_read(run: RunDir) -> tuple[Snapshot | None, bool]:
    """The state of a run, and whether its backend told it. One that runs and does not answer hides nothing: stderr says
    that it does not, and the state is the last one that it wrote.

    Raises:
        ControlError: the backend runs elsewhere, or is of another version.
    """
    from liverl.offline.present import present_or_recorded

    snapshot, live, silent = present_or_recorded(run)
    if silent:
        say_silent(silent, snapshot)
    return snapshot, live


def say_silent(why: str, snapshot: Snapshot | None) -> None:
    """Say on stderr that what is printed is not from the backend. ``why``: it does not answer."""
    echo(f"liverl-tui: {why}", err=True)
    if snapshot is not None:
        echo(f"liverl-tui: this is {LAST_WRITTEN}{age_words(snapshot)}", err=True)


def age_words(snapshot: Snapshot | None) -> str:
    """``, 12 s old``; empty without a snapshot."""
    return "" if snapshot is None else f", {max(0.0, time.time() - snapshot.at):.0f} s old"
