"""``restart``, ``start``, ``stop`` and ``scale``: one command each to the backend."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.rundir.layout import DeadBackend, RunDir, backend_alive
from liverl_tui.cli.options import run_options
from liverl_tui.text.errors import CliError

ENDED = ("stopped", "failed", "gave_up")  # states of a service of which nothing runs
NAMES = 6  # services that one line names

if TYPE_CHECKING:
    from liverl.model import Snapshot

_no_wait = click.option("--no-wait", is_flag=True, help="Return once it is accepted.")


def _send(run: RunDir, name: str, args: dict[str, Any], what: str, *, wait: bool) -> int:
    """Send, wait, and say what was done.

    Raises:
        CliError: there is no such service.
        ControlError: the command failed, or there is no backend.
    """
    from liverl.control.blocking import Connection
    from liverl.control.messages import CommandError

    with Connection(run.path) as connection:
        try:
            answer = connection.command(name, args, client=f"cli pid {os.getpid()}", wait=wait)
        except CommandError as error:
            if error.code != "unknown_service":
                raise
            hint = f": did you mean {error.did_you_mean}?" if error.did_you_mean else ""
            known = ", ".join(s.name for s in connection.snapshot().services)
            raise CliError(
                f"no service {args.get('service')!r} in run {run.name}{hint} ({known})", ExitCode.USAGE
            ) from error
    click.echo(f"{what}: accepted" if answer.get("accepted") else answer.get("text") or f"{what}: done")
    return ExitCode.OK


@click.command("restart")
@click.argument("service")
@_no_wait
@run_options
def restart_command(run: Path | None, run_root: Path | None, service: str, no_wait: bool) -> int:
    """Restart a service and wait until it is ready. The proxy is replaced without refusing a request."""
    found = find_run(run, run_root)
    return _send(found, "restart", {"service": service}, f"restart {service}", wait=not no_wait)


@click.command("start")
@click.argument("service")
@_no_wait
@run_options
def start_command(run: Path | None, run_root: Path | None, service: str, no_wait: bool) -> int:
    """Start a service that was stopped or has failed."""
    found = find_run(run, run_root)
    return _send(found, "start_service", {"service": service}, f"start {service}", wait=not no_wait)


@click.command("stop")
@click.argument("services", metavar="[SERVICE]...", nargs=-1)
@click.option("--now", is_flag=True, help="Without grace: what does not end is killed.")
@_no_wait
@run_options
def stop_command(
    run: Path | None, run_root: Path | None, services: tuple[str, ...], now: bool, no_wait: bool
) -> int:
    """Stop the run in order, dependents first; or only the named services.

    Where the backend has died, one is started that only stops what still runs.
    """
    found = find_run(run, run_root)
    if services:
        if now:
            raise CliError("--now stops the whole run: leave the services out", ExitCode.USAGE)
        for service in services:
            _send(found, "stop_service", {"service": service}, f"stop {service}", wait=not no_wait)
        return ExitCode.OK
    return _stop_run(found, now=now, wait=not no_wait)


def _stop_run(run: RunDir, *, now: bool, wait: bool) -> int:
    from liverl.offline.stop import stop_run

    if isinstance(backend_alive(run.path), DeadBackend) and (ended := run.read_result()) is not None:
        click.echo(f"run {run.name} has ended: {ended.summary or ended.state}")
        return ExitCode.OK  # what was asked for is so
    who = f"cli pid {os.getpid()}"
    progress = StopProgress()
    result = stop_run(
        run.path, now=now, wait=wait, client=who, on_note=_note, on_snapshot=lambda s: _note(progress.news(s))
    )
    if result is None:
        click.echo(f"stopping run {run.name}")
        return ExitCode.OK
    click.echo(f"run {run.name}: {result.summary or result.state}")
    # stopping is what was asked for
    return result.exit_code if result.exit_code == ExitCode.LEFT_OVER else ExitCode.OK


def _note(text: str | None) -> None:
    """A line beside the answer, which is on stdout."""
    if text is not None:
        click.echo(text, err=True)


class StopProgress:
    """What a run that is stopping has left, in words."""

    def __init__(self) -> None:
        self._told = ""

    def news(self, snapshot: Snapshot) -> str | None:
        """One line; None where nothing has changed since the last one."""
        services = [s for s in snapshot.services if s.kind != "environment" and s.owner == "ours"]
        if not services:
            return None
        ended = sum(s.state in ENDED for s in services)
        text = f"{ended} of {len(services)} services have ended"
        if names := [s.name for s in services if s.state == "stopping"]:
            more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
            text += f"; stopping {', '.join(names[:NAMES])}{more}"
        told, self._told = self._told, text
        return text if text != told else None


@click.command("scale", context_settings={"ignore_unknown_options": True})
@click.argument("change", metavar="+N|-N|N")
@_no_wait
@run_options
def scale_command(run: Path | None, run_root: Path | None, change: str, no_wait: bool) -> int:
    """Add (+1) or remove (-1) replicas, or say how many there shall be."""
    if not re.fullmatch(r"[+-]?\d{1,4}", change):
        raise CliError(f"scale takes +1, -1 or a number of replicas, not {change!r}", ExitCode.USAGE)
    args = {"delta": int(change)} if change[0] in "+-" else {"to": int(change)}
    return _send(find_run(run, run_root), "scale", args, f"scale {change}", wait=not no_wait)
