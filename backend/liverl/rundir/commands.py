"""The commands that people type for a run, as short as they can be."""

from __future__ import annotations

import shlex
from pathlib import Path

from liverl.rundir.index import default_run_root


def resume_command(run_dir: Path) -> str:
    """``liverl-tui up --resume project/name``, with ``--run-root`` for a run that is not under the default root."""
    root = run_dir.parent.parent
    where = "" if root == default_run_root() else f" --run-root {shlex.quote(str(root))}"
    return f"liverl-tui up --resume {shlex.quote(_name(run_dir))}{where}"


def attach_command(run_dir: Path) -> str:
    """``liverl-tui attach project/name``, which finds a live run of this host under any root."""
    return f"liverl-tui attach {shlex.quote(_name(run_dir))}"


def _name(run_dir: Path) -> str:
    return f"{run_dir.parent.name}/{run_dir.name}"
