"""``ls``: list the runs of this host and user, live and ended."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import RunInfo, candidates, runs_elsewhere
from liverl.rundir.layout import RunDir
from liverl.util.decode import decode_loose_json
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular
from liverl.util.visible import visible
from liverl_tui.cli.options import run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError

WORDS = {
    "live": "live",
    "elsewhere": "live on",
    "orphaned": "unsupervised",
    "lost": "lost",
}


@click.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@run_options
def ls_command(run: Path | None, run_root: Path | None, as_json: bool) -> int:
    """List runs, newest first.

    `unsupervised`: the backend has died, and the services of the run may still be running; adopt them with:
    liverl-tui up --run DIR.
    """
    if run_root is not None and not run_root.is_dir():
        raise CliError(f"--run-root: there is no directory {run_root}", ExitCode.USAGE)
    infos = candidates(run_root)
    if run_root is None:
        listed = {i.run_dir for i in infos}
        infos += [i for i in runs_elsewhere() if i.run_dir not in listed]
    if run is not None:
        infos = [i for i in infos if str(run) in (i.run, i.run_dir.name, str(i.run_dir))]
    rows = [(info, _steps(info)) for info in infos]
    if as_json:
        echo_json(json.dumps([_plain(info, steps) for info, steps in rows], indent=2))
        return ExitCode.OK
    if not rows:
        echo("no runs found; start one with: liverl-tui up", err=True)
        return ExitCode.OK
    width = max(len(visible(i.run)) for i, _ in rows)
    for info, steps in rows:
        word = WORDS.get(info.state, info.state) + (f" {info.host}" if info.state == "elsewhere" else "")
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.started_at)) if info.started_at else "-"
        step = f"{steps} step{'' if steps == 1 else 's'}" if steps is not None else "-"
        name, folder = visible(info.run), visible(str(info.run_dir))
        left = _left(info)
        mark = f"  {quantity(left, 'sandbox', 'sandboxes')} left: clean --sandboxes" if left else ""
        echo(f"{name:<{width}}  {word:<12}  {started:<16}  {step:<10}  {folder}{mark}")
    return ExitCode.OK


def _steps(info: RunInfo) -> int | None:
    """Finished steps, from the result of an ended run, otherwise from the trainer's record; None if unknown."""
    run = RunDir(info.run_dir)
    if info.state in ("done", "failed", "stopped") and (result := run.read_result()) is not None:
        return result.steps
    try:
        step = decode_loose_json(read_regular(run.trainer)).get("step")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def _left(info: RunInfo) -> int | None:
    """How many things a run that is not live has left in Docker, by its files: those that its result names, else its
    trials whose sandboxes nobody has ended. None: it has begun none, or it is live. No daemon is asked."""
    if info.state in ("live", "elsewhere"):
        return None
    from liverl.sandboxes.sweep import trials

    run = RunDir(info.run_dir)
    try:
        _, found = trials(run.path)
    except OSError:
        return None  # a directory of another user
    if not found.begun:
        return None
    result = run.read_result()
    if result is None:
        return len(found.open)
    end = result.sandboxes
    return len(end.left) + len(end.kept) if end is not None else 0


def _plain(info: RunInfo, steps: int | None) -> dict[str, object]:
    """One entry of ``ls --json``."""
    return {
        "run": info.run,
        "run_dir": str(info.run_dir),
        "state": info.state,
        "host": info.host,
        "pid": info.pid,
        "started_at": info.started_at,
        "steps": steps,
        "sandboxes_left": _left(info),
    }
