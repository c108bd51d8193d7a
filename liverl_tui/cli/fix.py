"""``fix``: show what an alert's patch changes in the configuration, and apply it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.commands import resume_command
from liverl.rundir.index import find_run
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl_tui.cli.client import command_client
from liverl_tui.cli.options import UpOptions, run_options, trust_option
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.target import require_trusted
from liverl_tui.text.checks import sentence
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config import LoadedConfig
    from liverl.daemon.plan_change import PlanChange
    from liverl.daemon.user_file import FileChange
    from liverl.model import Snapshot, Symptom


@click.command("fix")
@click.argument("symptom", metavar="[ALERT]", required=False)
@click.option("--yes", is_flag=True, help="Apply the change without asking.")
@click.option(
    "--own-file", is_flag=True, help="With --yes: make the change in your own configuration file, too."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and ask nothing.")
@trust_option
@run_options
def fix_command(
    run: Path | None,
    run_root: Path | None,
    symptom: str | None,
    yes: bool,
    own_file: bool,
    as_json: bool,
    trust: tuple[str, ...],
) -> int:
    """Show what would correct an alert, and apply it, as the key f of the interface does.

    ALERT is the id of an alert, or its beginning; without it, the only alert that has a patch. The patch is shown as
    old and new values. It is applied if you agree: the services that read these keys are restarted. If that is not
    enough, or the run has ended, the next attempt begins with the new values. Your own configuration file is asked
    about separately. Without a terminal and without --yes, nothing is changed. Exits with 0 if it was applied, or
    nothing needs a fix; with 1 if nothing was changed.
    """
    found = find_run(run, run_root)
    require_trusted(found, trust)
    chosen = _chosen(found, _alerts(found), symptom)
    if chosen is None:
        _print(
            as_json, {"symptom": None, "applied": False}, f"no alert of run {found.name} has a fix to apply"
        )
        return ExitCode.OK
    if not chosen.patch:
        command = _command(found, chosen)
        told: dict[str, Any] = {"symptom": chosen.id, "fix": chosen.fix, "command": command, "applied": False}
        _print(as_json, told, "\n".join([chosen.title, f"  fix: {chosen.fix}", *_run_line(command)]))
        return ExitCode.FAILED
    return _apply(found, chosen, yes=yes, own_file=own_file, as_json=as_json)


def _alerts(run: RunDir) -> tuple[Symptom, ...]:
    snapshot = _snapshot(run)
    return snapshot.symptoms if snapshot is not None else ()


def _snapshot(run: RunDir) -> Snapshot | None:
    from liverl.control.blocking import snapshot
    from liverl.control.messages import BackendDead
    from liverl.offline.run import OfflineRun

    try:
        return snapshot(run.path)
    except BackendDead:
        return OfflineRun(run.path).poll()


def _chosen(run: RunDir, alerts: Sequence[Symptom], name: str | None) -> Symptom | None:
    """The alert that is meant; None if none has a fix.

    Raises:
        CliError: no alert, or more than one, is called so.
    """
    if name is None:
        fitting = [s for s in alerts if s.patch] or [s for s in alerts if s.action]
    else:
        fitting = [s for s in alerts if s.id == name] or [s for s in alerts if s.id.startswith(name)]
    if not fitting and name is None:
        return None
    if fitting and all((s.patch, s.action) == (fitting[0].patch, fitting[0].action) for s in fitting):
        return fitting[0]  # consequences of one cause may have the same fix
    listed = "\n".join(f"  {s.id}: {s.title}" for s in fitting or alerts) or "  none"
    which = (
        f"several alerts could be meant: {name}" if name else "several alerts have a fix; name one of them"
    )
    raise CliError(
        f"{which if fitting else f'no alert is called {name!r}; alerts of {run.name}'}:\n{listed}",
        ExitCode.USAGE,
    )


def _command(run: RunDir, symptom: Symptom) -> str | None:
    """The command line of an alert's action."""
    verb, _, what = (symptom.action or "").partition(" ")
    return shlex.join(["liverl-tui", verb, what, "--run", str(run.path)]) if verb else None


def _run_line(command: str | None) -> list[str]:
    return [f"  run: {command}"] if command else []


def _print(as_json: bool, told: dict[str, Any], text: str) -> None:
    if as_json:
        echo_json(json.dumps(told, indent=1))
    else:
        echo(text)


def _rows_warn(loaded: LoadedConfig, change: PlanChange, symptom: Symptom) -> list[str]:
    """What the check of the rows warns of with the values of the fix, in whole sentences.

    Raises:
        CliError: it fails with them.
    """
    from liverl.preflight.changed_rows import rows_checks

    found = rows_checks(change.plan, loaded.config, symptom.patch)
    failed = [sentence(check) for check in found if check.status == "fail"]
    if failed:
        raise CliError(
            f"nothing was changed: with these values a check fails: {'; '.join(failed)}", ExitCode.PREFLIGHT
        )
    return [f"Warning: {sentence(check)}." for check in found]


