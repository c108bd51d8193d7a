"""Whether a launch script that a shell runs is one: its syntax, without a command of it being executed."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.launch_script import SHELLS, script_of
from liverl.preflight.subject import main_folder, main_service, variables_of
from liverl.procs.asking import ask_program
from liverl.util.regular_file import open_binary

NAME = "script syntax"
_SECONDS = 8.0
_RUN_FIRST = ("BASH_ENV", "ENV")  # files that a shell would execute before it reads the script
_LINE = 200  # bytes of a first line


def checks(plan: Plan, env: Mapping[str, str]) -> Check | None:
    """``SHELL -n FILE``; None for what no shell runs, or for a file that is not there, which another check tells."""
    script = main_service(plan)
    cwd = main_folder(plan)
    found = _shell_and_file(script.argv, cwd)
    if found is None:
        return None
    shell, file = found
    return of_file(shell, file, cwd, variables_of(script, env))


def of_file(shell: str, file: Path, cwd: Path, env: Mapping[str, str], title: str = NAME) -> Check:
    """What a shell says of a script. ``env``: the script's variables."""
    variables = {name: text for name, text in env.items() if name not in _RUN_FIRST}
    try:
        done = ask_program([shell, "-n", str(file)], _SECONDS, env=variables, cwd=cwd)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(title, "skipped", f"{shell} cannot be asked: {error}")
    if done.returncode == 0:
        return Check(title, "ok", f"{shlex.join([shell, '-n', str(file)])} finds nothing")
    lines = done.stderr.strip().splitlines() or [f"{shell} -n ends with {done.returncode}"]
    return Check(
        title, "fail", lines[0], fix=f"correct {file}; to see all: {shlex.join([shell, '-n', str(file)])}"
    )


def _shell_and_file(argv: tuple[str, ...], cwd: Path) -> tuple[str, Path] | None:
    name = script_of(argv) if os.path.basename(argv[0]) in SHELLS else None
    if name is not None:
        return (argv[0], cwd / name) if (cwd / name).is_file() else None
    if "/" not in argv[0] or not (cwd / argv[0]).is_file():
        return None
    with open_binary(cwd / argv[0]) as file:
        first = file.readline(_LINE)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    shell = next((word for word in words if os.path.basename(word) in SHELLS), None)
    return (shell, cwd / argv[0]) if shell is not None else None
