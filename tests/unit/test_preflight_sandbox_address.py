"""Whether sandboxes can reach the sessions is known before the start. SIMULATED: docker is a script here; with a real
daemon: ``tests/docker``."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from liverl.config import load_config
from liverl.model import Check
from liverl.plan import make_plan
from liverl.plan.spec import BRIDGE
from liverl.preflight import sandbox_address
from liverl.sandboxes import bridge

AGENT = ("agent.kind=harbor", "harbor_agent.agent_name=claude-code")
AUTO = (*AGENT, "harbor_agent.environment_type=docker")  # proxy.host is auto where nothing sets it
KIND = (*AGENT, "proxy.host=127.0.0.1")
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
        ("echo 192.0.2.7", "192.0.2.7, is no address of this machine: its interface is gone, which", {}),
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


@pytest.mark.parametrize(
    ("sets", "status", "words", "patch"),
    [
        (AUTO, "ok", "sandboxes get 192.0.2.50, this machine's address towards 192.0.2.9, where Docker runs", {}),
        (DOCKER, "fail", "set proxy.host to 192.0.2.50, this machine's address", {"proxy.host": "192.0.2.50"}),
        ((*DOCKER, "proxy.host=172.17.0.1"), "fail", "172.17.0.1 (proxy.host): it is the address of a bridge",
         {"proxy.host": "192.0.2.50"}),
        ((*DOCKER, "proxy.host=0.0.0.0", "proxy.advertise=172.17.0.1"), "fail", "172.17.0.1 (proxy.advertise)",
         {"proxy.host": "192.0.2.50", "proxy.advertise": ""}),
        ((*DOCKER, "proxy.host=172.17.0.1", "harbor_agent.agent_name=terminus-2"), "warn", "and Docker runs on",
         {"proxy.host": "192.0.2.50"}),
        ((*DOCKER, "proxy.host=192.0.2.50"), "ok", "sandboxes get 192.0.2.50", {}),
    ],
)  # fmt: skip
def test_the_daemon_runs_on_another_host(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, sets: tuple[str, ...], status: str,
    words: str, patch: dict[str, str],
) -> None:  # fmt: skip
    """SIMULATED: no address but loopback is every machine's; with two hosts: ``tests/docker/test_remote_tls.py``."""
    docker(tmp_path, "echo 172.17.0.1")
    monkeypatch.setattr(bridge, "address_towards", {"192.0.2.9": "192.0.2.50"}.__getitem__)
    monkeypatch.setattr(
        sandbox_address, "is_of_a_bridge", {"172.17.0.1": True, "192.0.2.50": False}.__getitem__
    )
    (check,) = checks(env, *sets, "harbor_agent.docker_host=tcp://192.0.2.9:2376")
    assert (check.status, check.patch) == (status, patch) and words in check.text, check


def test_the_daemon_is_the_trials_own(tmp_path: Path, env: dict[str, str]) -> None:
    own = "tcp://127.0.0.1:1"
    docker(tmp_path, f'[ "$DOCKER_HOST$DOCKER_CONTEXT" = {own} ] && echo {HERE}')
    (check,) = checks({**env, "DOCKER_CONTEXT": "mine"}, *DOCKER, f"harbor_agent.docker_host={own}")
    assert check.patch == {"proxy.host": HERE}


@pytest.mark.parametrize(
    ("sets", "script", "status", "words"),
    [
        ((), f"echo {HERE}", "ok", f"sandboxes get {HERE}, the gateway of Docker's bridge (proxy.host is auto)"),
        (("proxy.host=auto",), f"echo {HERE}", "ok", f"sandboxes get {HERE}, the gateway"),
        (("proxy.advertise=me.lan",), f"echo {HERE}", "ok", f"me.lan (proxy.advertise); the sessions listen at {HERE}"),
        ((), "echo 192.0.2.7", "fail", "192.0.2.7, is no address of this machine: its interface is gone, which"),
        ((), "echo no daemon >&2; exit 1", "fail", "is not known: no daemon; set proxy.host to"),
        (("harbor_agent.agent_name=terminus-2",), "echo 192.0.2.7", "warn", "terminus-2 itself runs beside Harbor"),
        (("harbor_agent.environment_type=gke",), f"echo {HERE}", "fail", "sandboxes cannot reach 127.0.0.1"),
    ],
)  # fmt: skip
def test_auto_says_which_gateway(
    tmp_path: Path, env: dict[str, str], sets: tuple[str, ...], script: str, status: str, words: str
) -> None:
    docker(tmp_path, script)
    (check,) = checks(env, *AUTO, *sets)
    assert check.status == status and words in check.text and not check.patch, check


@pytest.mark.parametrize(
    ("sets", "hosts", "agents"),
    [
        (AUTO, ["127.0.0.1", BRIDGE], ""),
        ((*AUTO, "proxy.advertise=me.lan"), ["127.0.0.1", BRIDGE], "me.lan"),
        ((*AUTO, "harbor_agent.environment_type=local"), ["127.0.0.1"], "127.0.0.1"),
        ((*AUTO, "harbor_agent.environment_type=gke"), ["127.0.0.1"], "127.0.0.1"),
        (DOCKER, ["127.0.0.1"], "127.0.0.1"),
        ((*AUTO, "proxy.host=172.17.0.1"), ["172.17.0.1"], "172.17.0.1"),
        ((), ["127.0.0.1"], "127.0.0.1"),
    ],
)
def test_the_ports_of_the_sessions(sets: tuple[str, ...], hosts: list[str], agents: str) -> None:
    loaded = load_config(profile="cpu-verl", sets=(*sets, "session_proxy.port=4711"), env={})
    plan = make_plan(loaded, Path("/runs/p/n"))
    (sessions,) = [service for service in plan.services if service.name == "sessions"]
    assert [(port.host, port.number, port.held) for port in sessions.ports] == [
        (h, 4711, True) for h in hosts
    ]
    assert msgspec.json.decode(sessions.files[0].text)["host"] == agents
    (proxy,) = [service for service in plan.services if service.name == "proxy"]
    assert {port.host for port in proxy.ports} == {hosts[0]}, "LiteLLM is for this machine"
