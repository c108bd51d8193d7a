"""``clean``: remove what runs that have ended left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.progress import Progress
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.offline.clean import Outcome
    from liverl.offline.clean_gpu import GpuHolder
    from liverl.offline.clean_items import Found, Row, What

PID_MOST = 1 << 22  # PID_MAX_LIMIT of Linux
_MOST_LEFT = 20  # lines of what stays; --json has all


@click.command("clean")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--logs", is_flag=True, help="Also remove the logs of the services, of all attempts.")
@click.option("--trials", is_flag=True, help="Also remove the folders of the trials, with their transcripts.")
@click.option("--all", "both", is_flag=True, help="Both: --trials and --logs.")
@click.option(
    "--sandboxes",
    is_flag=True,
    help="Also remove what the trials left: containers, networks, volumes and images in Docker with the run's labels, "
    "and its pods in Kubernetes.",
)
@click.option(
    "--kept",
    is_flag=True,
    help="With --sandboxes: also those that harbor_agent.environment_delete: false has kept.",
)
@click.option(
    "--pid",
    "pids",
    metavar="PID",
    type=click.IntRange(1, PID_MOST),
    multiple=True,
    help="End this process, which holds GPU memory and belongs to no run; repeatable. Only with "
    "RL_CLEAN_FORCE_GPU_KILL=1 in the environment.",
)
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
    sandboxes: bool,
    kept: bool,
    pids: tuple[int, ...],
    yes: bool,
    as_json: bool,
) -> int:
    """Remove what runs that have ended left behind: sockets, Ray's folders in /tmp, files of their LiteLLM, unfinished
    run folders. It lists them with their sizes, and asks.

    Without RUN: all runs that have ended on this host. A run is only named, and left as it is, if it is live, if its
    services may still be running, or if it belongs to another user or host. Checkpoints, environments, wandb, results,
    reports, metrics, configuration, plan, events and journal are never removed. With --pid and nothing else, only
    processes are ended.
    """
    from liverl.offline.clean import Outcome, find, remove
    from liverl.rundir.index import candidates, find_run
    from liverl.rundir.state_home import default_run_root

    if kept and not sandboxes:
        raise CliError("--kept needs --sandboxes; nothing was done", ExitCode.USAGE)
    named = [Path(text) for text in runs] + ([run] if run is not None else [])
    holders = _holders(pids)
    known = candidates(run_root)
    wanted: set[What] = {"leftovers"}
    if logs or both:
        wanted.add("logs")
    if trials or both:
        wanted.add("trials")
    only_processes = bool(pids) and not named and len(wanted) == 1 and not sandboxes
    targets = [find_run(one, run_root).path for one in named]
    if not named and not only_processes:
        targets = [info.run_dir for info in known]
    root = None if named or only_processes else run_root or default_run_root()
    if not targets and root is not None:
        echo(f"no run was found under {root}", err=True)
    with Progress() as progress:
        found = find(targets, known, wanted, root=root, sandboxes=sandboxes, kept=kept, say=progress.say)
    rows = found.rows()
    if not as_json:
        _show(rows, found, holders)
    anything = bool(rows or holders or found.sandboxes)
    agreed = anything and (yes or (not as_json and _agreed(holders)))
    outcome = Outcome()
    if agreed:
        with Progress() as progress:
            outcome = remove(found, progress.say)
            holders = _ended(holders, progress)
    if as_json:
        echo_json(_json(rows, found, agreed, outcome, holders))
    else:
        _tell(anything, agreed, outcome, holders)
    refused = bool(named) and bool(found.refused)
    lives = agreed and not all(one.ended for one in holders)
    wrong = outcome.failed or refused or lives or found.unasked
    return ExitCode.FAILED if wrong else ExitCode.OK


def _holders(pids: tuple[int, ...]) -> tuple[GpuHolder, ...]:
    """The processes that ``--pid`` names.

    Raises:
        CliError: one of them may not be ended; nothing was done.
    """
    if not pids:
        return ()
    from liverl.offline.clean_gpu import VARIABLE, NotEnded, holder

    if os.environ.get(VARIABLE) != "1":
        text = f"--pid ends a process that belongs to no run only with {VARIABLE}=1 in the environment"
        raise CliError(f"{text}; nothing was done", ExitCode.USAGE)
    try:
        return tuple(holder(pid) for pid in dict.fromkeys(pids))
    except NotEnded as error:
        raise CliError(f"{error}; nothing was done") from error


def _ended(holders: Sequence[GpuHolder], progress: Progress) -> tuple[GpuHolder, ...]:
    from liverl.offline.clean_gpu import end

    ended = []
    for one in holders:
        progress.say(f"ending pid {one.pid}")
        ended.append(end(one))
    return tuple(ended)


def _show(rows: Sequence[Row], found: Found, holders: Sequence[GpuHolder]) -> None:
    left = found.left
    for line in _table(rows):
        echo(line)
    for one in found.sandbox_rows():
        place = "Kubernetes" if one.kind == "pod" else "Docker"
        echo(f"in {place}: {one.kind} {one.name} of {one.run}, trial {one.trial or 'unknown'}")
    for holder in holders:
        echo(
            f"to be ended: pid {holder.pid} of {holder.user}, {_memory(holder.memory, holder.note)}: {holder.command}"
        )
    if left:
        echo("left as it is:")
        for stays in left[:_MOST_LEFT]:
            echo(f"  {stays.path}: {stays.why}")
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


def _memory(count: int | None, note: str) -> str:
    from liverl_tui.text.words import size

    return note if count is None else f"{size(count)} of GPU memory"


def _agreed(holders: Sequence[GpuHolder]) -> bool:
    """Whether the user types y; False without a terminal."""
    if not sys.stdin.isatty():
        return False
    what = "Remove this, and end these processes?" if holders else "Remove this?"
    echo(f"{what} [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell(anything: bool, agreed: bool, outcome: Outcome, holders: Sequence[GpuHolder]) -> None:
    """Say what was done."""
    from liverl.util.plural import quantity

    if not anything:
        echo("nothing to remove")
    elif not agreed:
        without = "" if sys.stdin.isatty() else ": there is no terminal to ask; to remove it, add --yes"
        echo(f"nothing was removed{without}")
    else:
        if outcome.sandboxes:
            echo(f"removed {quantity(outcome.sandboxes, 'thing')} that trials had left")
        echo(f"freed {quantity(outcome.bytes, 'byte')} in {quantity(outcome.files, 'file')}")
        for one in holders:
            if one.ended:
                after = one.note or "NVML lists no GPU memory of it any more"
                echo(f"pid {one.pid} has ended ({one.sent or 'before any signal'}); {after}")
            else:
                echo(f"pid {one.pid} was not ended: {one.note}", err=True)
    for left in outcome.failed:
        echo(f"could not remove {left.path}: {left.why}", err=True)


def _json(
    rows: Sequence[Row], found: Found, removed: bool, outcome: Outcome, holders: Sequence[GpuHolder]
) -> str:
    import msgspec

    from liverl.offline.clean_items import CleanReport

    failed = tuple(outcome.failed)
    report = CleanReport(
        removed,
        tuple(rows),
        tuple(found.left),
        failed,
        outcome.files,
        outcome.bytes,
        tuple(holders),
        sandboxes=tuple(found.sandbox_rows()),
        sandboxes_removed=outcome.sandboxes,
    )
    return msgspec.json.format(msgspec.json.encode(report)).decode()
