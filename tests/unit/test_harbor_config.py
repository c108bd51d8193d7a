"""A trial of Harbor's as plain values: what each key of the configuration becomes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.harbor_settings import harbor_settings

from liverl.agents.harbor.config import (
    LOCAL,
    ConfigError,
    HarborTrial,
    runner_environment,
    trial_config,
)

TRIAL = HarborTrial(
    task="/t/hello",
    name="hello-00000001",
    trials_dir="/r/trials/step_0001",
    openai="http://h:1/sess/hello-00000001/v1",
    anthropic="http://h:1/sess/hello-00000001",
    key="k",
    model="m",
    turns=5,
    context=4000,
    reply=300,
)


def made(**agent: Any) -> dict[str, Any]:
    return trial_config(TRIAL, harbor_settings(**agent))


def test_task_name_and_directory_are_ours() -> None:
    config = made(agent_name="terminus-2")
    assert config["task"] == {"path": "/t/hello"}
    assert (config["trial_name"], config["trials_dir"]) == ("hello-00000001", "/r/trials/step_0001")
    json.dumps(config)


@pytest.mark.parametrize("empty", [None, ""])
def test_an_agent_without_name_and_import_path_is_refused(empty: str | None) -> None:
    with pytest.raises(ConfigError, match=r"without it and .* Harbor would run the reference solution"):
        made(agent_name=empty, agent_import_path=empty)


@pytest.mark.parametrize("name", ["oracle", "nop", "codex"])
def test_agents_that_cannot_be_trained_are_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"harbor_agent.agent_name: .*, found {name}, expected another agent"
    ):
        made(agent_name=name)
    assert made(agent_name=name, agent_import_path="mine:Agent")["agent"]["name"] is None


def test_a_class_goes_before_a_name_that_harbor_knows() -> None:
    agent = made(agent_name="claude-code", agent_import_path="mine:Agent")["agent"]
    assert (agent["name"], agent["import_path"]) == (None, "mine:Agent")
    assert agent["kwargs"] == {"max_turns": 5}  # the class takes what the agent of that name takes
    with pytest.raises(ConfigError, match="expected module:Class"):
        made(agent_import_path="mine.Agent")


@pytest.mark.parametrize(
    ("name", "model", "options"),
    [
        ("claude-code", "m", {"max_turns": 5}),
        ("openhands-sdk", "openai/m", {"max_iterations": 5, "temperature": 0.5}),
        ("mini-swe-agent", "openai/m", {}),
        (None, "openai/m", {}),
    ],
)
def test_model_and_options_of_an_agent(name: str | None, model: str, options: dict[str, Any]) -> None:
    import_path = None if name else "mine:Agent"
    agent = made(agent_name=name, agent_import_path=import_path, temperature=0.5)["agent"]
    assert agent["model_name"] == model and agent["kwargs"] == options
    env = agent["env"]
    for key in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "LLM_BASE_URL"):
        assert env[key] == TRIAL.openai
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LLM_API_KEY", "MSWEA_API_KEY"):
        assert env[key] == "k"
    assert env["ANTHROPIC_BASE_URL"] == TRIAL.anthropic
    for key in ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"):
        assert env[key] == TRIAL.model


def test_an_agent_in_harbors_process_gets_its_address_as_options() -> None:
    options = made(agent_name="terminus-2", temperature=0.5)["agent"]["kwargs"]
    assert options == {
        "api_base": TRIAL.openai,
        "llm_kwargs": {"api_key": "k"},
        "max_turns": 5,
        "temperature": 0.5,
        "model_info": {
            "max_input_tokens": 4000,
            "max_output_tokens": 300,
            "input_cost_per_token": 0,
            "output_cost_per_token": 0,
        },
        "record_terminal_session": False,
        "suppress_max_turns_warning": True,
    }


def test_times_and_verifier() -> None:
    config = made(
        override_timeout_sec=7,
        max_timeout_sec=9,
        agent_timeout_multiplier=2.0,
        agent_setup_timeout_multiplier=3.0,
        verifier_timeout_multiplier=4.0,
        environment_build_timeout_multiplier=5.0,
        verifier_enabled=False,
    )
    assert (config["agent"]["override_timeout_sec"], config["agent"]["max_timeout_sec"]) == (7, 9)
    assert [config[f"{name}_timeout_multiplier"] for name in
            ("agent", "agent_setup", "verifier", "environment_build")] == [2.0, 3.0, 4.0, 5.0]  # fmt: skip
    assert config["verifier"] == {"disable": True}
    assert made()["verifier"] == {"disable": False}


@pytest.mark.parametrize(
    ("kind", "import_path", "expected"),
    [
        (None, None, ("docker", None)),
        ("local", None, (None, LOCAL)),
        ("modal", None, ("modal", None)),
        (None, "mine:Pods", (None, "mine:Pods")),
    ],
)
def test_the_environment_is_always_named(
    kind: str | None, import_path: str | None, expected: tuple[str | None, str | None]
) -> None:
    environment = made(environment_type=kind, environment_import_path=import_path)["environment"]
    assert (environment["type"], environment["import_path"]) == expected


def test_two_environments_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"set together with .* mine:Pods, found local, expected one of them"
    ):
        made(environment_type="local", environment_import_path="mine:Pods")


def test_limits_and_life_of_the_environment() -> None:
    environment = made(
        environment_force_build=True,
        environment_delete=False,
        environment_override_cpus=3,
        environment_override_memory_mb=512,
    )["environment"]
    assert environment["force_build"] is True and environment["delete"] is False
    assert (environment["override_cpus"], environment["override_memory_mb"]) == (3, 512)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["/a"], {"source": "/a", "target": "/a"}),
        (["/a:/b"], {"source": "/a", "target": "/b"}),
        (["/a:/b:ro"], {"source": "/a", "target": "/b", "read_only": True}),
        ('["/a"]', {"source": "/a", "target": "/a"}),
        (
            [{"source": "/a", "target": "/b", "read_only": True}],
            {"source": "/a", "target": "/b", "read_only": True},
        ),
        ([{"host_path": "/a", "mount_path": "/b"}], {"source": "/a", "target": "/b"}),
    ],
)
def test_mounts_of_the_host(value: Any, expected: dict[str, Any]) -> None:
    assert made(host_path_mounts=value)["environment"]["mounts"] == [{"type": "bind", **expected}]


@pytest.mark.parametrize("value", [None, "", [], "[]"])
def test_no_mounts(value: Any) -> None:
    assert made(host_path_mounts=value)["environment"]["mounts"] is None


@pytest.mark.parametrize("value", ["/a", {"a": 1}, 3, ["a"], ["/a:b"], ["/a:/b:rx"], [{"target": "/b"}], [3]])
def test_mounts_that_are_none_are_refused_by_their_key(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"harbor_agent\.host_path_mounts"):
        made(host_path_mounts=value)


def test_the_runtime_of_an_agent_is_mounted_from_its_image() -> None:
    keys = {"runtime_image": "reg/cc:1", "runtime_mount_path": "/opt/cc", "runtime_image_subpath": "opt/cc"}
    (mount,) = made(**keys)["environment"]["mounts"]
    assert mount == {
        "type": "image",
        "source": "reg/cc:1",
        "target": "/opt/cc",
        "read_only": True,
        "image": {"subpath": "opt/cc"},
    }
    assert "image" not in made(**{**keys, "runtime_image_subpath": None})["environment"]["mounts"][0]
    with pytest.raises(
        ConfigError, match=r"runtime_mount_path: harbor_agent\.runtime_image needs it, found nothing"
    ):
        made(**{**keys, "runtime_mount_path": None})
    with pytest.raises(ConfigError, match="environment_type local cannot mount images"):
        made(**keys, environment_type="local")


def test_where_pods_are() -> None:
    k8s = {"namespace": "ours", "kubeconfig": "/k"}
    made_for = {
        kind: trial_config(TRIAL, harbor_settings(environment_type=kind, k8s=k8s))["environment"]["kwargs"]
        for kind in ("ack", "openshift", "docker")
    }
    assert made_for == {"ack": k8s, "openshift": {"namespace": "ours"}, "docker": {}}


def test_variables_of_harbors_process() -> None:
    settings = harbor_settings(
        docker_host="tcp://d:1",
        pod_name_prefix="p",
        k8s={"namespace": "ours", "kubeconfig": "", "pod_startup_timeout": 9},
    )
    assert runner_environment(settings) == {
        "DOCKER_HOST": "tcp://d:1",
        "HARBOR_POD_NAME_PREFIX": "p",
        "K8S_NAMESPACE": "ours",
        "K8S_POD_STARTUP_TIMEOUT": "9",
        "K8S_POD_ACTIVE_DEADLINE_SECONDS": "6000",
    }
