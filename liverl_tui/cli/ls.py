"""``ls``: list the runs of this host and user, live and ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl.util.plural import quantity
from liverl.util.visible import visible
from liverl_tui.cli.options import UpOptions, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError
from liverl_tui.text.table import aligned
from liverl_tui.text.words import LISTED_STATE, duration, step_of

if TYPE_CHECKING:
    from liverl.offline.run_list import RunListed, Sort

SORTS = ("changed", "started", "reward", "steps", "time", "name", "state")
HEAD = ("run", "state", "started", "steps", "reward", "time", "model", "directory")


@click.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option(
    "--sort",
    "by",
    type=click.Choice(SORTS),
    default="changed",
    show_default=True,
    help="The largest first, names and states from A to Z, the unknown last.",
)
@run_options
def ls_command(run: Path | None, run_root: Path | None, as_json: bool, by: Sort) -> int:
    """List runs, newest first: reward is the mean of the first and of the last three steps, and what
    they prove. Where a run has validated,
    the checkpoint with the highest score is named.

    `unsupervised`: the backend has died, and services of the run still run; adopt them with: liverl-tui up --run DIR.
    `dead`: the backend has died, and no service is left; begin the next attempt with: liverl-tui up --resume DIR.
    """
    from liverl.offline.run_list import in_order, listed
    from liverl.rundir.index import candidates, runs_elsewhere

    if run_root is not None and not run_root.is_dir():
        raise CliError(f"--run-root: there is no directory {run_root}", ExitCode.USAGE)
    infos = candidates(run_root)
    if run_root is None:
        known = {i.run_dir for i in infos}
        infos += [i for i in runs_elsewhere() if i.run_dir not in known]
    if run is not None:
        infos = [i for i in infos if str(run) in (i.run, i.run_dir.name, str(i.run_dir))]
    rows = in_order(map(listed, infos), by)
    if as_json:
        import msgspec

        echo_json(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return ExitCode.OK
    if not rows:
        echo(f"no runs found; start one with: {UpOptions(run_root=run_root).command_line()}", err=True)
        return ExitCode.OK
    for line in table(rows):
        echo(line)
    return ExitCode.OK


def table(rows: Sequence[RunListed]) -> Iterator[str]:
    """A head and one line for each run; behind it its best checkpoint by validation, what is left of
    it, and why it failed."""
    head, *lines = aligned([HEAD, *map(_cells, rows)])
    yield head
    for line, one in zip(lines, rows, strict=True):
        yield "  ".join((line, *_notes(one)))


def _cells(one: RunListed) -> tuple[str, ...]:
    state, _ = LISTED_STATE.get(one.standing, (one.standing, ""))
    state += f" {one.host}" if one.state == "elsewhere" else ""
    started = (
        "-" if one.started_at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(one.started_at))
    )
    steps = "-" if one.steps is None else one.steps
    return (
        visible(one.run),
        state,
        started,
        step_of(steps, one.total_steps),
        _reward(one),
        ", ".join(filter(None, (duration(one.seconds), one.attempt_words))),
        visible(Path(one.model).name) or "-",
        visible(one.run_dir),
    )


def _reward(one: RunListed) -> str:
    return " ".join(filter(None, (one.reward_ends(), one.reward_words))) or "-"


def _notes(one: RunListed) -> Iterator[str]:
    if one.best_words:
        yield one.best_words
    if one.sandboxes_left:
        yield f"{quantity(one.sandboxes_left, 'sandbox', 'sandboxes')} left: clean --sandboxes"
    if one.cause:
        yield f"({visible(one.cause)})"
