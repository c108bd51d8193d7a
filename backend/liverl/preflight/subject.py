"""What the checks are about: a run before its start."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from liverl.config.schema import RunConfig
from liverl.plan.inherit import inherited
from liverl.plan.spec import Plan, ServiceSpec
from liverl.procs import procfs


def main_service(plan: Plan) -> ServiceSpec:
    """The service whose end is the run's: the trainer, or the launch script."""
    return next(service for service in plan.services if service.ends_run)


def main_folder(plan: Plan) -> Path:
    """The working directory of ``main_service``."""
    return Path(main_service(plan).cwd.replace("{run_dir}", plan.run_dir))


class Ours(msgspec.Struct, frozen=True):
    """What of this host a run holds itself, while it goes on. ``members``: service -> pids of its processes;
    ``gpus``: UUID of a GPU -> service for which it is reserved; ``ports``, ``hosts``: number and address of the
    sockets that it holds, by ``service.port``; ``attempt``: its number."""

    members: Mapping[str, Collection[int]]
    gpus: Mapping[str, str]
    ports: Mapping[str, int] = {}
    hosts: Mapping[str, str] = {}
    attempt: int = 1

    def has(self, pid: int | None, plan: Plan) -> bool:
        """Whether a process belongs to the run: to a service, or by the run's directory in its environment, as those
        do that hold sockets for services, and workers that were started after the newest scan of processes."""
        if pid is None:
            return False
        if any(pid in pids for pids in self.members.values()):
            return True
        tag = procfs.environment_tag(pid, b"LIVERL_RUN_DIR")
        return tag is not None and os.path.realpath(tag) == os.path.realpath(plan.run_dir)


class Subject(msgspec.Struct, frozen=True):
    """A run that is to be started. ``config``: from which ``plan`` was made; ``env``: the variables of the caller;
    ``gpu_memory``: GiB of one of its GPUs, None = of those of this host; ``elsewhere``: it starts on another host;
    ``ours``: what the run holds by now, None before its start. A check takes those of them that it needs, by their
    names."""

    plan: Plan
    config: RunConfig
    env: Mapping[str, str]
    gpu_memory: float | None = None
    elsewhere: bool = False
    ours: Ours | None = None


def trainer_variables(plan: Plan, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that the trainer of a run, and the trials that it starts, get from a caller with ``env``; all of
    them in a plan without one."""
    trainer = next((service for service in plan.services if service.ends_run), None)
    return variables_of(trainer, env) if trainer is not None else dict(env)


def variables_of(spec: ServiceSpec, env: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a service is started by a caller with ``env``, without its secrets: a check that asks a
    program in the place of a service gives it these."""
    passed = inherited(env, spec.inherits, spec.pass_env)
    return {name: value for name, value in passed.items() if name not in spec.unset_env} | spec.env
