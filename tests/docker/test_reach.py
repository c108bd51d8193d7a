"""Containers reach the sessions at the address that ``proxy.host: auto`` chooses, and what the daemon can still make is
known. With a real daemon; ``LIVERL_TEST_DOCKERD=1`` starts a second one for 40 sandboxes, which needs root."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from kit.docker_kit import docker
from kit.second_daemon import second_daemon

from liverl.agents.harbor.owned import known_identity, read_ledgers
from liverl.config import load_config
from liverl.plan import make_plan
from liverl.preflight import docker_daemon, sandbox_address
from liverl.sandboxes.bridge import address
from liverl.sandboxes.docker import Docker
from liverl.sandboxes.networks import LARGER, Networks
from liverl.sandboxes.probe import probe

SETS = ("agent.kind=harbor", "harbor_agent.agent_name=claude-code", "harbor_agent.environment_type=docker")


def of_run(run: Path) -> list[str]:
    label = ["--filter", f"label=liverl.run-id={known_identity(run)}"]
    return docker("ps", "-aq", *label).split() + docker("network", "ls", "-q", *label).split()


@pytest.mark.parametrize("listens", [True, False])
def test_a_container_of_the_image_says_whether_it_reaches_the_gateway(
    tmp_path: Path, image: str, listens: bool
) -> None:
    gateway, why = address(os.environ)
    assert gateway, why
    with socket.create_server((gateway, 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        began = time.monotonic()
        found = probe(tmp_path, "attempt_001", os.environ, image, gateway, port, began + 60)
        print(f"\nthe probe took {time.monotonic() - began:.1f} s")
    assert found.reached is listens and (f"{gateway}:{port}" in found.text) is not listens
    assert of_run(tmp_path) == [] and [e.event for e in read_ledgers(tmp_path)] == ["begun", "over"]


def test_an_address_that_drops_packets_is_known_within_seconds(tmp_path: Path, image: str) -> None:
    began = time.monotonic()
    found = probe(
        tmp_path, "attempt_001", os.environ, image, "192.0.2.1", 9, began + 20
    )  # TEST-NET-1: nobody
    assert found.reached is not True and of_run(tmp_path) == []


def test_an_image_that_the_daemon_has_not_is_not_pulled(tmp_path: Path) -> None:
    found = probe(
        tmp_path, "attempt_001", os.environ, "no.such/image:1", "192.0.2.1", 9, time.monotonic() + 20
    )
    assert found.reached is None and "no.such/image" in found.text and of_run(tmp_path) == []


def test_preflight_of_this_daemon() -> None:
    given = {name: value for name, value in os.environ.items() if name == "DOCKER_HOST"}
    loaded = load_config(profile="cpu-verl", sets=SETS, env=given)
    plan = make_plan(loaded, Path("/runs/p/n"))
    (told,) = sandbox_address.checks(plan, loaded.config, dict(os.environ))
    assert told.status == "ok" and address(os.environ)[0] in told.text
    found = {check.name: check for check in docker_daemon.checks(plan, loaded.config, dict(os.environ))}
    assert found["docker compose"].status == "ok" and "docker networks" in found and "docker disk" in found
    for check in found.values():
        print(f"\n{check.status}: {check.name}: {check.text}")


def networks_of(env: dict[str, str]) -> Networks:
    variables = {name: value for name, value in env.items() if name.startswith("DOCKER_")}
    return Docker(variables, time.monotonic() + 60).networks(local=True)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["", LARGER])
def test_forty_networks_with_and_without_a_larger_pool(pool: str) -> None:
    """As many as are said to be free can be made, and no more."""
    options = ("--default-address-pool", pool) if pool else ()
    with tempfile.TemporaryDirectory() as temp, second_daemon(Path(temp), *options) as env:
        before, made = networks_of(env), []
        assert before.free is not None
        check = docker_daemon.networks_check(before, 40)
        try:
            for number in range(40):
                words = ["docker", "network", "create", "--label", f"liverl.run-id={'a' * 32}", f"lv{number}"]
                done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
                if done.returncode:
                    break
                made.append(f"lv{number}")
            print(
                f"\npool {pool or 'of Docker itself'}: {before.free} free, {len(made)} made; {check.status}"
            )
            assert len(made) == min(40, before.free) and check.status == ("ok" if pool else "warn")
            after = networks_of(env)
            assert after.free == before.free - len(made) and len(after.idle) == len(made)
            told = docker_daemon.networks_check(after, 40)
            if not pool:
                assert "pool" in done.stderr and told.status == "fail" and "docker network rm lv" in told.fix
        finally:
            subprocess.run(["docker", "network", "rm", *made], env=env, capture_output=True, check=False)
