"""Finds a Python interpreter of a wanted version on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.environments.errors import BuildError
from liverl.environments.index import uv_environment
from liverl.environments.uv import find_uv
from liverl.procs.asking import ask_program

_WANTED = re.compile(r"(>=)?(3)\.(\d+)")
_NEWER = 5  # minor versions above the wanted one that are looked for
_SECONDS = 20.0  # a cold network disk is slow
_ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


def find(wanted: str, env: Mapping[str, str] = os.environ) -> Path | None:
    """The interpreter of a version such as ``3.12``, or of the lowest that ``>=3.12`` allows: one on PATH, of pyenv, or
    of uv. None if there is none, and for everything else that uv understands.

    Blocks, for seconds at most. uv itself gives up at the first command on PATH that cannot be started, as those of
    pyenv for a version that is not active.
    """
    match = _WANTED.fullmatch(wanted.replace(" ", ""))
    if match is None:
        return None
    first = int(match[3])
    for minor in range(first, first + _NEWER + 1 if match[1] else first + 1):
        version = f"{match[2]}.{minor}"
        for python in _candidates(version, env):
            if _version(python) == version:
                return python
    return None


def _candidates(version: str, env: Mapping[str, str]) -> Iterator[Path]:
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        for name in (f"python{version}", "python3"):
            found = shutil.which(name, path=folder)
            if found:
                yield Path(found)
    root = env.get("PYENV_ROOT") or os.path.join(env.get("HOME", "/"), ".pyenv")
    yield from sorted(Path(root, "versions").glob(f"{version}.*/bin/python"), reverse=True)
    yield from _of_uv(version, env)


def _of_uv(version: str, env: Mapping[str, str]) -> Iterator[Path]:
    try:
        only = ("--no-project", "--managed-python", "--no-python-downloads")
        argv = [*find_uv(), "python", "find", *only, version]
        process = ask_program(argv, _SECONDS, env=uv_environment(env))
    except (BuildError, OSError, subprocess.SubprocessError):
        return  # without uv the build says what is missing
    if process.returncode == 0 and process.stdout.strip():
        yield Path(process.stdout.strip())


def _version(python: Path) -> str:
    """The version of an interpreter; "" if it cannot be started."""
    try:
        process = ask_program([str(python), "-I", "-S", "-c", _ASK], _SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()
