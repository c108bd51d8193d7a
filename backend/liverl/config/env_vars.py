"""LiveRL's environment variables and the keys they set: read as a layer, and exported to its launch scripts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from liverl.config.schema import RunConfig, value_of

SECRET_KEYS = ("credentials.wandb_api_key", "infrastructure.anthropic_api_key")

# (variable, key). If two variables set one key, the later one wins. ANTHROPIC_API_KEY is exported but not read: on a
# developer's machine it is a personal key, and the run would give it to its sandboxes.
VARIABLES: tuple[tuple[str, str], ...] = (
    ("MODEL_PATH", "model.model_path"),
    ("SERVED_MODEL_NAME", "model.served_model_name"),
    ("TOOL_CALL_PARSER", "model.tool_parser"),
    ("HARBOR_TOOL_PARSER", "model.tool_parser"),
    ("DATA_DIR", "data.data_dir"),
    ("TRAIN_INDEX", "data.train_index"),
    ("VAL_INDEX", "data.val_index"),
    ("NODE0_IP", "infrastructure.node0_ip"),
    ("NNODES", "infrastructure.nnodes"),
    ("NGPUS_PER_NODE", "infrastructure.ngpus_per_node"),
    ("NEW_VERL_DIR", "verl.source"),
    ("N_NODES_TRAIN", "verl.train_nodes"),
    ("N_NODES_ROLLOUT", "verl.rollout_nodes"),
    ("RAY_PORT", "infrastructure.ray_port"),
    ("RAY_DASHBOARD_PORT", "infrastructure.ray_dashboard_port"),
    ("LITELLM_PORT", "infrastructure.litellm_port"),
    ("VLLM_LOGGING_LEVEL", "infrastructure.vllm_logging_level"),
    ("VENV_PATH", "environment.venv_path"),
    ("K8S_KUBECONFIG", "k8s.kubeconfig"),
    ("K8S_NAMESPACE", "k8s.namespace"),
    ("K8S_POD_STARTUP_TIMEOUT", "k8s.pod_startup_timeout"),
    ("K8S_POD_ACTIVE_DEADLINE_SECONDS", "k8s.pod_active_deadline_seconds"),
    ("test_freq", "training.test_freq"),
    ("HARBOR_AGENT_NAME", "harbor_agent.agent_name"),
    ("HARBOR_AGENT_IMPORT_PATH", "harbor_agent.agent_import_path"),
    ("HARBOR_AGENT_RUNTIME_IMAGE", "harbor_agent.runtime_image"),
    ("HARBOR_AGENT_RUNTIME_MOUNT_PATH", "harbor_agent.runtime_mount_path"),
    ("HARBOR_AGENT_RUNTIME_IMAGE_SUBPATH", "harbor_agent.runtime_image_subpath"),
    ("HARBOR_AGENT_MAX_ITERATIONS", "harbor_agent.max_iterations"),
    ("HARBOR_AGENT_MAX_TIMEOUT_SEC", "harbor_agent.max_timeout_sec"),
    ("HARBOR_AGENT_OVERRIDE_TIMEOUT_SEC", "harbor_agent.override_timeout_sec"),
    ("HARBOR_AGENT_DISABLE_TOOL_CALLS", "harbor_agent.disable_tool_calls"),
    ("HARBOR_AGENT_TEMPERATURE", "harbor_agent.temperature"),
    ("HARBOR_MAX_RETRIES", "harbor_agent.max_retries"),
    ("HARBOR_VERIFIER_ENABLED", "harbor_agent.verifier_enabled"),
    ("HARBOR_POD_NAME_PREFIX", "harbor_agent.pod_name_prefix"),
    ("HARBOR_AGENT_SETUP_TIMEOUT_MULTIPLIER", "harbor_agent.agent_setup_timeout_multiplier"),
    ("HARBOR_AGENT_TIMEOUT_MULTIPLIER", "harbor_agent.agent_timeout_multiplier"),
    ("HARBOR_VERIFIER_TIMEOUT_MULTIPLIER", "harbor_agent.verifier_timeout_multiplier"),
    ("HARBOR_ENVIRONMENT_BUILD_TIMEOUT_MULTIPLIER", "harbor_agent.environment_build_timeout_multiplier"),
    ("HARBOR_ENVIRONMENT_TYPE", "harbor_agent.environment_type"),
    ("HARBOR_ENVIRONMENT_IMPORT_PATH", "harbor_agent.environment_import_path"),
    ("HARBOR_ENVIRONMENT_FORCE_BUILD", "harbor_agent.environment_force_build"),
    ("HARBOR_ENVIRONMENT_DELETE", "harbor_agent.environment_delete"),
    ("HARBOR_ENVIRONMENT_OVERRIDE_CPUS", "harbor_agent.environment_override_cpus"),
    ("HARBOR_ENVIRONMENT_OVERRIDE_MEMORY_MB", "harbor_agent.environment_override_memory_mb"),
    ("HARBOR_MAX_CONSECUTIVE_NO_TOOL", "harbor_agent.max_consecutive_no_tool"),
    ("HARBOR_HOSTPATH_MOUNTS", "harbor_agent.host_path_mounts"),
    ("DOCKER_HOST", "harbor_agent.docker_host"),
    ("NUM_WORKERS", "harbor_runtime.num_workers"),
    ("HARBOR_RECOMPUTE_MISMATCH_LOGPROBS", "session_proxy.rewrite"),
    ("HARBOR_TAIL_KILL_TARGET", "harbor_runtime.tail_kill_target"),
    ("HARBOR_TAIL_KILL_GRACE_SEC", "harbor_runtime.tail_kill_grace_sec"),
    ("HARBOR_TAIL_KILL_MIN_TASKS", "harbor_runtime.tail_kill_min_tasks"),
    ("PROJECT_NAME", "experiment.project_name"),
    ("EXP_NAME", "experiment.exp_name"),
    ("HARBOR_TRIALS_DIR", "experiment.trials_dir"),
    ("TRAJECTORY_LOGGER_SRC", "experiment.trajectory_logger_src"),
    ("WANDB_API_KEY", "credentials.wandb_api_key"),
    ("WANDB_MODE", "credentials.wandb_mode"),
)

# Variables whose values are spelled otherwise than those of their keys: variable -> its value -> the key's. A value of
# the key that has no spelling is not exported.
SPELLINGS: dict[str, dict[str, str]] = {
    "HARBOR_RECOMPUTE_MISMATCH_LOGPROBS": {"1": "recompute", "0": "mask"},
}

# Variables that count only where another one is on: exported with it.
SWITCHES = {"NEW_VERL_DIR": "USE_NEW_VERL"}
_ON = ("1", "true", "yes", "on")

# (variable, key): the variable's value is the path of a file that contains the secret.
SECRET_FILES: tuple[tuple[str, str], ...] = (
    ("WANDB_API_KEY_FILE", "credentials.wandb_api_key"),
    ("ANTHROPIC_API_KEY_FILE", "infrastructure.anthropic_api_key"),
)


# Keys whose null says something to LiveRL's scripts, which have another default: exported as the word.
NULL_KEYS = ("harbor_agent.agent_name",)


def value_from(name: str, text: str) -> str:
    """The value that the variable ``name`` gives its key when it is ``text``. What has no spelling stays as it is."""
    return SPELLINGS.get(name, {}).get(text, text)


# Keys whose value the run takes from another key where only that one was given.
_ALSO = {"experiment.exp_name": "run.name"}


def liverl_environment(config: RunConfig, given: Collection[str] | None = None) -> dict[str, str]:
    """The variables that a LiveRL launch script reads, from the configuration and without secrets.

    As in LiveRL, an empty value is left out (the script then uses its own default), except a null in ``NULL_KEYS``, and
    switches are True or False. ``given``: the keys to export; None = all. Defaults must not override those of a script
    (``${NNODES:-16}``), so it gets only the keys that its user has given.
    """
    variables: dict[str, str] = {}
    for name, key in VARIABLES:
        if key in SECRET_KEYS or not was_given(key, given):
            continue
        text = _exported(config, name, key)
        if text:
            variables[name] = text
            if name in SWITCHES:
                variables[SWITCHES[name]] = _ON[0]
    return variables


def counts(name: str, env: Mapping[str, str]) -> bool:
    """Whether the variable ``name`` is set, and its switch, if it has one, is on."""
    switch = SWITCHES.get(name)
    return bool(env.get(name)) and (switch is None or env.get(switch, "").lower() in _ON)


def was_given(key: str, given: Collection[str] | None) -> bool:
    """Whether the user has given the value of ``key``. ``given``: the keys that the user has given; None = all."""
    return given is None or key in given or _ALSO.get(key) in given


def variables_set(config: RunConfig, key: str) -> tuple[str, ...]:
    """The names of LiveRL's variables that are exported for ``key``; none if its value is empty, or if it is a
    secret."""
    if key in SECRET_KEYS:
        return ()
    return tuple(name for name, other in VARIABLES if other == key and _exported(config, name, key))


def _exported(config: RunConfig, name: str, key: str) -> str:
    """The text of a variable; empty if it is left out."""
    value = value_of(config, key)
    text = "null" if value is None and key in NULL_KEYS else _text(value)
    if name not in SPELLINGS:
        return text
    return next((theirs for theirs, ours in SPELLINGS[name].items() if ours == text), "")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    if isinstance(value, list):
        return json.dumps(value)
    return str(value)