def _apply(run: RunDir, symptom: Symptom, *, yes: bool, own_file: bool, as_json: bool) -> int:
    from liverl.daemon.launch import LaunchError
    from liverl.daemon.next_attempt import changed_run
    from liverl_tui.data.config_change import GUESS, batch_words, diff_of_keys, how_applied

    sets = [f"{key}={value}" for key, value in symptom.patch.items()]
    try:
        found = changed_run(run, sets=sets)
    except LaunchError as error:
        raise CliError(str(error), error.exit_code) from error
    told: dict[str, Any] = {"symptom": symptom.id, "patch": symptom.patch, "guess": symptom.guess}
    live = isinstance(backend_alive(run.path), LiveBackend)
    if found is None:
        then = "" if live else f"; to resume it with them: {resume_command(run.path)}"
        _print(as_json, {**told, "changes": [], "applied": False}, f"the run has these values already{then}")
        return ExitCode.FAILED
    loaded, change = found
    warned = _rows_warn(loaded, change, symptom)
    restarts = how_applied(loaded, change) if live else None
    told["changes"] = [{"key": c.key, "before": c.before, "after": c.after} for c in change.changes]
    told["restarts"] = None if restarts is None else sorted(restarts)
    told["consequence"] = _consequence(
        run,
        live,
        restarts,
        # The script decides how far it trains.
        change.plan.total_steps if loaded.config.trainer.kind != "command" else None,
    )
    batch = batch_words(change.changes, change.plan.settings, _snapshot(run), live=live)
    told["consequence"] += f" {batch}" if batch else ""
    told["consequence"] = " ".join([*warned, told["consequence"]])
    if not as_json:
        echo(symptom.title)
        echo(f"in {run.config}:")
        for line in diff_of_keys(change.changes):
            echo(f"  {line.sign} {line.text}")
        if symptom.guess:
            echo(GUESS)
        echo(told["consequence"])
    if not yes and (as_json or not _agreed("Apply it?")):
        command = shlex.join(["liverl-tui", "fix", symptom.id, "--yes", "--run", str(run.path)])
        _print(
            as_json,
            {**told, "applied": False, "command": command},
            f"nothing was changed; to apply it: {command}",
        )
        return ExitCode.FAILED
    if own_file:
        _editable(run, symptom)
    text = _reconfigure(run, symptom.patch) if restarts is not None else _next_attempt(run, sets, live)
    if not as_json:
        echo(text)
    file = _own_file(run, symptom, ask=not yes and not as_json, wanted=own_file, quiet=as_json)
    if as_json:
        echo_json(json.dumps({**told, "applied": True, "text": text, "own_file": file}, indent=1))
    return ExitCode.OK


def _consequence(run: RunDir, live: bool, restarts: frozenset[str] | None, wanted: int | None) -> str:
    """What the change does to the run, in whole sentences. ``wanted``: the steps of the training after it."""
    from liverl.observe.checkpoints import end_words, newest_checkpoint
    from liverl_tui.data.config_change import end_of_run, restarted, restarts_words

    snapshot, checkpoint = _snapshot(run), newest_checkpoint(run.checkpoints)
    if restarts is not None:
        services = restarted(snapshot, restarts)
        return restarts_words(services, end_of_run(snapshot, services, checkpoint, wanted))
    words = "The run is stopped, and resumed with it." if live else "The next attempt begins with it."
    end = end_words(checkpoint, snapshot.step if snapshot is not None else None, wanted)
    return f"{words} {end}" if end else words


def _agreed(question: str) -> bool:
    """Whether the user types y; False without a terminal."""
    if not sys.stdin.isatty():
        return False
    echo(f"{question} [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _reconfigure(run: RunDir, values: dict[str, str]) -> str:
    from liverl.control.blocking import Connection

    with Connection(run.path) as connection:
        answer = connection.command("reconfigure", {"values": values}, client=command_client())
    return str(answer.get("text", "done"))


def _next_attempt(run: RunDir, sets: Sequence[str], live: bool) -> str:
    """Stop the run if it is live, and begin its next attempt with the values, in the background.

    Raises:
        CliError: a preflight check failed, or it could not be started; the message says so.
    """
    from liverl.offline.stop import stop_run
    from liverl_tui.cli.up import up

    if live:
        stop_run(run.path, now=False, wait=True, client=command_client(), on_note=_note)
    code = up(UpOptions(resume=str(run.path), sets=tuple(sets), detach=True, yes=True))
    if code != ExitCode.OK:
        raise CliError(f"the next attempt did not begin (exit code {code})", code)
    return "the next attempt has begun"


def _note(text: str | None) -> None:
    if text:
        echo(text, err=True)


def _editable(run: RunDir, symptom: Symptom) -> None:
    """Make sure that the user's own file can be changed, before anything is.

    Raises:
        CliError: it cannot.
    """
    from liverl.config.edit import EditRefused
    from liverl.daemon import user_file

    path = user_file.user_file(run)
    try:
        if path is not None:
            user_file.proposed(path, symptom.patch)
    except (EditRefused, OSError) as error:
        message = f"nothing was changed: {path} cannot be: {error}; mend it, or leave out --own-file"
        raise CliError(message) from error


def _own_file(run: RunDir, symptom: Symptom, *, ask: bool, wanted: bool, quiet: bool) -> str | None:
    """Make the change in the user's own file, if that is wanted or agreed to. Returns the path of a changed file."""
    from liverl.config.edit import EditRefused
    from liverl.daemon import user_file

    path = user_file.user_file(run)
    if path is None or not (ask or wanted):
        return None
    try:
        change = user_file.proposed(path, symptom.patch)
        if change is None:
            return None
        if not quiet:
            _show(change)
        if not wanted and not _agreed("Make the same change in your own file?"):
            return None
        user_file.write(run, change)
    except (EditRefused, OSError) as error:
        values = ", ".join(f"{key}={value}" for key, value in symptom.patch.items())
        echo(f"{path} was not changed: {error}; set {values} in it", err=True)
        return None
    if not quiet:
        echo(f"wrote {path}")
    return str(path)


def _show(change: FileChange) -> None:
    from liverl_tui.data.config_change import diff_of_file

    echo(f"in {change.path}:")
    for line in diff_of_file(change.lines):
        echo(f"  {line.sign} {line.text}")
