"""Whether sandboxes reach the sessions is asked right before the trainer starts. SIMULATED: docker is a script here;
with a real daemon: ``tests/docker/test_reach.py``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverl.agents.harbor.owned import read_ledgers
from liverl.config import load_config
from liverl.model import Check
from liverl.plan import make_plan
from liverl.preflight import sandbox_reach
from liverl.preflight.subject import Ours
from liverl.sandboxes.probe import images_of

SETS = ("agent.kind=harbor", "harbor_agent.agent_name=claude-code", "harbor_agent.environment_type=docker")
HOSTS = {"sessions.http": "127.0.0.1", "sessions.sandboxes": "172.17.0.1"}
HELD = Ours({}, {}, {"sessions.http": 5, "sessions.sandboxes": 6}, HOSTS)
LOOPBACK = Ours({}, {}, {"sessions.http": 5}, {"sessions.http": "127.0.0.1"})
EVERYWHERE = Ours({}, {}, {"sessions.http": 5}, {"sessions.http": "0.0.0.0"})


@pytest.mark.parametrize(
    ("dockerfile", "task", "images"),
    [
        ("FROM ubuntu:24.04\nRUN true\n", "", ("ubuntu:24.04",)),
        ("from --platform=linux/amd64 a:1 as b\nFROM c:2 AS d\nFROM b\n", "", ("a:1",)),
        ("FROM $BASE\n", "", ()),
        ("FROM a\n", '[environment]\ndocker_image = "b:3"\n', ("b:3", "a")),
        (None, '[environment]\ndocker_image = "b:3"\n', ("b:3",)),
        (None, "environment = 5\n", ()),
        (None, "\x00", ()),
    ],
)
def test_images_of_a_task(tmp_path: Path, dockerfile: str | None, task: str, images: tuple[str, ...]) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "task.toml").write_text(task)
    if dockerfile is not None:
        (tmp_path / "environment" / "Dockerfile").write_text(dockerfile)
    assert images_of(tmp_path) == images


def checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ours: Ours | None, script: str, *sets: str
) -> list[Check]:
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sandbox_reach, "_image", lambda *_: ("box:1", ("box:1",)))
    loaded = load_config(profile="cpu-verl", sets=(*SETS, *sets), env={})
    return list(
        sandbox_reach.checks(make_plan(loaded, folder / "run"), loaded.config, dict(os.environ), ours)
    )


@pytest.mark.parametrize(
    ("says", "sets", "status", "words"),
    [
        ("echo reached", (), "ok", "a container of box:1 reaches 172.17.0.1:6"),
        ("echo unreached", (), "fail", "a container of box:1 cannot connect to 172.17.0.1:6"),
        ("echo unreached", ("proxy.advertise=me.lan",), "warn", "cannot connect to me.lan:6"),
        ("echo without", (), "skipped", "the image box:1 has none of bash, python3, nc and curl"),
        ("echo no room >&2; exit 1", (), "skipped", "not found out whether sandboxes reach 172.17.0.1:6: no room"),
    ],
)  # fmt: skip
def test_a_container_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: str,
    sets: tuple[str, ...],
    status: str,
    words: str,
) -> None:
    (check,) = checks(tmp_path, monkeypatch, HELD, f'[ "$1" = run ] && {{ {says}; }}; exit 0', *sets)
    assert check.status == status and words in check.text, check
    calls = (tmp_path / "calls").read_text().splitlines()
    (run,) = [call for call in calls if call.startswith("run ")]
    assert (
        "--pull never" in run
        and "--label liverl.run-id=" in run
        and "--label liverl.trial=liverl-probe-" in run
    )
    assert any(call.startswith("ps ") for call in calls), "what it has made is looked for afterwards"
    assert [entry.event for entry in read_ledgers(tmp_path / "run")] == ["begun", "over"]


@pytest.mark.parametrize(
    ("ours", "sets", "status", "words"),
    [
        (LOOPBACK, (), "fail", "cannot reach 127.0.0.1: when the run began, this machine had no gateway"),
        (LOOPBACK, ("proxy.host=127.0.0.1",), "warn", "cannot reach 127.0.0.1"),
        (Ours({}, {}), (), "skipped", "does not hold the socket"),
        (EVERYWHERE, ("run.topology=in_process",), "skipped", "when the first trial begins"),
    ],
)
def test_nothing_is_asked_where_it_is_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ours: Ours,
    sets: tuple[str, ...],
    status: str,
    words: str,
) -> None:
    (check,) = checks(tmp_path, monkeypatch, ours, "exit 0", *sets)
    assert check.status == status and words in check.text and not (tmp_path / "calls").exists()


def test_the_primary_address_stands_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_reach, "primary_address", lambda: "192.0.2.9")
    script = '[ "$1" = run ] && echo reached; exit 0'
    (check,) = checks(tmp_path, monkeypatch, EVERYWHERE, script, "proxy.host=0.0.0.0")
    assert check.text == "a container of box:1 reaches 192.0.2.9:5"


@pytest.mark.parametrize(
    "sets", [("harbor_agent.environment_type=local",), ("harbor_agent.agent_name=terminus-2",)]
)
def test_who_needs_no_address_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: tuple[str, ...]
) -> None:
    assert checks(tmp_path, monkeypatch, HELD, "exit 0", *sets) == []


def test_before_the_run_no_container_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks(tmp_path, monkeypatch, None, "exit 0") == [] and not (tmp_path / "run").exists()
