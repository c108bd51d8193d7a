"""``doctor``: tell from files what is wrong with a run, also of one that was never ours."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
import traceback
from pathlib import Path
from typing import Self

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError

QUIET = 1.0  # seconds without a line on stderr
INTERVAL = 2.0  # seconds between two lines at first; twice as long each time while the same log is read,
SELDOM = 8.0  # until it is so long
LEAST_WIDTH = 40  # columns


@click.command("doctor")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(paths: tuple[str, ...], as_json: bool) -> int:
    """Find out from logs what is wrong with a run; show the evidence and what to do.

    PATH is a log, also one packed by gzip, xz or bzip2, or a folder: of a run, of Ray's session, of a Slurm job, of
    anything else; - reads standard input. Exits with 0 if nothing is wrong, 1 if something was found, 4 if there is
    nothing to read, and 70 if the doctor itself failed.
    """
    from liverl.offline.doctor import report
    from liverl.offline.doctor.examine import examine
    from liverl.offline.doctor.unpacked import unpacked
    from liverl.util import redact

    try:
        with Progress() as progress, unpacked(paths) as given:
            examination = given.named(examine(given.paths, progress.say))
        text = report.as_json(examination) if as_json else report.as_text(examination, _width(report.WIDTH))
    except Exception as error:
        echo(redact.value("".join(traceback.format_exception(error))), err=True)
        what = redact.value(f"{type(error).__name__}: {error}")
        message = f"doctor itself failed: {what}; please report it with the lines above"
        raise CliError(message, ExitCode.INTERNAL) from error
    (echo_json if as_json else echo)(text)
    if not examination.read and not examination.found:
        _name_runs(paths)
        return ExitCode.NO_RUN
    return ExitCode.FAILED if examination.found else ExitCode.OK


def _name_runs(paths: tuple[str, ...]) -> None:
    """Say where the runs are that have the names that were given for paths."""
    from liverl.rundir.index import RunLookupError, find_run

    for name in paths:
        if name == "-" or Path(name).exists():
            continue
        try:
            run = find_run(Path(name), None)
        except RunLookupError:
            continue  # no run is called so
        command = f"liverl-tui doctor {shlex.quote(str(run.path))}"
        echo(f"{name} is no path here, but the run {run.name}: {command}", err=True)


def _width(most: int) -> int:
    """Columns of the terminal, if that is narrower than ``most``."""
    if not sys.stdout.isatty():
        return most
    return max(LEAST_WIDTH, min(most, shutil.get_terminal_size((most, 24)).columns))


class Progress:
    """While it is entered, says on stderr what is being read: after ``quiet`` seconds, and then every ``INTERVAL``, or
    ever more seldom while that is the same."""

    def __init__(self, quiet: float = QUIET) -> None:
        self._quiet = quiet
        self._text = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def say(self, text: str) -> None:
        """What is being read from now on."""
        self._text = text

    def _run(self) -> None:
        wait, said = self._quiet, ""
        while not self._over.wait(wait):
            wait = min(2 * wait, SELDOM) if said and self._text == said else INTERVAL
            said = self._text
            if said:
                echo(said, err=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
