"""``watch``: the interface, live and read-only, on a run that somebody else started by hand."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import as_path
from liverl_tui.cli.output import echo, echo_json, echo_styled
from liverl_tui.cli.private_folder import PrivateFolder
from liverl_tui.cli.progress import Progress

if TYPE_CHECKING:
    from liverl.model import Snapshot
    from liverl.watch.target import Target
    from liverl.watch.watcher import Watcher

PREFIX = "liverl-watch-"
INTERVAL_S = 2.0  # seconds between two snapshots that are printed
JUDGED_S = 120.0  # seconds that --once waits until the logs are read


@click.command("watch")
@click.argument("folder", metavar="[DIR]", required=False, callback=as_path)
@click.option(
    "--ray", metavar="HOST:PORT", help="Ray's dashboard: finds verl's replicas (usually port 8265)."
)
@click.option(
    "--litellm-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="The proxy on this host; finds its replicas.",
)
@click.option("--logs", metavar="DIR", callback=as_path, help="A further folder of logs.")
@click.option("--trials", metavar="DIR", callback=as_path, help="The folder of trials.")
@click.option("--once", is_flag=True, help="Print the state once, and exit.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: one line per update, or with --once one document."
)
@click.option("--no-ui", is_flag=True, help="Print sentences on what changes instead of the interface.")
@click.option("--plain", is_flag=True, help="The same as --no-ui.")
def watch_command(
    folder: Path | None,
    ray: str | None,
    litellm_port: int | None,
    logs: Path | None,
    trials: Path | None,
    once: bool,
    as_json: bool,
    no_ui: bool,
    plain: bool,
) -> int:
    """Show a run that was started by other means, read-only: vllm serve, LiteLLM, verl, LiveRL's scripts, Slurm.

    DIR: a folder with its logs, metrics or trials; if it is empty, watch waits for its first file (not with --once).
    Without DIR and options, shows what this user runs on this host. The run is not changed: watch sends no signals,
    writes no files in it, and makes GET requests only. Ctrl-C ends only this command.

    At its end it says on stderr what it saw, and how to go on. Its exit code says how watch ended, not how the run
    stands: 0 even if the run has failed, 4 if there is nothing to watch, 2 for a wrong option, 128+n after a signal
    (130: Ctrl-C). How the run stands is in "state" of --once --json, or in the exit code of `doctor`.
    """
    from liverl.watch.target import Target
    from liverl_tui.cli.mode import mode

    target = Target(folder, ray, litellm_port, logs, trials)
    interface = not (once or as_json) and mode(no_ui=no_ui, plain=plain) == "interface"
    if interface:
        from liverl_tui.app.start import run_watch

        with _watching(target, wait=True) as watcher:
            return run_watch(watcher, partial(_goodbye, watcher))
    with _watching(target, wait=not once) as watcher:
        if once:
            with Progress() as progress:
                progress.say("reading the logs")
                judged = watcher.settle(JUDGED_S)
                whole = watcher.read_trials(JUDGED_S, lambda n: progress.say(f"reading trials: {n} so far"))
            if not judged:
                words = f"not all logs were read within {JUDGED_S:.0f} s: what they say is missing from the alerts"
                echo(words, err=True)
            if not whole:
                echo(f"not all trials were read within {JUDGED_S:.0f} s", err=True)
            snapshot = watcher.poll()
            _print(watcher.with_real_paths(snapshot), as_json)
            if not as_json:
                echo(_goodbye(watcher, snapshot), err=True)
        else:
            _follow(watcher, as_json)
    return ExitCode.OK


def _goodbye(watcher: Watcher, snapshot: Snapshot | None) -> str:
    """What is said at the end."""
    from liverl_tui.text.watched import watched

    target = watcher.target
    words: list[str | Path] = ["liverl-tui", "watch"]
    words += [target.folder] if target.folder is not None else []
    for option, value in (
        ("--ray", target.ray),
        ("--litellm-port", target.litellm_port),
        ("--logs", target.logs),
        ("--trials", target.trials),
    ):
        words += [option, str(value)] if value is not None else []
    seen = None if snapshot is None else watcher.with_real_paths(snapshot)
    return watched(seen, target.folders, shlex.join(map(str, words)))


@contextmanager
def _watching(target: Target, wait: bool) -> Iterator[Watcher]:
    """A watcher that has begun, with its private folder. ``wait``: for a folder that has nothing yet."""
    from liverl.watch.target import checked
    from liverl.watch.watcher import Watcher

    target = checked(target)
    with PrivateFolder(PREFIX) as folder:
        watcher = Watcher(target, folder, wait=wait)
        watcher.start()
        try:
            yield watcher
        finally:
            watcher.close()


def _print(snapshot: Snapshot, as_json: bool) -> None:
    from liverl_tui.cli.plain import wants_colour
    from liverl_tui.cli.status_table import render

    if as_json:
        echo_json(_json(snapshot, 2))
        return
    wide = 80 if sys.stdout.isatty() else 10_000
    width = max(60, shutil.get_terminal_size((wide, 24)).columns)
    echo_styled(render(snapshot, width=width, colour=wants_colour(sys.stdout)).splitlines())


def _json(snapshot: Snapshot, indent: int | None) -> str:
    from liverl.model import SCHEMA
    from liverl.snapshot_json import plain_snapshot

    fields = {**plain_snapshot(snapshot), "schema": SCHEMA}
    live = snapshot.state in ("starting", "running")  # the watch itself always is
    return json.dumps({"schema": SCHEMA, "live": live, **fields}, indent=indent)


def _follow(watcher: Watcher, as_json: bool) -> None:
    """Print until Ctrl-C, or until nobody reads."""
    from liverl_tui.text.facts import plain_facts

    last: Snapshot | None = None
    try:
        while True:
            snapshot = watcher.with_real_paths(watcher.poll())
            if as_json:
                echo_json(_json(snapshot, None))
            elif last is None or plain_facts(snapshot, last):
                at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.at))
                echo("\n".join([f"{snapshot.run} at {at}", *plain_facts(snapshot, last), ""]))
            last = snapshot
            sys.stdout.flush()
            time.sleep(INTERVAL_S)
    except KeyboardInterrupt:
        echo(_goodbye(watcher, last), err=True)
        raise
