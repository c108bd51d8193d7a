"""Rules between configuration keys about tasks of Harbor's: each is told with its key before anything is started."""

from __future__ import annotations

import pytest

from liverl.config import load_config
from liverl.config.errors import ConfigError

GOOD = ("agent.kind=harbor", "harbor_agent.agent_name=terminus-2")


def told(*sets: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(profile="cpu-verl", sets=sets, env={})
    (problem,) = refused.value.problems
    return problem.sentence


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (
            ("proxy.trials_through=litellm",),
            "proxy.trials_through: an agent of Harbor's calls the model itself, and its tokens are recorded by "
            "sessions only, found litellm, expected auto or sessions",
        ),
        (
            ("verl.agent_loop=liverl_proxy",),
            "proxy.trials_through: an agent of Harbor's calls the model itself, and its tokens are recorded by "
            "sessions only, found litellm, expected auto or sessions",
        ),
        (
            ("harbor_agent.agent_name=null",),
            "harbor_agent.agent_name: without it and harbor_agent.agent_import_path Harbor would run the reference "
            "solution, found neither, expected one of them",
        ),
        (
            ("harbor_agent.agent_name=oracle",),
            "harbor_agent.agent_name: this agent asks no model: there would be nothing to train, found oracle, "
            "expected another agent",
        ),
        (
            ("harbor_agent.agent_name=codex",),
            "harbor_agent.agent_name: this agent speaks only /v1/responses, and sessions serve /v1/chat/completions "
            "and /v1/messages, found codex, expected another agent",
        ),
        (
            ("harbor_agent.agent_import_path=mine.Agent",),
            "harbor_agent.agent_import_path: not the name of a class, found mine.Agent, expected module:Class",
        ),
        (
            ("harbor_agent.environment_type=local", "harbor_agent.environment_import_path=a:B"),
            "harbor_agent.environment_type: set together with harbor_agent.environment_import_path a:B, found local, "
            "expected one of them",
        ),
        (
            ("harbor_agent.environment_type=local", "harbor_agent.runtime_image=agents:1"),
            "harbor_agent.runtime_image: environment_type local cannot mount images, found agents:1, expected null",
        ),
        (
            ("harbor_agent.runtime_image=agents:1", "harbor_agent.runtime_mount_path=null"),
            "harbor_agent.runtime_mount_path: harbor_agent.runtime_image needs it, found nothing, expected an "
            "absolute path",
        ),
        (
            ("harbor_agent.host_path_mounts=[/data, data:/x]",),
            "harbor_agent.host_path_mounts: entry 1 is no mount, found 'data:/x', expected PATH, SOURCE:TARGET or "
            "SOURCE:TARGET:ro with absolute paths",
        ),
        (
            ("harbor_agent.host_path_mounts={a: b}",),
            "harbor_agent.host_path_mounts: is no list, found {'a': 'b'}, expected a list of mounts",
        ),
    ],
)
def test_what_harbor_cannot_run_is_refused_with_its_key(sets: tuple[str, ...], sentence: str) -> None:
    assert told(*GOOD, *sets) == sentence
    # Without rows for Harbor nothing of it is judged.
    if not sets[0].startswith("harbor_agent.host_path_mounts={"):
        load_config(profile="cpu-verl", sets=sets, env={})


def test_rows_that_run_past_harbor_need_no_sessions() -> None:
    """``environments.harbor`` alone says that rows may be Harbor's; the kind ``chat`` says that none is by default."""
    sets = ("environments.harbor.venv_path=/v", "proxy.trials_through=litellm")
    assert "recorded by sessions only" in told(*sets, GOOD[1])
    load_config(profile="cpu-verl", sets=(*sets, GOOD[1], "agent.kind=chat"), env={})


def test_harbors_environment_needs_no_requirements() -> None:
    loaded = load_config(profile="cpu-verl", sets=(*GOOD, "environments.harbor.venv_path=null"), env={})
    assert loaded.config.environments["harbor"].requirements == ()
    assert "requires venv_path or requirements" in told("environments.other.venv_path=null")
