"""Whose a sandbox in Docker is: the run's id, the labels in Compose's overlay, and the ledger."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from kit.harbor_settings import harbor_settings

from liverl.agents.harbor import owned
from liverl.agents.harbor.config import HarborTrial, trial_config, uses_compose
from liverl.agents.harbor.owned import Ledger, identity, known_identity, overlay, project_of, read_ledgers

LABELS = {"liverl.run-id": "a1", "liverl.host": "ho$t"}
OUTSIDE = {"external": True}
TOLD = {"liverl.run-id": "a1", "liverl.host": "ho$$t"}  # $ begins a variable in Compose's files


def task(folder: Path, compose: str = "", toml: str = 'version = "1"\n') -> Path:
    (folder / "environment").mkdir(parents=True)
    (folder / "task.toml").write_text(toml)
    if compose:
        (folder / "environment" / "docker-compose.yaml").write_text(compose)
    return folder


def test_a_run_has_one_id_and_a_copy_another(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert known_identity(run) == ""
    first = identity(run)
    assert len(first) == 32 and identity(run) == known_identity(run) == first
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    assert known_identity(copy) == ""
    assert identity(copy) == known_identity(copy) != first and identity(run) == first


def test_a_renamed_run_keeps_its_id(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    first = identity(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "other")
    assert known_identity(tmp_path / "other") == identity(tmp_path / "other") == first


@pytest.mark.parametrize(
    ("trial", "project"),
    [
        ("hello-0a1b2c3d", "hello-0a1b2c3d__env"),
        ("Hello.World-0A", "hello-world-0a__env"),
        ("_x", "0_x__env"),
        (".x", "0-x__env"),
    ],
)
def test_the_project_is_named_as_harbor_names_it(trial: str, project: str) -> None:
    assert project_of(trial) == project


@pytest.mark.parametrize(
    ("compose", "networks", "services", "volumes"),
    [
        ({}, ["default"], ["main"], []),
        (
            {"services": {"main": {}, "db": {}}, "networks": {"inner": None}, "volumes": {"data": {}}},
            ["default", "inner"],
            ["main", "db"],
            ["data"],
        ),
        # Compose refuses labels of what it does not make
        (
            {"networks": dict.fromkeys(("default", "x"), OUTSIDE), "volumes": {"v": OUTSIDE}},
            [],
            ["main"],
            [],
        ),
        ({"services": [], "networks": "no", "volumes": {1: {}}}, ["default"], ["main"], []),
    ],
)  # fmt: skip
def test_everything_that_compose_makes_gets_the_labels(
    compose: dict[str, Any], networks: list[str], services: list[str], volumes: list[str]
) -> None:
    found = overlay(LABELS, compose)
    assert list(found.get("networks", {})) == networks and list(found.get("volumes", {})) == volumes
    assert sorted(found["services"]) == sorted(services)
    parts = [one for section in found.values() for one in section.values()]
    assert [one["labels"] for one in parts] == [TOLD] * len(parts)
    main = found["services"]["main"]
    assert main["init"] is True and main["stop_grace_period"] == "1s"
    assert main["extra_hosts"] == ["host.docker.internal:host-gateway"]


@pytest.mark.parametrize(
    ("compose", "toml", "hosts"),
    [
        ("", 'version = "1"\n', True),
        ("", '[environment]\nnetwork_mode = "allowlist"\n', False),
        ("", "[environment]\nallow_internet = false\n", False),
        ("services: {main: {network_mode: none}}\n", "", False),
        ("services: {main: {image: x}}\n", "", True),
        ("services: [\n", "", True),
    ],
)
def test_names_of_hosts_only_in_a_network_of_its_own(
    tmp_path: Path, compose: str, toml: str, hosts: bool
) -> None:
    ledger = Ledger(tmp_path, "worker-1", "attempt_001", {})
    path = ledger.begin("t-1", task(tmp_path / "task", compose, toml), kept=False)
    assert ("extra_hosts" in json.loads(path.read_text())["services"]["main"]) is hosts


def test_the_ledger_is_written_before_a_sandbox_begins(tmp_path: Path) -> None:
    env = {"DOCKER_HOST": "tcp://h:1", "DOCKER_CONTEXT": "", "HOME": "/x"}
    ledger = Ledger(tmp_path, "worker-1", "attempt_002", env)
    compose = "services: {main: {}, db: {image: postgres}}\n"
    path = ledger.begin("t-1", task(tmp_path / "task", compose), kept=True)
    (entry,) = read_ledgers(tmp_path)
    assert (entry.event, entry.trial, entry.project, entry.services) == (
        "begun",
        "t-1",
        "t-1__env",
        ("main", "db"),
    )
    assert entry.run_id == identity(tmp_path) and entry.attempt == "attempt_002" and entry.kept
    assert entry.daemon == {"DOCKER_HOST": "tcp://h:1"}
    assert (entry.pid, entry.tick) == (os.getpid(), owned.start_tick(os.getpid()))
    labels = json.loads(path.read_text())["services"]["db"]["labels"]
    assert set(labels) == {f"liverl.{one}" for one in ("run-id", "attempt", "trial", "user", "host", "kept")}
    assert labels["liverl.trial"] == "t-1" and labels["liverl.kept"] == "true"
    ledger.over("t-1")
    ledger.lost("t-2")
    assert not path.exists()
    assert [(one.event, one.trial) for one in read_ledgers(tmp_path)] == [
        ("begun", "t-1"), ("over", "t-1"), ("lost", "t-2"),
    ]  # fmt: skip


def test_a_torn_line_of_the_ledger_costs_no_other(tmp_path: Path) -> None:
    Ledger(tmp_path, "worker-1", "attempt_001", {}).begin("t-1", task(tmp_path / "task"), kept=False)
    file = tmp_path / "sandboxes" / "worker-1.jsonl"
    file.write_bytes(b'{"event":"begun","tr\n[]\n' + file.read_bytes() + b'{"event":"over","tri')
    assert [one.trial for one in read_ledgers(tmp_path)] == ["t-1"]


@pytest.mark.parametrize(
    ("keys", "docker"),
    [
        ({}, True),
        ({"environment_type": "docker"}, True),
        ({"environment_type": "local"}, False),
        ({"environment_type": "podman"}, False),
        ({"environment_import_path": "harbor.environments.docker.docker:DockerEnvironment"}, True),
        ({"environment_import_path": "mine:Docker"}, False),
    ],
)
def test_only_docker_gets_the_overlay(keys: dict[str, Any], docker: bool) -> None:
    settings = harbor_settings(environment_delete=False, **keys)
    assert uses_compose(settings) is docker
    trial = HarborTrial(
        task="/t", name="t-1", trials_dir="/r", openai="", anthropic="", key="", model="m", turns=1, context=1, reply=1,
        overlay="/r/t-1.yaml" if docker else "",
    )  # fmt: skip
    environment = trial_config(trial, settings)["environment"]
    assert environment.get("extra_docker_compose") == (["/r/t-1.yaml"] if docker else None)
    # Harbor's delete: false alone keeps the image only.
    assert environment["kwargs"] == ({"keep_containers": True} if docker else {})
