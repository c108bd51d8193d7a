"""The commands that people type for a run, as short as they can be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from liverl.model import Result
from liverl.rundir.state_home import default_run_root


def resume_command(run_dir: Path) -> str:
    """``liverl-tui up --resume project/name``, with ``--run-root`` for a run that is not under the default root."""
    root = run_dir.parent.parent
    where = "" if root == default_run_root() else f" --run-root {shlex.quote(str(root))}"
    return f"liverl-tui up --resume {shlex.quote(_name(run_dir))}{where}"


BLANK = "YOUR-VALUE"  # stands for a secret in a command; words beside it say what to put there


def set_options(values: Mapping[str, str]) -> str:
    """``--set key=value`` for each of ``values``, quoted for a shell."""
    return " ".join(f"--set {shlex.quote(f'{key}={value}')}" for key, value in values.items())


def any_port(key: str) -> str:
    """What to type so that the port of configuration key ``key`` is any free one."""
    return f"{set_options({key: '0'})} takes any free port"


def end_run(run: str) -> str:
    """How to free what a run of the user's own holds. ``run``: as a command takes it."""
    return f"end that run, if it is no longer needed: liverl-tui stop --run {shlex.quote(run)}"


def port_fix(key: str, port: int | str, run: str = "") -> str:
    """What to type where another process holds ``port``, whose number is that of configuration key ``key`` ("": it has
    none). ``run``: the user's own run that the process belongs to, "": of none; its processes are not to be ended one
    by one, since it starts them again. The same words in preflight, alerts and results; 0 is any free port."""
    end = end_run(run) if run else f"end the process that holds port {port} if it is yours"
    return f"{any_port(key)}; or {end}" if key else f"{end[0].upper()}{end[1:]}"


def next_command(result: Result) -> str | None:
    """The command that goes on with a run that has ended: with the values that mend the cause, unless they are a guess,
    since without them it would fail in the same way. None if there is nothing to go on with."""
    cause = result.cause
    if result.resume is None or cause is None or not cause.patch or cause.guess:
        return result.resume
    return f"{result.resume} {set_options(cause.patch)}"


def attach_command(run_dir: Path) -> str:
    """``liverl-tui attach RUN``."""
    return f"liverl-tui attach {run_words(run_dir)}"


def status_command(run_dir: Path) -> str:
    """``liverl-tui status --run RUN``, which says how a run is now."""
    return f"liverl-tui status --run {run_words(run_dir)}"


def ended_commands(run_dir: Path) -> str:
    """What shows more of a run that has ended: its trials, and its report. One line."""
    run = run_words(run_dir)
    return f"its trials: liverl-tui trials ls {run}   its report: liverl-tui report {run}"


def run_option(run_dir: str) -> str:
    """`` --run RUN`` behind a command; "" where the run has no directory, as one that is watched."""
    return f" --run {run_words(Path(run_dir))}" if run_dir else ""


def run_words(run_dir: Path) -> str:
    """What a command takes as RUN: ``project/name``, or the directory of a run that is not under the default root."""
    return shlex.quote(_name(run_dir) if run_dir.parent.parent == default_run_root() else str(run_dir))


def _name(run_dir: Path) -> str:
    return f"{run_dir.parent.name}/{run_dir.name}"
