"""``archive``: keep what is worth keeping of a run that has ended."""

from __future__ import annotations

from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import as_path, named_run, run_options
from liverl_tui.cli.output import echo, echo_exact
from liverl_tui.text.errors import CliError


@click.command("archive")
@named_run
@click.option(
    "--artifacts",
    metavar="DIR",
    callback=as_path,
    help="Folder of index.yaml and archives/ (default: artifacts, in the run root).",
)
@run_options
def archive_command(run: Path | None, run_root: Path | None, artifacts: Path | None) -> int:
    """Copy configuration, metrics, report, ends of the logs, a sample of trajectories and the launch script of a run to
    artifacts/archives/run_NNN, note it in artifacts/index.yaml, and print the new folder.

    Without RUN: the run that ended last. The run itself stays as it is, and checkpoints are not copied. A run that was
    archived before is not archived again, and nothing is ever overwritten.
    """
    from liverl.offline.archive import archive
    from liverl.rundir.index import RunLookupError, candidates, find_run
    from liverl.rundir.layout import RunDir
    from liverl.rundir.ledger import LedgerError, artifacts_of

    if run is not None:
        found = find_run(run, run_root)
    else:
        ended = [one for one in candidates(run_root) if one.state in ("done", "failed", "stopped")]
        if not ended:
            raise RunLookupError("no run has ended here; name one: liverl-tui archive RUN")
        found = RunDir(ended[0].run_dir)
    found = RunDir(found.path.resolve())
    folder = artifacts_of(found.path) if artifacts is None else artifacts.expanduser().absolute()
    try:
        done = archive(found, folder, named=artifacts is not None)
    except LedgerError as error:
        raise CliError(f"nothing was archived: {error}", ExitCode.USAGE) from error
    for text in done.left_out:
        echo(f"left out: {text}", err=True)
    if not done.new:
        echo(f"run {found.name} was archived before", err=True)
    echo_exact(done.folder)
    return ExitCode.OK
