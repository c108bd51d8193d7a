"""Whether sandboxes can reach the sessions is known before the start. SIMULATED: docker is a script here; with a real
daemon: ``tests/docker``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.model import Check
from liverl.plan import make_plan
from liverl.preflight import sandbox_address

KIND = ("agent.kind=harbor", "harbor_agent.agent_name=claude-code")
DOCKER = (*KIND, "harbor_agent.environment_type=docker")
HERE = "127.0.0.1"  # the only address that every machine has stands for the bridge's gateway


def checks(env: dict[str, str], *sets: str) -> list[Check]:
    loaded = load_config(profile="cpu-verl", sets=sets, env={})
    return list(sandbox_address.checks(make_plan(loaded, Path("/runs/p/n")), loaded.config, env))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def docker(folder: Path, text: str) -> None:
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("sets", "status", "words"),
    [
        (DOCKER, "fail", "sandboxes cannot reach 127.0.0.1: inside a container"),
        ((*KIND,), "fail", "proxy.host is 127.0.0.1"),  # Harbor's default is Docker
        ((*DOCKER, "proxy.host=localhost"), "fail", "proxy.host is localhost"),
        ((*DOCKER, "proxy.host=127.1.2.3"), "fail", "proxy.host is 127.1.2.3"),
        (
            (*DOCKER, "proxy.host=0.0.0.0", "proxy.advertise=127.0.0.1"),
            "fail",
            "proxy.advertise is 127.0.0.1",
        ),
        ((*DOCKER, "proxy.host=172.17.0.1"), "ok", "sandboxes get 172.17.0.1"),
        (
            (*DOCKER, "proxy.host=0.0.0.0", "proxy.advertise=host.docker.internal"),
            "ok",
            "host.docker.internal",
        ),
        ((*DOCKER, "harbor_agent.agent_name=terminus-2"), "warn", "terminus-2 itself runs beside Harbor"),
        ((*KIND, "harbor_agent.environment_import_path=mine:Box"), "warn", "unless the class mine:Box"),
        (
            (*KIND, "harbor_agent.environment_type=gke"),
            "fail",
            "an address of this machine that the sandboxes reach",
        ),
    ],
)
def test_a_loopback_address_is_refused(
    tmp_path: Path, env: dict[str, str], sets: tuple[str, ...], status: str, words: str
) -> None:
    docker(tmp_path, f"echo {HERE}")
    (check,) = checks(env, *sets)
    assert check.status == status and words in check.text, check


def test_local_sandboxes_share_this_machines_network(env: dict[str, str]) -> None:
    assert checks(env, *KIND, "harbor_agent.environment_type=local") == []


@pytest.mark.parametrize(
    ("script", "words", "patch"),
    [
        (
            f"echo {HERE}",
            f"set proxy.host to {HERE}, the gateway of this daemon's bridge",
            {"proxy.host": HERE},
        ),
        ("echo 192.0.2.7", "192.0.2.7, is no address of this machine: the daemon runs elsewhere", {}),
        ("echo fd00::1 fd00::/64; echo", "its network bridge has no IPv4 gateway", {}),
        ("echo 127.0.0.0/8", f"set proxy.host to {HERE}", {"proxy.host": HERE}),  # as a fresh daemon tells it
        ("echo no daemon at all >&2; exit 1", "is not known: no daemon at all", {}),
    ],
)
def test_the_gateway_of_the_bridge_is_proposed(
    tmp_path: Path, env: dict[str, str], script: str, words: str, patch: dict[str, str]
) -> None:
    docker(tmp_path, script)
    (check,) = checks(env, *DOCKER)
    assert check.status == "fail" and words in check.text and check.patch == patch
    assert patch or "set proxy.host to 0.0.0.0" in check.text


def test_the_daemon_is_the_trials_own(tmp_path: Path, env: dict[str, str]) -> None:
    docker(tmp_path, f'[ "$DOCKER_HOST$DOCKER_CONTEXT" = tcp://h:1 ] && echo {HERE}')
    (check,) = checks({**env, "DOCKER_CONTEXT": "mine"}, *DOCKER, "harbor_agent.docker_host=tcp://h:1")
    assert check.patch == {"proxy.host": HERE}
