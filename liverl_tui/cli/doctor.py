"""``doctor``: tell from files what is wrong with a run, also of one that was never ours."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.private_folder import PrivateFolder
from liverl_tui.cli.progress import Progress
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.errors import CliError

PREFIX = "liverl-doctor-"
LEAST_WIDTH = 40  # columns


@click.command("doctor")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--rules",
    metavar="FILE",
    multiple=True,
    help="Use the rules of this file, too (see `rules`); repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@run_options
def doctor_command(
    paths: tuple[str, ...], rules: tuple[str, ...], as_json: bool, run: Path | None, run_root: Path | None
) -> int:
    """Find out from logs what is wrong with a run; show the evidence and what to do.

    PATH is one of: a log, which gzip, xz or bzip2 may have packed; a folder with logs, such as that of a run, of Ray's
    session or of a Slurm job; the name of a run; - for standard input. Without PATH: the live run, or else the newest
    one. Exits with 0 if nothing is wrong, 1 if something was found, 4 if there is nothing to read, and 70 if the
    doctor itself failed.
    """
    from liverl.causes.catalogue import ROWS
    from liverl.causes.row_files import RowsError
    from liverl.offline.doctor import report
    from liverl.offline.doctor.examine import examine
    from liverl.offline.doctor.unpacked import to_unpack, unpack
    from liverl.util import redact

    if run is not None or not paths:
        paths = (*paths, _of_run(run, run_root))
    try:
        # On a full disk there is no such folder, and plain logs need none.
        private = PrivateFolder(PREFIX) if any(map(to_unpack, paths)) else nullcontext(Path())
        with Progress() as progress, private as folder:
            given = unpack(tuple(_resolved(path, run_root) for path in paths), folder, progress.say)
            examination = given.named(examine(given.paths, progress.say, rules, given.packed))
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
        return ExitCode.NO_RUN
    return ExitCode.FAILED if examination.found else ExitCode.OK


def _of_run(named: Path | None, run_root: Path | None) -> str:
    """The directory of the run that --run names, or, where nothing is named, of the live or else the newest one; stderr
    says which.

    Raises:
        RunLookupError: no run matches, several do, or the live ones are on other hosts.
        CliError: there is no run at all.
    """
    from liverl.rundir.index import NoLiveRun
    from liverl.rundir.state_home import default_run_root

    try:
        found = run_to_read(named, run_root)
    except NoLiveRun:
        where = run_root if run_root is not None else default_run_root()
        message = f"there is no run under {where}; name a file or a folder with logs: liverl-tui doctor PATH"
        raise CliError(message, ExitCode.NO_RUN) from None
    echo(f"reading run {found.name} in {found.path}", err=True)
    return str(found.path)


def _resolved(name: str, run_root: Path | None) -> str:
    """A path as it is given; where there is none of that name, the directory of the run that is called so, as other
    commands find it. A name that is close to a run's is said, and read as a path."""
    from liverl.rundir.index import RunLookupError, find_run

    if name == "-" or os.path.lexists(name):
        return name
    try:
        run = find_run(Path(name), run_root)
    except RunLookupError as error:
        if "/" not in name or "did you mean" in str(error):
            echo(f"there is no file or folder {name} here, and {error}", err=True)
        return name
    except OSError:  # a folder above it must not be entered: what reads it says so
        return name
    echo(f"reading run {run.name} in {run.path}", err=True)
    return str(run.path)


def _width(most: int) -> int:
    """Columns of the terminal, if that is narrower than ``most``."""
    if not sys.stdout.isatty():
        return most
    return max(LEAST_WIDTH, min(most, shutil.get_terminal_size((most, 24)).columns))
