"""Asks an environment's interpreter by a program that prints one JSON document as its last line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from liverl.environments import BuildError, EnvPlan, resolve
from liverl.plan.spec import EnvironmentSpec, Plan
from liverl.procs.asking import ask_program
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.paths import default_cache_dir

UNBUILT = (
    "there is no verl environment yet; `check --build` builds it and looks, and so does up before the start"
)
_SECONDS = 60.0  # a cold network disk is slow
T = TypeVar("T")


def environments_of(plan: Plan) -> Iterator[tuple[EnvironmentSpec, EnvPlan]]:
    """The environments of the plan, and where they are or will be. Left out are those whose description is wrong: the
    check ``environments`` reports it."""
    for spec in plan.environments:
        with suppress(BuildError):
            yield spec, resolve(spec, default_cache_dir())


def interpreter(plan: Plan, name: str = "verl") -> Path | None:
    """The interpreter of an environment of the plan; None if it has still to be built, or cannot be found."""
    place = next((place for spec, place in environments_of(plan) if spec.name == name), None)
    return place.python if place is not None and place.published else None


def ask_python(
    python: Path,
    program: str,
    arguments: Sequence[str],
    answer: type[T],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> T:
    """What ``program`` answers. ``env``, ``cwd``: of its process, by default ours.

    Raises:
        ValueError: it cannot be asked; the text says why.
    """
    try:
        # -B: importing a module of the user's writes nothing
        process = ask_program([str(python), "-B", "-c", program, *arguments], _SECONDS, env=env, cwd=cwd)
        process.check_returncode()
        return decode_json(process.stdout.splitlines()[-1], type=answer)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines()
        raise ValueError(lines[-1] if lines else str(error)) from error
    except (OSError, subprocess.SubprocessError, IndexError, *BAD_JSON) as error:
        raise ValueError(str(error)) from error


def module_path(path: Sequence[str]) -> str:
    """The PYTHONPATH by which the user's modules are found: ``path``, then that of the shell."""
    return os.pathsep.join(filter(None, (*path, os.environ.get("PYTHONPATH", ""))))
