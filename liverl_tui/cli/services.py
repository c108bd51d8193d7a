"""``restart``, ``start``, ``stop`` and ``scale``: each sends a command to the backend and prints its answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.commands import run_words
from liverl.rundir.index import RunLookupError, find_run
from liverl.rundir.layout import DeadBackend, RunDir, backend_alive
from liverl_tui.cli.client import command_client
from liverl_tui.cli.options import run_options, trust_option
from liverl_tui.cli.output import echo
from liverl_tui.cli.target import require_trusted
from liverl_tui.text.errors import CliError

ENDED = ("stopped", "failed", "gave_up")  # states of a service without a process
NAMES = 6  # at most this many services are named in one line

if TYPE_CHECKING:
    from liverl.model import Snapshot

_no_wait = click.option("--no-wait", is_flag=True, help="Return when the backend has accepted the command.")


def _send(run: RunDir, name: str, args: dict[str, Any], what: str, *, wait: bool) -> int:
    """Send a command, wait for its end unless ``wait`` is false, and print the answer. ``what``: the command for
    people.

    Raises:
        CliError: there is no such service.
        ControlError: the command failed, or the run has no live backend.
    """
    from liverl.control.blocking import Connection
    from liverl.control.messages import CommandError

    with Connection(run.path) as connection:
        try:
            answer = connection.command(name, args, client=command_client(), wait=wait)
        except CommandError as error:
            if error.code != "unknown_service":
                raise
            hint = _of_run(str(args.get("service")), what.split()[0], run)
            if not hint and error.did_you_mean:
                hint = f": did you mean {error.did_you_mean}?"
            names = ", ".join(s.name for s in connection.snapshot().services)
            raise CliError(
                f"no service {args.get('service')!r} in run {run.name}{hint} ({names})", ExitCode.USAGE
            ) from error
    echo(f"{what}: accepted" if answer.get("accepted") else answer.get("text") or f"{what}: done")
    return ExitCode.OK


def _of_run(name: str, command: str, run: RunDir) -> str:
    """How to name a run to a command whose word is a service's; "" if ``name`` is no run below the same run root."""
    root = run.path.parent.parent
    try:
        meant = find_run(Path(name), root)
    except RunLookupError:
        return ""
    way = f"liverl-tui {command} --run {run_words(meant.path)}{'' if command == 'stop' else ' SERVICE'}"
    return f": {meant.name} is a run: {way}"


@click.command("restart")
@click.argument("service")
@_no_wait
@trust_option
@run_options
def restart_command(
    run: Path | None, run_root: Path | None, service: str, no_wait: bool, trust: tuple[str, ...]
) -> int:
    """Restart a service and wait until it is ready. The proxy is replaced without refusing a request."""
    run_dir = find_run(run, run_root)
    require_trusted(run_dir, trust)
    return _send(run_dir, "restart", {"service": service}, f"restart {service}", wait=not no_wait)


@click.command("start")
@click.argument("service")
@_no_wait
@trust_option
@run_options
def start_command(
    run: Path | None, run_root: Path | None, service: str, no_wait: bool, trust: tuple[str, ...]
) -> int:
    """Start a service that was stopped or has failed."""
    run_dir = find_run(run, run_root)
    require_trusted(run_dir, trust)
    return _send(run_dir, "start_service", {"service": service}, f"start {service}", wait=not no_wait)


@click.command("stop")
@click.argument("services", metavar="[SERVICE]...", nargs=-1)
@click.option("--now", is_flag=True, help="Kill processes without a grace period.")
@_no_wait
@trust_option
@run_options
def stop_command(
    run: Path | None,
    run_root: Path | None,
    services: tuple[str, ...],
    now: bool,
    no_wait: bool,
    trust: tuple[str, ...],
) -> int:
    """Stop the run in dependency order, dependents first; or only the named services.

    If the backend has died, another one is started, which only stops the processes that still run.
    """
    run_dir = find_run(run, run_root)
    require_trusted(run_dir, trust)
    if services:
        if now:
            raise CliError(
                "--now stops the whole run; it cannot be combined with names of services", ExitCode.USAGE
            )
        for service in services:
            _send(run_dir, "stop_service", {"service": service}, f"stop {service}", wait=not no_wait)
        return ExitCode.OK
    return _stop_run(run_dir, now=now, wait=not no_wait)


def _stop_run(run: RunDir, *, now: bool, wait: bool) -> int:
    """Stop the whole run. 0, or ``LEFT_OVER`` if some processes could not be killed; the run's own exit code does not
    matter to this command."""
    from liverl.offline.stop import stop_run

    if isinstance(backend_alive(run.path), DeadBackend) and (previous := run.read_result()) is not None:
        echo(f"run {run.name} has ended: {previous.summary or previous.state}")
        return ExitCode.OK
    client = command_client()
    progress = StopProgress()
    result = stop_run(
        run.path,
        now=now,
        wait=wait,
        client=client,
        on_note=_note,
        on_snapshot=lambda s: _note(progress.news(s)),
    )
    if result is None:
        echo(f"stopping run {run.name}")
        return ExitCode.OK
    echo(f"run {run.name}: {result.summary or result.state}")
    return result.exit_code if result.exit_code == ExitCode.LEFT_OVER else ExitCode.OK


def _note(text: str | None) -> None:
    """Write a progress message to stderr; stdout is for the answer."""
    if text is not None:
        echo(text, err=True)


FULL = 1 << 20  # bytes: with less free, a run's result cannot be written
RESULT_S = 60.0  # seconds for which the backend tries to write it (``RESULT_PATIENCE`` of ``daemon.main``)


class StopProgress:
    """How far the stop of a run has come, in words."""

    def __init__(self) -> None:
        self._last = ""

    def news(self, snapshot: Snapshot) -> str | None:
        """One line such as ``3 of 5 services have stopped; stopping ray``; None if it is the same as the last one.
        Only services that this run started are counted."""
        services = [s for s in snapshot.services if s.kind != "environment" and s.owner == "ours"]
        if not services:
            return None
        ended = sum(s.state in ENDED for s in services)
        text = f"{ended} of {len(services)} services have stopped"
        if names := [s.name for s in services if s.state == "stopping"]:
            more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
            text += f"; stopping {', '.join(names[:NAMES])}{more}"
        elif ended == len(services) and snapshot.disk is not None and snapshot.disk.free < FULL:
            text += f"; the disk is full: waiting up to {RESULT_S:g} s for space to write result.json (df -h shows it)"
        previous, self._last = self._last, text
        return text if text != previous else None


@click.command("scale", context_settings={"ignore_unknown_options": True})
@click.argument("change", metavar="+N|-N|N")
@click.option("--force", is_flag=True, help="Also more replicas than the machine should carry.")
@_no_wait
@trust_option
@run_options
def scale_command(
    run: Path | None,
    run_root: Path | None,
    change: str,
    force: bool,
    no_wait: bool,
    trust: tuple[str, ...],
) -> int:
    """Add (+N) or remove (-N) replicas, or set their number (N).

    Replicas without a GPU are refused if there would be more than 4 for each CPU, or more than the memory holds;
    --force adds them all the same.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,4}", change):
        from liverl.config.errors import shown

        raise CliError(f"scale takes +1, -1 or a number of replicas, not {shown(change)}", ExitCode.USAGE)
    args: dict[str, Any] = {"delta": int(change)} if change[0] in "+-" else {"to": int(change)}
    if force:  # a backend of an earlier version does not know it
        args["force"] = True
    run_dir = find_run(run, run_root)
    require_trusted(run_dir, trust)
    return _send(run_dir, "scale", args, f"scale {change}", wait=not no_wait)
