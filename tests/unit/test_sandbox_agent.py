"""What an agent needs in its sandbox is said before the start."""

from __future__ import annotations

import pytest

from liverl.config import load_config
from liverl.preflight import sandbox_agent

KIND = ("agent.kind=harbor", "harbor_agent.environment_type=docker")


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("harbor_agent.agent_name=claude-code",), "claude on PATH"),
        (("harbor_agent.agent_name=mini-swe-agent",), "examples/agent_in_docker"),
        (("harbor_agent.agent_name=openhands-sdk",), "/opt/openhands-sdk-venv"),
        (("harbor_agent.agent_name=terminus-2",), ""),
        (("harbor_agent.agent_name=claude-code", "harbor_agent.environment_type=local"), ""),
        (("harbor_agent.agent_name=claude-code", "agent.kind=auto"), ""),
        (("harbor_agent.agent_name=null", "harbor_agent.agent_import_path=in_image:InImage"), ""),
    ],
)
def test_what_the_image_needs(sets: tuple[str, ...], words: str) -> None:
    found = list(sandbox_agent.checks(load_config(profile="cpu-verl", sets=(*KIND, *sets), env={}).config))
    assert len(found) == bool(words)
    for check in found:
        assert check.status == "skipped" and words in check.text and "each trial installs" in check.text
