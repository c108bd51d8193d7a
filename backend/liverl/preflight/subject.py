"""What the checks are about: a run before its start."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from liverl.config.schema import RunConfig
from liverl.plan.inherit import inherited
from liverl.plan.spec import Plan, ServiceSpec


class Subject(msgspec.Struct, frozen=True):
    """A run that is to be started. ``config``: from which ``plan`` was made; ``env``: the variables of the caller;
    ``gpu_memory``: GiB of one of its GPUs, None = of those of this host; ``elsewhere``: it starts on another host.
    A check takes those of them that it needs, by their names."""

    plan: Plan
    config: RunConfig
    env: Mapping[str, str]
    gpu_memory: float | None = None
    elsewhere: bool = False


def variables_of(spec: ServiceSpec, env: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a service is started by a caller with ``env``, without its secrets: a check that asks a
    program in the place of a service gives it these."""
    passed = inherited(env, spec.inherits, spec.pass_env)
    return {name: value for name, value in passed.items() if name not in spec.unset_env} | spec.env
