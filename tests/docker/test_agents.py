"""Agents that work inside their container, through real sessions at the gateway of Docker's bridge, on a scripted
replica. SIMULATED is the model only: Harbor, the agents and the containers are real.

``LIVERL_TEST_HARBOR_PYTHON``: the interpreter of an environment with Harbor. At the first use npm installs Claude Code,
and pip mini-swe-agent and OpenHands' SDK.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kit.docker_kit import docker, make_image, of_project
from kit.harbor_settings import harbor_settings
from kit.harbor_tasks import write_task
from kit.own_runs import Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text
from kit.trained import rows_of

from liverl.config import load_config
from liverl.environments import default_cache_dir
from liverl.sandboxes.bridge import address
from liverl.sandboxes.sweep import sweep

HARBOR = os.environ.get("LIVERL_TEST_HARBOR_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(HARBOR is None, reason="LIVERL_TEST_HARBOR_PYTHON names no interpreter with Harbor"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_in_docker"
PROGRAMS = (
    "cp",
    "mv",
    "grep",
    "sed",
    "head",
    "tail",
    "wc",
    "mktemp",
    "dirname",
    "basename",
    "date",
    "sort",
    "touch",
)


@pytest.fixture(scope="module")
def claude_image() -> Iterator[str]:
    """An image with Claude Code on PATH: then Harbor installs nothing, and the sandbox needs no internet."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: it installs Claude Code for this test")
    folder = default_cache_dir() / "npm" / "claude-code"
    found = list(folder.glob("node_modules/@anthropic-ai/claude-code-*/claude"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--no-audit", "--no-fund", "@anthropic-ai/claude-code"]
        subprocess.run(words, cwd=folder, check=True)
        found = list(folder.glob("node_modules/@anthropic-ai/claude-code-*/claude"))
    if not found:
        pytest.skip("npm installed no Claude Code for this kind of machine")
    tag = f"liverl-test-{uuid.uuid4().hex[:8]}:claude"
    make_image(tag, (*PROGRAMS, str(found[0])))
    yield tag
    docker("image", "rm", "-f", tag, check=False)


def script(prompt: str, _turn: int) -> str:
    """What the model writes, by what the conversation holds."""
    mini = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in prompt
    openhands = "task_tracker" in prompt
    if prompt.count("hello is written") > prompt.count(
        "echo hello is written"
    ):  # the command's output is there
        if openhands:
            return "The file is written. " + call_text("finish", message="hello.txt is there")
        submit = call_text("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
        return f"I submit. {submit}" if mini else "The file is written."
    if mini:
        return "I write it. " + call_text(
            "bash", command="echo hello > /app/hello.txt; echo hello is written"
        )
    if openhands:
        return "I write it. " + call_text(
            "terminal", command="echo hello > /app/hello.txt; echo hello is written", summary="Write the file"
        )
    return "I write it. " + call_text(
        "Bash", command="echo hello > /app/hello.txt && echo hello is written", description="Write the file"
    )


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[SessionHost]:
    gateway, why = address(os.environ)
    assert gateway, why
    replica = TokenReplica(script, context=200_000)
    sessions = SessionHost(tmp_path, body_limit=32 << 20)
    sessions.urls, sessions.listens = [await replica.start()], gateway
    await sessions.start()
    yield sessions
    await sessions.stop()
    await replica.stop()


async def solved(
    folder: Path, host: SessionHost, image: str, more: str = "", compose: str = "", **keys: Any
) -> tuple[Path, dict[str, Any]]:
    """One trial of a task in a container; its directory, and Harbor's result. ``more``: of its Dockerfile; ``compose``:
    its own Compose file."""
    task = Path(write_task(folder / "tasks", "hello", "Write the word hello into /app/hello.txt."))
    (task / "environment" / "Dockerfile").write_text(f"FROM {image}\n{more}\nWORKDIR /app\n")
    if compose:
        (task / "environment" / "docker-compose.yaml").write_text(compose)
    settings = harbor_settings(
        python=str(HARBOR), tasks=str(folder / "tasks"), environment_type="docker",
        environment_override_cpus=2, environment_override_memory_mb=4096, **keys,
    )  # fmt: skip
    trials = Trials(folder, host, {"harbor": settings})
    row = {"extra_info": {"task_path": str(task)}}
    outcome = await trials.run(row=row, trial_timeout=240.0, prompt_length=150_000, response_length=20_000)
    (trial,) = (folder / "trials" / "step_0003").iterdir()
    assert outcome.exception is None, (
        outcome,
        (trial / "agent").exists() and list((trial / "agent").rglob("*")),
    )
    return trial, json.loads((trial / "result.json").read_text())


def is_clean_row(trial: Path, result: dict[str, Any]) -> None:
    assert result["exception_info"] is None and result["verifier_result"]["rewards"] == {"reward": 1.0}
    facts = json.loads((trial / "liverl.json").read_text())
    (row,) = [row for row in rows_of(trial) if row.get("kind", "main") == "main"]
    assert sum(row["traj_response_mask"]) > 0 and len(rows_of(trial)) == 1, facts
    assert facts["result"]["divergences"] == []


async def test_claude_code_solves_a_task_in_a_container(
    tmp_path: Path, host: SessionHost, claude_image: str
) -> None:
    try:
        trial, result = await solved(tmp_path, host, claude_image, agent_name="claude-code")
        is_clean_row(trial, result)
        assert of_project(trial.name) == {}
    finally:
        await asyncio.to_thread(sweep, tmp_path, 30.0)


@pytest.fixture(scope="module")
def mini_image() -> Iterator[str]:
    """An image with mini-swe-agent, in an environment of this machine at the same place."""
    home = default_cache_dir() / "mini-swe-agent"
    program = home / "bin" / "mini-swe-agent"
    if not program.exists():
        subprocess.run([str(HARBOR), "-m", "venv", str(home)], check=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", "mini-swe-agent==2.4.6"], check=True)
    words = [home / "bin" / "python", "-c", "import sys; print(sys.base_prefix)"]
    base = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    tag = f"liverl-test-{uuid.uuid4().hex[:8]}:mini"
    make_image(tag, (*PROGRAMS, "ln"), (home, Path(base)))
    yield tag
    docker("image", "rm", "-f", tag, check=False)


async def test_mini_swe_agent_solves_a_task_in_a_container(
    tmp_path: Path, host: SessionHost, mini_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the class of examples/agent_in_docker."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE))
    program = default_cache_dir() / "mini-swe-agent" / "bin" / "mini-swe-agent"
    try:
        trial, result = await solved(
            tmp_path, host, mini_image, f"RUN ln -s {program} /bin/mini-swe-agent",
            agent_name=None, agent_import_path="in_image:InImage",
        )  # fmt: skip
        is_clean_row(trial, result)
        assert of_project(trial.name) == {}
    finally:
        await asyncio.to_thread(sweep, tmp_path, 30.0)


OPENHANDS = "1.58.2"
MOUNTED = EXAMPLE.parent / "openhands_sdk" / "config.yaml"


class OpenHands(NamedTuple):
    """``image``: with what the SDK's modules need of the system, and nothing of the SDK; ``mounts``: its environment,
    and the Python of that, as ``host_path_mounts`` takes them."""

    image: str
    mounts: list[str]


@pytest.fixture(scope="module")
def openhands() -> Iterator[OpenHands]:
    home = default_cache_dir() / f"openhands-sdk-{OPENHANDS}"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        subprocess.run([str(HARBOR), "-m", "venv", "--clear", str(home)], check=True)
        packages = [f"openhands-sdk=={OPENHANDS}", f"openhands-tools=={OPENHANDS}"]
        subprocess.run([home / "bin" / "pip", "install", "-q", *packages], check=True)
        (home / "done").touch()
    words = [python, "-c", "import sys; print(sys.base_prefix)"]
    base = Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())
    tag = f"liverl-test-{uuid.uuid4().hex[:8]}:openhands"
    programs = (*PROGRAMS, "curl", "stdbuf", "whoami", "uname", "hostname", "tr")
    make_image(tag, programs, [Path("/usr/libexec/coreutils")], (home, base))  # where stdbuf has its library
    # The example's mounts, of where the two are on this machine; Python is in the sandbox where it is here.
    first, second = load_config(MOUNTED, env={}).config.harbor_agent.host_path_mounts
    assert second.split(":")[0] == second.split(":")[1]
    yield OpenHands(tag, [f"{home}:{first.partition(':')[2]}", f"{base}:{base}:ro"])
    docker("image", "rm", "-f", tag, check=False)


async def test_openhands_sdk_solves_a_task_in_a_container_that_it_is_mounted_into(
    tmp_path: Path, host: SessionHost, openhands: OpenHands
) -> None:
    """With the configuration of examples/openhands_sdk. The sandbox resolves no name: nothing is installed."""
    compose = "services: {main: {dns: [127.0.0.1]}}\n"
    agent = load_config(MOUNTED, env={}).config.harbor_agent
    try:
        trial, result = await solved(
            tmp_path, host, openhands.image, "ENV LITELLM_LOCAL_MODEL_COST_MAP=True", compose,
            agent_name=agent.agent_name, max_iterations=agent.max_iterations, host_path_mounts=openhands.mounts,
        )  # fmt: skip
        is_clean_row(trial, result)
        assert of_project(trial.name) == {}
    finally:
        await asyncio.to_thread(sweep, tmp_path, 30.0)
