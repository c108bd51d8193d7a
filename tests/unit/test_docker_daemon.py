"""What the Docker of the sandboxes lacks is known before the start. SIMULATED: docker is a script here; with a real
daemon: ``tests/docker/test_reach.py``."""

from __future__ import annotations

import os
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from liverl.config import load_config
from liverl.model import Check
from liverl.plan import make_plan
from liverl.preflight import docker_daemon
from liverl.sandboxes.networks import LARGER, Network, Networks, Pool, counted

SETS = ("agent.kind=harbor", "harbor_agent.agent_name=claude-code", "harbor_agent.environment_type=docker")
OURS = Network("n1", "t-1__env_default", ("172.18.0.0/16",), "a" * 32)
DOCKER0 = Network("n0", "bridge", ("172.17.0.0/16",))


@pytest.mark.parametrize(
    ("pools", "networks", "taken", "free", "total"),
    [
        (None, [DOCKER0], [], 30, 31),  # what a daemon of 20.10 made until it refused
        (None, [DOCKER0, OURS], [], 29, 31),
        (None, [DOCKER0], ["192.168.0.0/16"], 14, 31),
        (None, [DOCKER0], ["0.0.0.0/0", "10.0.0.0/8"], 30, 31),
        ([("10.200.0.0/16", 24)], [DOCKER0], [], 256, 256),
        ([("10.200.0.0/16", 24)], [Network("n", "x", ("10.200.0.0/23", "fd00::/64"))], [], 254, 256),
        ([("fd00::/8", 64)], [], [], None, 0),
        ([("10.0.0.0/8", 32)], [], [], None, 0),  # too many to be used up
        ([("10.0.0.0/24", 16)], [], [], None, 0),
    ],
)
def test_networks_left(
    pools: Any, networks: list[Network], taken: list[str], free: int | None, total: int
) -> None:
    found = counted(pools and [Pool(*one) for one in pools], networks, [IPv4Network(one) for one in taken])
    assert (found.free, found.total) == (free, total)


def test_networks_of_ours_without_a_running_container_are_named() -> None:
    used = Network("n2", "t-2__env_default", (), "a" * 32, used=True)
    assert counted(None, [DOCKER0, OURS, used], []).idle == (OURS,)


@pytest.mark.parametrize(
    ("free", "trials", "idle", "status", "words"),
    [
        (30, 16, 0, "ok", "30 of 31 networks of the daemon are free, 16 are needed at a time"),
        (16, 16, 1, "ok", "16 of 31"),
        (15, 16, 0, "warn", "16 trials at a time need one each"),
        (15, 16, 1, "warn", "docker network rm 't-0 env'"),
        (
            0,
            1,
            6,
            "fail",
            "t-3 (and 2 more), or liverl-tui clean --sandboxes; or give the daemon more ranges",
        ),
        (None, 1, 0, "skipped", "nothing is known"),
    ],
)
def test_networks_against_the_trials_at_a_time(
    free: int | None, trials: int, idle: int, status: str, words: str
) -> None:
    ours = tuple(Network(f"n{i}", "t-0 env" if idle == 1 else f"t-{i}", (), "a" * 32) for i in range(idle))
    check = docker_daemon.networks_check(Networks(free, 31, ours), trials)
    assert (
        check.status == status and words in check.text + check.fix and "prune" not in check.text + check.fix
    )
    if status in ("warn", "fail"):
        assert LARGER in check.fix
        assert check.patch == ({"harbor_runtime.num_workers": str(free)} if free else {})


@pytest.mark.parametrize(
    ("sets", "trials"),
    [
        (("harbor_runtime.num_workers=16",), 16),
        (("harbor_runtime.num_workers=100",), 32),
        (("harbor_runtime.num_workers=100", "training.n_resp_per_prompt=2"), 16),
    ],
)
def test_trials_at_a_time(sets: tuple[str, ...], trials: int) -> None:
    assert docker_daemon.wanted(load_config(profile="cpu-verl", sets=sets, env={}).config) == trials


