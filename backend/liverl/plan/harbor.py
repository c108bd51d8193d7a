"""What the workers of verl's agent loop are told of Harbor, and its environment."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec.structs import replace

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.config.sections.run import HARBOR, EnvironmentEntry
from liverl.plan.spec import Dependency

_REQUIREMENTS = ("harbor>=0.24,<0.26",)
_PYTHON = ">=3.12"  # all that Harbor runs with


def environment(entry: EnvironmentEntry | None) -> EnvironmentEntry:
    """``environments.harbor`` with the packages and the Python that Harbor needs where it names none."""
    entry = entry or EnvironmentEntry()
    if entry.venv_path:
        return entry
    return replace(entry, requirements=entry.requirements or _REQUIREMENTS, python=entry.python or _PYTHON)


def dependencies(config: RunConfig) -> tuple[Dependency, ...]:
    """What the trainer waits for."""
    return (Dependency("environment_ready", HARBOR),) if when.harbor(config) else ()


def settings(config: RunConfig) -> dict[str, Any] | None:
    """``HarborSettings`` as plain values; None if no row can be run by Harbor. Keys that nothing uses are empty."""
    if not when.harbor(config):
        return None
    agent: dict[str, Any] = msgspec.to_builtins(config.harbor_agent)
    k8s: dict[str, Any] = msgspec.to_builtins(config.k8s)
    unused = {
        "docker_host": when.harbor_docker(config),
        "pod_name_prefix": when.harbor_class(config),
        "environment_override_cpus": when.harbor_limits(config),
        "environment_override_memory_mb": when.harbor_limits(config),
        "runtime_mount_path": when.harbor_image(config),
        "runtime_image_subpath": when.harbor_image(config),
    }
    agent |= {name: None for name, used in unused.items() if not used}
    agent["temperature"] = config.algorithm.temperature  # sessions sample with it, whatever an agent asks for
    pods = when.harbor_class(config)
    k8s |= {name: None for name in k8s if name.startswith("pod_") and not pods}
    if not when.harbor_cluster(config):
        k8s |= {"kubeconfig": None, "namespace": None}
    return {
        "python": f"{{python:{HARBOR}}}",
        "tasks": tasks_directory(config),
        "workers": config.verl.agent_workers,
        "labels": when.labelled_sandboxes(config),
        "agent": agent,
        "runtime": msgspec.to_builtins(config.harbor_runtime),
        "k8s": k8s,
    }


def tasks_directory(config: RunConfig) -> str:
    """The directory from which relative paths of tasks count: that of ``data.train_index``, or of the first of several
    training files."""
    given = sizing.override(config, sizing.TRAIN_FILES) is not None
    files = sizing.train_files(config) if given else (config.data.train_index,)
    return os.path.dirname(next(iter(files or ()), "")) or "."
