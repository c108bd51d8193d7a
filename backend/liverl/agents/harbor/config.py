"""One trial as Harbor's TrialConfig, in plain values. Pure; Harbor itself is not imported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from liverl.agents.claude_code import MODEL_VARIABLES
from liverl.agents.harbor.settings import HarborSettings
from liverl.agents.pods import CLUSTER_TYPES, selector_of
from liverl.util.decode import decode_loose_json

LOCAL = "liverl_local_environment:LocalEnvironment"  # our environment, as the runner makes it importable
# Agents of Harbor's that make no request to a model: there is nothing to train.
_WITHOUT_MODEL = ("oracle", "nop")
_RESPONSES_ONLY = ("codex",)
# Options by which agents of Harbor's take the most turns, and the temperature.
_TURNS = {
    "claude-code": "max_turns",
    "terminus-2": "max_turns",
    "openhands": "max_iterations",
    "openhands-sdk": "max_iterations",
}
_TEMPERATURE = ("terminus-2", "openhands-sdk")
# Agents that call the model by LiteLLM in Harbor's own process, where the agent's environment is not read.
IN_PROCESS = ("terminus-2",)
_MULTIPLIERS = (
    "agent_setup_timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "environment_build_timeout_multiplier",
)
DOCKER_CLASSES = "harbor.environments.docker."  # the module of Harbor's own class
# Harbor's environments for which ``k8s.*`` are arguments.
_CLUSTERS = {"ack": ("namespace", "kubeconfig"), "openshift": ("namespace",)}


class ConfigError(ValueError):
    """Harbor cannot run trials with this configuration. ``key``: the key to change; ``words``: why; ``found`` and
    ``allowed``: its value and what it may be. The text is all of it in one sentence."""

    def __init__(self, key: str, words: str, found: str, allowed: str) -> None:
        super().__init__(f"{key}: {words}, found {found}, expected {allowed}")
        self.key, self.words, self.found, self.allowed = key, words, found, allowed


class HarborTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What is different for each trial. ``task``: directory of the task; ``trials_dir``: that of the trial's own
    directory, which is called ``name``; ``openai``, ``anthropic``: base URLs of its session, ``key``: for both."""

    task: str
    name: str
    trials_dir: str
    openai: str
    anthropic: str
    key: str
    model: str
    turns: int
    context: int  # tokens of the longest prompt ...
    reply: int  # ... and of the longest reply
    pod_labels: dict[str, str] = {}  # of its pod, where the environment takes some
    overlay: str = ""  # file of Compose that is laid over the task's, where ``uses_compose``


def trial_config(trial: HarborTrial, settings: HarborSettings) -> dict[str, Any]:
    """The TrialConfig of one trial.

    Raises:
        ConfigError: Harbor cannot run trials so.
    """
    agent = settings.agent
    return {
        "task": {"path": trial.task},
        "trial_name": trial.name,
        "trials_dir": trial.trials_dir,
        **{name: agent[name] for name in _MULTIPLIERS},
        "agent": _agent(trial, agent),
        "environment": _environment(settings) | _owned(trial, settings),
        "verifier": {"disable": not agent["verifier_enabled"]},
    }


