"""What a start needs before the process exists: filled placeholders, free ports, environment variables, files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from liverl.plan.inherit import inherited
from liverl.plan.spec import BATCH_END, PLACEHOLDER, PortSpec, ServiceSpec
from liverl.procs import procfs
from liverl.rundir.holders import held_by, run_of
from liverl.util.atomic_file import write_atomic
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_text
from liverl.util.stack_signal import ON_SIGNAL
from liverl.util.stack_signal import VARIABLE as STACKS_VARIABLE


class PrepareProblem(Exception):
    """Why a service cannot be started now. ``final``: a retry would fail again."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


@dataclass(frozen=True)
class Placeholders:
    """Values of the placeholders in one start. ``pythons``: interpreters by environment; ``ports``: numbers by port
    name, service name or ``service.port``; ``batch_end``: see ``liverl.plan.spec``."""

    run_dir: Path
    attempt_dir: Path
    generation: int
    pythons: Mapping[str, Path]
    ports: Mapping[str, int]
    batch_end: str = ""


def fill(text: str, values: Placeholders, written: Callable[[str], str] = str) -> str:
    """Replace the placeholders of :mod:`liverl.plan.spec`. ``written``: how a value is written in ``text``.

    Raises:
        PrepareProblem: the environment is not built yet, or the port does not exist (``final``).
    """

    def replace(match: re.Match[str]) -> str:
        kind, name = match[1], match[2] or ""
        if kind == "python":
            if name not in values.pythons:
                raise PrepareProblem(f"environment {name!r} is not ready", final=False)
            return written(str(values.pythons[name]))
        if kind == "port":
            if name not in values.ports:
                raise PrepareProblem(f"the service has no port {name!r}", final=True)
            return str(values.ports[name])
        return written(str(getattr(values, kind)))

    return PLACEHOLDER.sub(replace, text)


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def choose_port(port: PortSpec) -> int:
    """The number for a port that the service binds itself: a free one where ``port.number`` is 0. Blocks: the run that
    holds a port is looked for among all runs of the user.

    Raises:
        PrepareProblem: another process listens on it, which the message names, or no port is free.
    """
    if port.number == 0:
        try:
            return procfs.free_port(port.host)
        except OSError as error:
            raise PrepareProblem(f"no free port on {port.host}: {error}") from None
    holder = procfs.port_holder(port.number)
    if holder is not None:
        raise PrepareProblem(f"{port.words} is held by {held_by(holder, run_of(holder.pid))}")
    return port.number


def command_line(spec: ServiceSpec, values: Placeholders) -> list[str]:
    """The words of the command line, with the optional ones that the packages of its environment know. Blocks.

    Raises:
        PrepareProblem: a placeholder cannot be filled, or the environment cannot be asked.
    """
    words = list(spec.argv)
    for option in spec.optional_arguments:
        from liverl.environments.declared import CannotTell, declares

        python = values.pythons.get(spec.environment or "")
        if python is None:
            raise PrepareProblem(f"environment {spec.environment!r} is not ready")
        try:
            known = declares(python, option)
        except CannotTell as error:
            raise PrepareProblem(str(error)) from None
        words += option.words if known else ()
    return [fill(word, values) for word in words]


def environment(spec: ServiceSpec, values: Placeholders, tag: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """The environment variables of the process: those of the backend's that it inherits (``liverl.plan.inherit``), its
    own, its secrets, its GPUs (UUIDs), and the tag ``project/name/service/generation``, by which its processes are
    found.

    Raises:
        PrepareProblem: the file of a secret cannot be read, or a placeholder cannot be filled.
    """
    env = inherited(os.environ, spec.inherits, spec.pass_env)
    env = {name: value for name, value in env.items() if name not in spec.unset_env}
    ends = {
        name
        for name, value in spec.env.items()
        if value == BATCH_END and (name in env or not values.batch_end)
    }
    env |= {
        name: _before(name, fill(value, values), env) for name, value in spec.env.items() if name not in ends
    }
    env.update({name: _secret(name, path) for name, path in spec.secret_env.items()})
    if spec.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    env["PYTHONUNBUFFERED"] = "1"
    env["LIVERL_RUN"] = tag
    env["LIVERL_RUN_DIR"] = str(values.run_dir)
    env["LIVERL_GENERATION"] = str(values.generation)
    env[STACKS_VARIABLE] = str(values.attempt_dir / ON_SIGNAL)
    return env


def _before(name: str, ours: str, inherited_ones: Mapping[str, str]) -> str:
    """The value of a variable of ours. Of PYTHONPATH, that of the caller comes behind it if it is inherited."""
    theirs = inherited_ones.get(name, "") if name == "PYTHONPATH" else ""
    return os.pathsep.join(filter(None, (ours, theirs)))


def _secret(name: str, path: str) -> str:
    try:
        return read_text(path).strip()
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise PrepareProblem(f"cannot read {path} (the value of {name}): {why}") from None


def write_files(spec: ServiceSpec, values: Placeholders) -> None:
    """Write the files of the service's spec below the run directory, with placeholders filled.

    Raises:
        PrepareProblem: a file cannot be written, or a placeholder cannot be filled.
    """
    for file in spec.files:
        path = values.run_dir / fill(file.path, values)
        try:
            make_directory(path.parent)
            write_atomic(path, fill(file.text, values, _in_json).encode(), file.mode)
        except OSError as error:
            raise PrepareProblem(f"cannot write {path}: {os.strerror(error.errno or 0)}") from None
