"""What must stand before a process can be started: filled placeholders, free ports, files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from liverl.plan.spec import PortSpec, ServiceSpec
from liverl.procs import procfs
from liverl.util.atomic_file import write_atomic

_PLACEHOLDER = re.compile(r"\{(python|port|run_dir|attempt_dir|generation)(?::([\w.-]+))?\}")


class PrepareProblem(Exception):
    """Why a service cannot be started now; ``final`` = trying again cannot help."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


@dataclass(frozen=True)
class Placeholders:
    """What placeholders stand for in one start."""

    run_dir: Path
    attempt_dir: Path
    generation: int
    pythons: Mapping[str, Path]
    ports: Mapping[str, int]


def fill(text: str, values: Placeholders) -> str:
    """Replace the placeholders of :mod:`liverl.plan.spec`.

    Raises:
        PrepareProblem: a placeholder names something that does not exist.
    """

    def replace(match: re.Match[str]) -> str:
        kind, name = match[1], match[2] or ""
        if kind == "python":
            if name not in values.pythons:
                raise PrepareProblem(f"environment {name!r} is not ready", final=False)
            return str(values.pythons[name])
        if kind == "port":
            if name not in values.ports:
                raise PrepareProblem(f"the service has no port {name!r}", final=True)
            return str(values.ports[name])
        return str(getattr(values, kind))

    return _PLACEHOLDER.sub(replace, text)


def choose_port(port: PortSpec) -> int:
    """The number for a port that the service itself binds.

    Raises:
        PrepareProblem: somebody else listens on it; the holder is named.
    """
    if port.number == 0:
        try:
            return procfs.free_port(port.host)
        except OSError as error:
            raise PrepareProblem(f"no free port on {port.host}: {error}") from None
    holder = procfs.port_holder(port.number)
    if holder is not None:
        raise PrepareProblem(f"port {port.number} is held by {holder.words()}")
    return port.number


def environment(spec: ServiceSpec, values: Placeholders, tag: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """The whole environment of the process: the backend's, the service's own, its secrets, and the run's tag.

    Raises:
        PrepareProblem: the file of a secret cannot be read.
    """
    env = {k: v for k, v in os.environ.items() if k not in spec.unset_env and not k.startswith("LIVERL_")}
    env.update({k: fill(v, values) for k, v in spec.env.items()})
    env.update({name: _secret(name, path) for name, path in spec.secret_env.items()})
    if spec.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    env["PYTHONUNBUFFERED"] = "1"
    env["LIVERL_RUN"] = tag
    env["LIVERL_RUN_DIR"] = str(values.run_dir)
    env["LIVERL_GENERATION"] = str(values.generation)
    return env


def _secret(name: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise PrepareProblem(f"cannot read {path} (the value of {name}): {why}") from None


def write_files(spec: ServiceSpec, values: Placeholders) -> None:
    """Write the service's files.

    Raises:
        PrepareProblem: the disk is full or read-only.
    """
    for file in spec.files:
        path = values.run_dir / fill(file.path, values)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, fill(file.text, values).encode(), file.mode)
        except OSError as error:
            raise PrepareProblem(f"cannot write {path}: {os.strerror(error.errno or 0)}") from None
