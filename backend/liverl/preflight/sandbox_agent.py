"""What an agent of Harbor's that works inside the sandbox needs there. Said before the start, not looked at: images are
built by the trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.model import Check

NAME = "agent in the sandbox"


class Needs(NamedTuple):
    """``ready``: what an image has that needs no installation, "" if Harbor always installs; ``installs``: what each
    trial does and needs otherwise."""

    ready: str
    installs: str


# Read in the classes of Harbor 0.25 (``harbor/agents/installed``), ``install`` of each.
NEEDS = {
    "claude-code": Needs(
        "claude on PATH (npm install -g @anthropic-ai/claude-code in the Dockerfile)",
        "installs curl, nodejs, npm and procps by the package manager, and Claude Code from downloads.claude.ai",
    ),
    "mini-swe-agent": Needs(
        "",
        "installs curl, git and a compiler by the package manager, uv from astral.sh, and mini-swe-agent from PyPI "
        "(examples/agent_in_docker has a class that takes the one in the image)",
    ),
    "openhands-sdk": Needs(
        "curl, stdbuf and an environment with openhands-sdk in /opt/openhands-sdk-venv, which "
        "examples/openhands_sdk mounts",
        "installs uv from astral.sh, a Python, and openhands-sdk from PyPI",
    ),
}


def checks(config: RunConfig) -> Iterator[Check]:
    """Nothing for agents of which nothing is known here, and for sandboxes that share this machine's files."""
    agent = config.harbor_agent
    needs = NEEDS.get(agent.agent_name or "")
    if (
        needs is None
        or agent.agent_import_path
        or agent.environment_type == "local"
        or not when.harbor(config)
    ):
        return
    without = f"each trial {needs.installs}: the sandbox needs the internet, and that time"
    if needs.ready:
        text = (
            f"not looked at: whether the tasks' images, or mounts, have {needs.ready}; without it {without}"
        )
    else:
        text = f"not looked at: {agent.agent_name} is not taken from the image; {without}"
    yield Check(NAME, "skipped", text)
