"""What only a command in a shell does with a run, for the command line of the interface: it is copied, not run."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from liverl.rundir.commands import run_words
from liverl_tui.data.host import Host
from liverl_tui.screens.entries import Entry
from liverl_tui.text.as_typed import as_typed


def shell_commands(run: str) -> Iterator[tuple[str, str]]:
    """(name, command to type in a shell) of each. ``run``: the run as a command takes it."""
    yield "report as a page", f"liverl-tui report {run} --html -o report.html"
    yield "archive of the run", f"liverl-tui archive {run}"
    yield "export a checkpoint", f"liverl-tui checkpoints export {run} STEP"
    yield "prune checkpoints", f"liverl-tui checkpoints prune {run} --keep 1"
    yield "go back to a checkpoint", f"liverl-tui checkpoints back {run} STEP"
    yield "undo going back to a checkpoint", f"liverl-tui checkpoints back {run} --undo"
    yield "export metrics", f"liverl-tui metrics export {run} --parquet -o metrics.parquet"
    yield "export trials", f"liverl-tui trials export {run} --parquet -o trials.parquet"
    yield "clean the run", f"liverl-tui clean {run}"


def shell_entries(app: Host) -> Iterator[Entry]:
    """An entry for each; Enter copies the command and says it. A demo's run has no name that a shell could use."""
    run_dir = app.view.snapshot.run_dir if app.view.snapshot is not None and not app.view.demo else ""
    for name, command in shell_commands(run_words(Path(run_dir)) if run_dir else "RUN"):
        command = as_typed(command)
        yield Entry(name, f"in a shell: {command}", functools.partial(_tell, app, command))


def _tell(app: Host, command: str) -> None:
    app.notifications.toast(f"type in a shell: {command}")
    app.navigation.copy_text(command)