def runner_environment(settings: HarborSettings) -> dict[str, str]:
    """The variables by which environments of Harbor's learn where their sandboxes are."""
    agent, k8s = settings.agent, settings.k8s
    found = {
        "DOCKER_HOST": agent["docker_host"],
        "HARBOR_POD_NAME_PREFIX": agent["pod_name_prefix"],
        "K8S_KUBECONFIG": k8s["kubeconfig"],
        "K8S_NAMESPACE": k8s["namespace"],
        "K8S_POD_STARTUP_TIMEOUT": k8s["pod_startup_timeout"],
        "K8S_POD_ACTIVE_DEADLINE_SECONDS": k8s["pod_active_deadline_seconds"],
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _agent(trial: HarborTrial, agent: Mapping[str, Any]) -> dict[str, Any]:
    name, import_path = agent["agent_name"] or None, agent["agent_import_path"] or None
    if name is None and import_path is None:
        raise ConfigError(
            "harbor_agent.agent_name",
            "without it and harbor_agent.agent_import_path Harbor would run the reference solution",
            "neither",
            "one of them",
        )
    if import_path is None and name in _WITHOUT_MODEL:
        raise ConfigError(
            "harbor_agent.agent_name",
            "this agent asks no model: there would be nothing to train",
            name,
            "another agent",
        )
    if import_path is None and name in _RESPONSES_ONLY:
        raise ConfigError(
            "harbor_agent.agent_name",
            "this agent speaks only /v1/responses, and sessions serve /v1/chat/completions and /v1/messages",
            str(name),
            "another agent",
        )
    if import_path is not None and ":" not in import_path:
        raise ConfigError(
            "harbor_agent.agent_import_path", "not the name of a class", import_path, "module:Class"
        )
    return {
        # With a name that it knows Harbor would not look at the import path.
        "name": None if import_path else name,
        "import_path": import_path,
        "model_name": trial.model if name == "claude-code" else f"openai/{trial.model}",
        "override_timeout_sec": agent["override_timeout_sec"],
        "max_timeout_sec": agent["max_timeout_sec"],
        "kwargs": _options(trial, name, agent),
        "env": _addresses(trial),
    }


def _options(trial: HarborTrial, name: str | None, agent: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if name in _TURNS:
        found[_TURNS[name]] = trial.turns
    if name in _TEMPERATURE:
        found["temperature"] = agent["temperature"]
    if name in IN_PROCESS:
        found |= {
            "api_base": trial.openai,
            "llm_kwargs": {"api_key": trial.key},
            "model_info": {
                "max_input_tokens": trial.context,
                "max_output_tokens": trial.reply,
                "input_cost_per_token": 0,
                "output_cost_per_token": 0,
            },
            "record_terminal_session": False,  # it would install a program for that
            "suppress_max_turns_warning": True,
        }
    return found


def _addresses(trial: HarborTrial) -> dict[str, str]:
    """The session's addresses and key, under all names by which agents look for them."""
    return {
        "OPENAI_BASE_URL": trial.openai,
        "OPENAI_API_BASE": trial.openai,
        "OPENAI_API_KEY": trial.key,
        "OPENAI_MODEL": trial.model,
        "ANTHROPIC_BASE_URL": trial.anthropic,
        "ANTHROPIC_API_KEY": trial.key,
        "ANTHROPIC_MODEL": trial.model,
        **dict.fromkeys(MODEL_VARIABLES, trial.model),
        "LLM_BASE_URL": trial.openai,
        "LLM_API_KEY": trial.key,
        "MSWEA_API_KEY": trial.key,
    }


def _environment(settings: HarborSettings) -> dict[str, Any]:
    agent = settings.agent
    kind, import_path = agent["environment_type"] or None, agent["environment_import_path"] or None
    if kind is not None and import_path is not None:
        raise ConfigError(
            "harbor_agent.environment_type",
            f"set together with harbor_agent.environment_import_path {import_path}",
            kind,
            "one of them",
        )
    mounts = [*_host_mounts(agent["host_path_mounts"]), *_runtime(agent)]
    if kind == "local":
        if agent["runtime_image"]:
            raise ConfigError(
                "harbor_agent.runtime_image",
                "environment_type local cannot mount images",
                str(agent["runtime_image"]),
                "null",
            )
        kind, import_path = None, LOCAL
    elif import_path is None:
        kind = kind or "docker"
    names = _CLUSTERS.get(kind or "", ())
    return {
        "type": kind,
        "import_path": import_path,
        "force_build": agent["environment_force_build"],
        "delete": agent["environment_delete"],
        "override_cpus": agent["environment_override_cpus"],
        "override_memory_mb": agent["environment_override_memory_mb"],
        "mounts": mounts or None,
        "kwargs": {name: settings.k8s[name] for name in names if settings.k8s[name]},
    }


def uses_compose(settings: HarborSettings) -> bool:
    """Whether Harbor makes the sandboxes by Docker's Compose, which takes files of ours beside the task's."""
    return composed(settings.agent["environment_type"], settings.agent["environment_import_path"])


def composed(kind: str | None, path: str | None) -> bool:
    """The same by ``environment_type`` and ``environment_import_path`` of ``harbor_agent``."""
    return path.startswith(DOCKER_CLASSES) if path else (kind or "docker") == "docker"


def in_cluster(kind: str | None, path: str | None, kubeconfig: str | None) -> bool:
    """Whether the sandboxes are pods of a cluster, as far as these keys tell; ``kubeconfig``: of section ``k8s``."""
    return kind in CLUSTER_TYPES or bool(path and kubeconfig and not composed(kind, path))


def cluster_of(settings: HarborSettings, run_id: str, env: Mapping[str, str]) -> dict[str, str]:
    """How the API of the cluster is asked in which Harbor makes the sandboxes; empty if they are no pods, as far as the
    configuration tells. ``env``: of Harbor's process."""
    agent, k8s = settings.agent, settings.k8s
    given = k8s["kubeconfig"]
    if not in_cluster(agent["environment_type"], agent["environment_import_path"], given):
        return {}
    first = given or next(filter(None, env.get("KUBECONFIG", "").split(os.pathsep)), "")
    found = {"kubeconfig": first, "namespace": k8s["namespace"] or ""}
    try:
        return found | {"selector": selector_of(agent, run_id)}
    except ValueError as error:
        return found | {"fault": str(error)}


def _owned(trial: HarborTrial, settings: HarborSettings) -> dict[str, Any]:
    """What makes a sandbox the run's own, and keeps its containers where ``environment_delete`` is false: without
    ``keep_containers`` Harbor keeps the image only."""
    found: dict[str, Any] = {"extra_docker_compose": [trial.overlay]} if trial.overlay else {}
    if trial.pod_labels and settings.agent["environment_type"] == "ack":
        found["kwargs"] = {**_environment(settings)["kwargs"], "pod_labels": trial.pod_labels}
    if uses_compose(settings) and not settings.agent["environment_delete"]:
        found["kwargs"] = {"keep_containers": True}  # Docker's class has no arguments in ``k8s``
    return found


def _runtime(agent: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    image, target, subpath = (
        agent["runtime_image"],
        agent["runtime_mount_path"],
        agent["runtime_image_subpath"],
    )
    if not image:
        return
    if not target:
        raise ConfigError(
            "harbor_agent.runtime_mount_path",
            "harbor_agent.runtime_image needs it",
            "nothing",
            "an absolute path",
        )
    mount = {"type": "image", "source": image, "target": target, "read_only": True}
    yield {**mount, "image": {"subpath": subpath}} if subpath else mount


def _host_mounts(value: Any) -> Iterator[dict[str, Any]]:
    """The bind mounts in ``host_path_mounts``: paths, ``SOURCE:TARGET[:ro]``, or objects."""
    where = "harbor_agent.host_path_mounts"
    if isinstance(value, str):
        try:
            value = decode_loose_json(value) if value.strip() else None
        except ValueError as error:
            raise ConfigError(where, f"is no JSON: {error}", repr(value), "a list of mounts") from None
    if value is None:
        return
    if not isinstance(value, list):
        raise ConfigError(where, "is no list", repr(value), "a list of mounts")
    for number, one in enumerate(value):
        if isinstance(one, str):
            source, _, rest = one.partition(":")
            target, _, mode = rest.partition(":")
            given: Mapping[str, Any] = {
                "source": source,
                "target": target or source,
                "read_only": mode == "ro",
            }
            wrong = mode not in ("", "ro", "rw")
        else:
            given, wrong = one if isinstance(one, dict) else {}, False
        path = given.get("source") or given.get("host_path") or given.get("hostPath")
        at = given.get("target") or given.get("mount_path") or given.get("mountPath") or path
        if wrong or not _absolute(path) or not _absolute(at):
            raise ConfigError(
                where,
                f"entry {number} is no mount",
                repr(one),
                "PATH, SOURCE:TARGET or SOURCE:TARGET:ro with absolute paths",
            )
        read_only = bool(given.get("read_only", given.get("readOnly", False)))
        mount = {"type": "bind", "source": path, "target": at}
        yield {**mount, "read_only": True} if read_only else mount


def _absolute(path: Any) -> bool:
    return isinstance(path, str) and path.startswith("/")
