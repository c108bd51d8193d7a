"""Finds the path of the environment that an EnvironmentSpec describes, built or not yet built."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from liverl.config.sections.run import SELF
from liverl.environments.errors import BuildError
from liverl.environments.lock import Lock, choose
from liverl.plan.spec import EnvironmentSpec

MARKER = "liverl-environment.json"  # written last: a folder that has it is complete
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(.*)", re.DOTALL)


class EnvPlan(msgspec.Struct, frozen=True):
    """``own``: the interpreter that runs us, as with ``venv_path: self``. ``existing``: a path of the user's.
    ``built``: in the cache, in ``folder``; ``key`` names its contents. ``python`` is the interpreter to start,
    which may not exist yet. ``lock``: what is installed, by version; ``why_no_lock``: why only the requirements
    say it."""

    name: str
    kind: Literal["own", "existing", "built"]
    python: Path
    folder: Path | None = None
    key: str = ""
    requirements: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    lock: Lock | None = None
    why_no_lock: str = ""

    @property
    def published(self) -> bool:
        """Whether it can be used as it is, without a network. Costs two stat calls."""
        if self.kind == "own":
            return True
        if self.folder is not None and not (self.folder / MARKER).is_file():
            return False
        return os.access(self.python, os.X_OK)


def normalise_requirement(text: str) -> str:
    """One spelling per requirement: the name as in PEP 503, no white space that means nothing.

    Raises BuildError for text that is no requirement, such as an option.
    """
    match = _REQUIREMENT.fullmatch(text.strip())
    if match is None:
        raise BuildError(f"invalid requirement: {text!r}")
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    rest, separator, marker = match[2].partition(";")
    if "@" in rest:  # a direct reference: its address is kept as it is
        return f"{name}{rest.rstrip()}{separator}{marker}"
    return name + "".join(rest.split()) + (f"; {' '.join(marker.split())}" if separator else "")


def resolve(spec: EnvironmentSpec, cache_dir: Path) -> EnvPlan:
    """Where ``spec`` lives. Reads its lock, and nothing else. Raises BuildError for an invalid description."""
    if not _NAME.fullmatch(spec.name):
        raise BuildError(f"invalid environment name: {spec.name!r}")
    if spec.venv_path is not None:
        if not spec.venv_path.strip():
            raise BuildError(f"environment {spec.name!r}: venv_path is empty")
        if spec.venv_path == SELF:
            return EnvPlan(name=spec.name, kind="own", python=Path(sys.executable))
        path = Path(spec.venv_path).expanduser().absolute()
        python = path if path.name.startswith("python") and not path.is_dir() else path / "bin" / "python"
        return EnvPlan(name=spec.name, kind="existing", python=python)
    if not spec.requirements and not spec.first.requirements and spec.python is None:
        return EnvPlan(name=spec.name, kind="own", python=Path(sys.executable))
    requirements, first = _normalised(spec.requirements), _normalised(spec.first.requirements)
    contents: list[Any] = [requirements, _interpreter(spec.python), sysconfig.get_platform(), _libc()]
    source: list[Any] = [first, spec.first.installer, spec.first.index_url] if first else []
    source += [spec.installer, spec.index_url, spec.find_links]
    if source != ["uv", "", ()]:  # another index may have another build of the same version
        contents.append(source)
    choice = choose(spec, requirements, cache_dir)
    if choice.lock is not None:
        contents.append({"lock": choice.lock.digest})
    key = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    folder = cache_dir.expanduser().absolute() / "envs" / f"{spec.name}-{key[:16]}"
    return EnvPlan(
        name=spec.name,
        kind="built",
        python=folder / "bin" / "python",
        folder=folder,
        key=key,
        requirements=requirements,
        first=first,
        lock=choice.lock,
        why_no_lock=choice.why,
    )


def _normalised(requirements: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({normalise_requirement(text) for text in requirements}))


def _interpreter(python: str | None) -> str:
    if python is None:
        # Patch versions share wheels, but an environment points at one interpreter's files.
        return f"{sys.implementation.cache_tag} {os.path.realpath(sys.executable)}"
    if os.sep in python:
        return os.path.realpath(os.path.expanduser(python))
    return python


def _libc() -> str:
    """A home folder may be shared by hosts whose wheels differ."""
    return "-".join(platform.libc_ver())
