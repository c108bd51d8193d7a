"""What a change of a key means for a run that exists: the only table of it, and the changes between two configurations.

``live``: the interface takes the new value over while the run goes on. ``restart``: the named services must be
started again; without any, the value holds at once. ``next attempt``: only a new attempt takes it over, since several
parts must get it together, or the backend reads it when an attempt begins. ``never``: it belongs to what the run is.
Between two attempts nothing runs, so ``up --resume`` applies the first three alike.

Every key is listed exactly once, or belongs to the ``*`` of its section; a test fails for a key without an entry, and
compares the entries with what plans hand to processes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from liverl.config.consumers import expand
from liverl.config.dump import looks_secret
from liverl.config.env_vars import SECRET_KEYS
from liverl.config.loaded import LoadedConfig
from liverl.config.schema import RunConfig, flatten, leaves, schema_key
from liverl.model import ConfigChange

Kind = Literal["live", "restart", "next attempt", "never"]
HIDDEN = "(not shown)"  # stands for the value of a secret


class OnChange(Struct, frozen=True):
    """What a change of a key means. ``services``: of kind ``restart``, those that must be started again (``replicas``
    under topology verl: the trainer, which starts them). ``why``: of kind ``never``, the reason."""

    kind: Kind
    services: tuple[str, ...] = ()
    why: str = ""

    @property
    def words(self) -> str:
        """``live``, ``at once``, ``restart of proxy``, ``next attempt``, or ``never: ...`` with the reason."""
        if self.kind == "restart" and not self.services:
            return "at once"
        if self.kind == "restart":
            return f"restart of {' and '.join(self.services)}"
        return f"never: {self.why}" if self.why else self.kind


_AT_ONCE = OnChange("restart")  # of nothing: the backend reads the value anew
_LIVE, _NEXT = OnChange("live"), OnChange("next attempt")
_REPLICAS, _PROXY, _SESSIONS, _TRAINER = (
    OnChange("restart", (name,)) for name in ("replicas", "proxy", "sessions", "trainer")
)
_PROXY_AND_SESSIONS = OnChange("restart", ("proxy", "sessions"))
_PROXY_AND_TRAINER = OnChange("restart", ("proxy", "trainer"))
_REPLICAS_AND_TRAINER = OnChange("restart", ("replicas", "trainer"))
_PLACE = OnChange("never", why="it names the run's directory")
_SHARDS = OnChange("never", why="verl's checkpoints are divided by the number of GPUs that train")
_MODEL = OnChange("never", why="the run's checkpoints are of this model")
_ENGINE = OnChange("never", why="the run's checkpoints are of a model that this engine loads")
_WEIGHTS = OnChange("never", why="the run's checkpoints are in the form of this engine")
_SHAPE = OnChange("never", why="it decides which services and checkpoints the run has")
_KEY = OnChange("never", why="all attempts of a run have the same keys; sandboxes hold them")

# Meaning -> keys: ``section: key key; section: *``.
_TABLE: tuple[tuple[OnChange, str], ...] = (
    (_PLACE, "run: name run_root; experiment: project_name exp_name"),
    (_SHAPE, "run: topology; trainer: kind; verl: device"),
    (_ENGINE, "run: engine"),
    (_WEIGHTS, "training: engine"),
    (_MODEL, "model: model_path"),
    (
        _SHARDS,
        "infrastructure: nnodes ngpus_per_node; verl: rollout_mode rollout_gpus trainer_mode train_nodes rollout_nodes",
    ),
    (_KEY, "infrastructure: anthropic_api_key"),
    (_LIVE, "run: replicas; ui: *"),
    (
        _NEXT,
        "trainer: restart; verl: actor_deadline address_deadline health_deadline; supervise: *; observe: *",
    ),
    (_AT_ONCE, "batch: *; diagnosis: mute"),
    (_REPLICAS_AND_TRAINER, "run: seed; embedded.faults: ignore_sigterm"),
    (
        _REPLICAS,
        "model: tool_parser; vllm: *; embedded: *; embedded.faults: *; embedded.faults.late_replica: *",
    ),
    (_PROXY, "proxy: *"),
    (_PROXY_AND_SESSIONS, "proxy: request_timeout max_body_bytes"),
    (
        _SESSIONS,
        "session_proxy: main_agent_prefix_match models patience max_replica_deaths in_flight rows_per_trial tokenizer "
        "processes; session_proxy.scheduler: *",
    ),
    (_PROXY_AND_TRAINER, "algorithm: temperature top_p top_k val_temperature val_top_p val_top_k"),
    (_TRAINER, "data: *; infrastructure: node0_ip; k8s: *; training: *; algorithm: *; harbor_agent: *"),
    (
        _TRAINER,
        "harbor_runtime: *; trainer: command cwd env logs; verl: *; verl.fully_async: *; verl.faults: *; "
        "verl.faults.late_replica: *",
    ),
    (
        _TRAINER,
        "embedded.faults: crash_at_step hang_at_step nan_at_step tool_executor slow_tool slow_sandbox slow_last "
        "slow_update",
    ),
    (_TRAINER, "experiment: trials_dir trajectory_logger_src"),
    (_NEXT, "model: served_model_name; environment: venv_path; ray: *; credentials: *; trainer: overrides"),
    (_NEXT, "notify: *; diagnosis: rules; network: *"),
    (
        _NEXT,
        "sandboxes: *; retention: *; agent: *; agent.endings: *; reward: *; session_proxy: rewrite asides",
    ),
    (_NEXT, "infrastructure: litellm_port ray_port ray_dashboard_port vllm_logging_level; vllm: gen_tp"),
    (
        _NEXT,
        "proxy: host advertise trials_through; session_proxy: port; verl: agent_loop source",
    ),
)
_OPEN = {"environments": _NEXT}  # sections whose keys the user chooses


@functools.cache
def table() -> dict[str, OnChange]:
    """Every key of the schema -> what a change of it means, in the order of the schema.

    Raises:
        ValueError: a key has no entry, or an entry is listed twice or names no key.
    """
    listed = _OPEN | expand(_entries(), [key for key in leaves() if key not in _OPEN])
    if missing := [key for key in leaves() if key not in listed]:
        raise ValueError(f"what a change of {', '.join(missing)} means is not in the table of changes")
    return {key: listed[key] for key in leaves()}


def _entries() -> Iterator[tuple[str, OnChange]]:
    for meaning, names in _TABLE:
        for part in names.split(";"):
            section, _, keys = part.partition(":")
            yield from ((f"{section.strip()}.{key}", meaning) for key in keys.split())


def on_change(key: str) -> OnChange:
    """What a change of a dotted key means; a key inside an open mapping counts as the mapping.

    Raises:
        KeyError: there is no such key.
    """
    return table()[schema_key(key)]


def changes(before: RunConfig, after: LoadedConfig) -> tuple[ConfigChange, ...]:
    """The keys whose value differs, with both values; their attempt is 0, not known yet. Values of secrets are not
    shown."""
    origins = after.origins | after.user_origins
    old, new = flat(before), flat(after.config)
    return tuple(
        ConfigChange(0, key, *_shown(key, old.get(key), new.get(key)), origins.get(key, after.source))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    )


def names_the_run(key: str) -> bool:
    """Whether a key only says where a run is, so that it differs in each of them."""
    return on_change(key) is _PLACE


def is_secret(key: str) -> bool:
    """Whether the value of a dotted key must not be shown."""
    return key in SECRET_KEYS or looks_secret(key.rpartition(".")[2])


def _shown(key: str, before: Any, after: Any) -> tuple[Any, Any]:
    return (HIDDEN, HIDDEN) if is_secret(key) else (before, after)


def flat(config: RunConfig) -> dict[str, Any]:
    """Dotted key -> plain value; the keys of open mappings stand on their own."""
    flat: dict[str, Any] = {}

    def add(key: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                add(f"{key}.{name}", inner)
        else:
            flat[key] = value

    for key, value in flatten(msgspec.to_builtins(config)).items():
        add(key, value)
    return flat
