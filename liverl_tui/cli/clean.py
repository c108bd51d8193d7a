"""``clean``: remove what runs that have ended left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.progress import Progress

if TYPE_CHECKING:
    from liverl.offline.clean_items import Found, Left, Row, What

_MOST_LEFT = 20  # lines of what stays; --json has all


@click.command("clean")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--logs", is_flag=True, help="Also remove the logs of the services, of all attempts.")
@click.option("--trials", is_flag=True, help="Also remove the folders of the trials, with their transcripts.")
@click.option("--all", "both", is_flag=True, help="Both: --trials and --logs.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; nothing is asked, so that only --yes removes."
)
@run_options
def clean_command(
    runs: tuple[str, ...],
    run: Path | None,
    run_root: Path | None,
    logs: bool,
    trials: bool,
    both: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Remove what runs that have ended left behind: sockets, Ray's folders in /tmp, files of their LiteLLM, unfinished
    run folders. It lists them with their sizes, and asks.

    Without RUN: of all runs that have ended on this host. Runs that are live, whose services may still be running, or
    that belong to another user or host are named and left. Checkpoints, environments, wandb, results, reports, metrics,
    configuration, plan, events and journal are never removed.
    """
    from liverl.offline.clean import Outcome, find, remove
    from liverl.rundir.index import candidates, default_run_root, find_run

    named = [Path(text) for text in runs] + ([run] if run is not None else [])
    known = candidates(run_root)
    targets = [find_run(one, run_root).path for one in named] or [info.run_dir for info in known]
    wanted: set[What] = {"leftovers"}
    if logs or both:
        wanted.add("logs")
    if trials or both:
        wanted.add("trials")
    root = None if named else run_root or default_run_root()
    with Progress() as progress:
        found = find(targets, known, wanted, root=root, say=progress.say)
    rows = found.rows()
    if not as_json:
        _show(rows, found.left)
    agreed = bool(rows) and (yes or (not as_json and _agreed(rows)))
    outcome = Outcome()
    if agreed:
        with Progress() as progress:
            outcome = remove(found, progress.say)
    if as_json:
        echo_json(_json(rows, found, agreed, outcome.files, outcome.bytes, outcome.failed))
    else:
        _tell(rows, agreed, outcome.files, outcome.bytes, outcome.failed)
    refused = bool(named) and bool(found.refused)
    return ExitCode.FAILED if outcome.failed or refused else ExitCode.OK


def _show(rows: Sequence[Row], left: Sequence[Left]) -> None:
    for line in _table(rows):
        echo(line)
    if left:
        echo("left as it is:")
        for one in left[:_MOST_LEFT]:
            echo(f"  {one.path}: {one.why}")
        if len(left) > _MOST_LEFT:
            echo(f"  and {len(left) - _MOST_LEFT} more; --json lists all")


def _table(rows: Sequence[Row]) -> Iterator[str]:
    from liverl.util.plural import quantity
    from liverl_tui.text.words import size

    if not rows:
        return
    width = max(len("RUN"), *(len(row.run or "-") for row in rows))
    yield f"{'RUN':<{width}}  {'WHAT':<9}  {'FILES':>7}  {'SIZE':>5}  PATH"
    for row in rows:
        yield f"{row.run or '-':<{width}}  {row.what:<9}  {row.files:>7}  {size(row.bytes):>5}  {row.path}"
    files, count = sum(row.files for row in rows), sum(row.bytes for row in rows)
    yield f"in all {quantity(files, 'file')}, {size(count)}"


def _agreed(rows: Sequence[Row]) -> bool:
    """Whether the user types y; False without a terminal."""
    if not sys.stdin.isatty():
        return False
    echo("Remove this? [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell(rows: Sequence[Row], agreed: bool, files: int, count: int, failed: Sequence[Left]) -> None:
    """Say what was done."""
    from liverl.util.plural import quantity

    if not rows:
        echo("nothing to remove")
    elif not agreed:
        without = "" if sys.stdin.isatty() else ": there is no terminal to ask; to remove it, add --yes"
        echo(f"nothing was removed{without}")
    else:
        echo(f"freed {quantity(count, 'byte')} in {quantity(files, 'file')}")
    for one in failed:
        echo(f"could not remove {one.path}: {one.why}", err=True)


def _json(
    rows: Sequence[Row], found: Found, removed: bool, files: int, count: int, failed: Sequence[Left]
) -> str:
    import msgspec

    from liverl.offline.clean_items import CleanReport

    report = CleanReport(removed, tuple(rows), tuple(found.left), tuple(failed), files, count)
    return msgspec.json.format(msgspec.json.encode(report)).decode()
