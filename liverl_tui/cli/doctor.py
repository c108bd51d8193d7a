"""``doctor``: tell from files what is wrong with a run, also of one that was never ours."""

from __future__ import annotations

import shlex
import shutil
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.private_folder import PrivateFolder
from liverl_tui.cli.progress import Progress
from liverl_tui.text.errors import CliError

PREFIX = "liverl-doctor-"
LEAST_WIDTH = 40  # columns


@click.command("doctor")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--rules",
    metavar="FILE",
    multiple=True,
    help="Use the rules of this file, too (see `rules`); repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(paths: tuple[str, ...], rules: tuple[str, ...], as_json: bool) -> int:
    """Find out from logs what is wrong with a run; show the evidence and what to do.

    PATH is a log, also one packed by gzip, xz or bzip2, or a folder: of a run, of Ray's session, of a Slurm job, of
    anything else; - reads standard input. Exits with 0 if nothing is wrong, 1 if something was found, 4 if there is
    nothing to read, and 70 if the doctor itself failed.
    """
    from liverl.causes.catalogue import ROWS
    from liverl.causes.row_files import RowsError
    from liverl.offline.doctor import report
    from liverl.offline.doctor.examine import examine
    from liverl.offline.doctor.unpacked import to_unpack, unpack
    from liverl.util import redact

    try:
        # On a full disk there is no such folder, and plain logs need none.
        private = PrivateFolder(PREFIX) if any(map(to_unpack, paths)) else nullcontext(Path())
        with Progress() as progress, private as folder:
            given = unpack(paths, folder, progress.say)
            examination = given.named(examine(given.paths, progress.say, rules))
        text = report.as_json(examination) if as_json else report.as_text(examination, _width(report.WIDTH))
    except RowsError as error:
        if {fault.file for fault in error.faults} & set(rules):
            raise CliError(f"these rules cannot be used:\n{error}", ExitCode.USAGE) from None
        # Somebody has edited ours.
        raise CliError(f"the rows in {ROWS} cannot be used:\n{error}", ExitCode.INTERNAL) from None
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
