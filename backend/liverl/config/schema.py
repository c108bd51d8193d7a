"""The configuration as one typed value, and functions over its keys."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from liverl.config.coerce import plain_type
from liverl.config.sections.agent import Agent, Reward
from liverl.config.sections.liverl import (
    Algorithm,
    Credentials,
    Data,
    Environment,
    Experiment,
    HarborAgent,
    HarborRuntime,
    Infrastructure,
    K8s,
    Model,
    Training,
    Vllm,
)
from liverl.config.sections.notify import Notify
from liverl.config.sections.run import (
    Batch,
    Diagnosis,
    Embedded,
    EnvironmentEntry,
    Network,
    Observe,
    Proxy,
    Retention,
    Run,
    Sandboxes,
    SessionProxy,
    Supervise,
    Trainer,
    Ui,
)
from liverl.config.sections.verl import Ray, Verl

Path = tuple[str, ...]


class RunConfig(Struct, frozen=True, kw_only=True):
    """The whole configuration of a run, without secrets (see ``Secrets``)."""

    run: Run
    model: Model
    data: Data
    infrastructure: Infrastructure
    environment: Environment
    environments: dict[str, EnvironmentEntry]
    k8s: K8s
    vllm: Vllm
    training: Training
    algorithm: Algorithm
    harbor_agent: HarborAgent
    harbor_runtime: HarborRuntime
    trainer: Trainer
    agent: Agent
    reward: Reward
    ray: Ray
    network: Network
    verl: Verl
    proxy: Proxy
    session_proxy: SessionProxy
    sandboxes: Sandboxes
    supervise: Supervise
    observe: Observe
    retention: Retention
    batch: Batch
    notify: Notify
    diagnosis: Diagnosis
    ui: Ui
    embedded: Embedded
    experiment: Experiment
    credentials: Credentials


@functools.cache
def root_type() -> types.StructType:
    """msgspec's description of ``RunConfig``, from which the functions below read the keys and their types."""
    kind = types.type_info(RunConfig)
    assert isinstance(kind, types.StructType)
    return kind


def fields(kind: types.StructType) -> dict[str, types.Type]:
    """Key -> type for one section, in the order of the schema; the types are without metadata."""
    return {field.name: plain_type(field.type) for field in kind.fields}


def is_open(kind: types.Type) -> bool:
    """Whether ``kind`` is a mapping whose keys the user chooses."""
    return isinstance(kind, types.DictType)


def _leaves(kind: types.StructType, path: Path) -> Iterator[tuple[Path, types.Type]]:
    for name, inner in fields(kind).items():
        if isinstance(inner, types.StructType):
            yield from _leaves(inner, (*path, name))
        else:
            yield (*path, name), inner


@functools.cache
def leaves() -> dict[str, types.Type]:
    """Dotted key -> type for every key of the schema. An open mapping counts as one key."""
    return {".".join(path): kind for path, kind in _leaves(root_type(), ())}


def schema_key(key: str) -> str:
    """The schema's key that a dotted key belongs to: ``environments.proxy.python`` -> ``environments``.

    Raises:
        KeyError: it belongs to no key of the schema.
    """
    schema = leaves()
    parts = key.split(".")
    for end in range(len(parts), 0, -1):
        candidate = ".".join(parts[:end])
        if candidate in schema:
            return candidate
    raise KeyError(key)


def value_of(config: RunConfig, key: str) -> Any:
    """The value of a dotted key of the schema, as plain data (structs become dictionaries, tuples lists)."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    value = msgspec.to_builtins(value)
    return list(value) if isinstance(value, tuple) else value


def flatten(data: dict[str, Any]) -> dict[str, Any]:
    """Nested plain data as dotted schema keys -> values; the keys of open mappings stay inside their value."""
    schema = leaves()
    flat: dict[str, Any] = {}

    def walk(value: dict[str, Any], prefix: str) -> None:
        for name, inner in value.items():
            key = f"{prefix}{name}"
            if key in schema:
                flat[key] = inner
            else:
                walk(inner, f"{key}.")

    walk(data, "")
    return flat