@pytest.mark.parametrize(
    ("said", "why", "status", "words"),
    [
        ("2.26.1-4\n", "", "ok", "version 2.26"),
        ("v5.0.2", "", "ok", "version 5.0"),
        ("1.29.2", "", "fail", "it is 1.29, and Harbor needs version 2 or newer"),
        ("dev", "", "skipped", "its version is not known: 'dev'"),
        ("", "docker: unknown command: docker compose", "fail", "does not work: docker: unknown command"),
    ],
)
def test_compose(said: str, why: str, status: str, words: str) -> None:
    check = docker_daemon.compose_check(said, why)
    assert check.status == status and words in check.text
    assert ("docker-compose-plugin" in check.fix) is (status == "fail")


def asked(folder: Path, script: str, env: dict[str, str], *sets: str) -> dict[str, Check]:
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    loaded = load_config(profile="cpu-verl", sets=(*SETS, *sets), env={})
    variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **env}
    found = docker_daemon.checks(make_plan(loaded, Path("/runs/p/n")), loaded.config, variables)
    return {check.name: check for check in found}


ANSWERS = """
case "$1 $2" in
"compose version") echo 2.1.0;;
"version --format") echo 20.10;;
"network ls") echo id;;
"network inspect") echo '{"id":"id","name":"bridge","ipam":[{"Subnet":"172.17.0.0/16"}],"containers":{}}';;
*) echo '{"version":"20.10","root":"ROOT","pools":[{"Base":"10.9.0.0/16","Size":24}]}';;
esac
"""


def test_a_daemon_that_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(docker_daemon, "_LITTLE_GIB", 0)
    found = asked(tmp_path, ANSWERS.replace("ROOT", str(tmp_path)), {})
    assert {name: check.status for name, check in found.items()} == {
        "docker compose": "ok",
        "docker networks": "ok",
        "docker disk": "ok",
    }
    assert found["docker networks"].values == {"networks_free": 256.0, "networks_total": 256.0}
    assert str(tmp_path) in found["docker disk"].text


@pytest.mark.parametrize(("least", "little", "status"), [(0, 1 << 30, "warn"), (1 << 30, 1 << 30, "fail")])
def test_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, little: int, status: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(docker_daemon, "_LEAST_GIB", least)
    monkeypatch.setattr(docker_daemon, "_LITTLE_GIB", little)
    check = asked(tmp_path, ANSWERS.replace("ROOT", str(tmp_path)), {})["docker disk"]
    assert (
        check.status == status
        and "GiB free: builds of images fail" in check.text
        and "prune" not in check.fix
    )


def test_the_disk_of_another_host_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    check = asked(tmp_path, ANSWERS, {}, "harbor_agent.docker_host=tcp://far:2376")["docker disk"]
    assert check.status == "skipped" and "the daemon runs on far: look there how much ROOT" in check.text


def test_a_program_that_tells_nothing_has_asked_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``docker info`` exits with 0 where its daemon refused it."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    empty = ANSWERS.replace('"version":"20.10","root":"ROOT"', '"version":"","root":""')
    refused = "echo Client sent an HTTP request to an HTTPS server. >&2"
    found = asked(tmp_path, f"{empty}\n{refused}", {}, "harbor_agent.docker_host=tcp://127.0.0.1:2376")
    for name in ("docker networks", "docker disk"):
        assert found[name].status == "skipped" and "wants TLS" in found[name].text


def test_a_daemon_that_does_not_answer_is_left_to_the_check_of_the_environment(tmp_path: Path) -> None:
    assert asked(tmp_path, "exit 1", {}) == {}


@pytest.mark.parametrize(
    ("env", "sets", "words"),
    [
        (
            {"DOCKER_CONTEXT": "far"},
            (),
            "DOCKER_CONTEXT is set here, and trials do not get it: their daemon is",
        ),
        ({"DOCKER_CONTEXT": "far"}, ("harbor_agent.docker_host=tcp://d:1",), "their daemon is tcp://d:1"),
        ({"DOCKER_CONTEXT": "far"}, ('supervise.pass_env=["DOCKER_CONTEXT"]',), ""),
        ({"DOCKER_HOST": "tcp://e:1"}, ("harbor_agent.docker_host=tcp://d:1",), ""),
    ],
)
def test_a_context_of_the_shell_that_trials_do_not_get(
    tmp_path: Path, env: dict[str, str], sets: tuple[str, ...], words: str
) -> None:
    found = asked(tmp_path, "exit 1", env, *sets)
    assert set(found) == ({"docker daemon"} if words else set())
    if words:
        assert words in found["docker daemon"].text and "supervise.pass_env" in found["docker daemon"].fix
