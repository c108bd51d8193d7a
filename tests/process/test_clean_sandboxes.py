"""``clean --sandboxes``: what it lists, removes and leaves. SIMULATED: the docker program is scripted
(``kit.fake_docker``); with a real daemon: ``tests/docker``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.cli import run_cli
from kit.fake_docker import FakeDocker, begin
from kit.runs import ToyRun, make_run, toy

GONE = {"container", "network", "image"}
Ended = Callable[[str], ToyRun]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    found = FakeDocker(tmp_path / "docker")
    monkeypatch.setenv("PATH", found.env["PATH"])
    return found


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[Ended]:
    """Runs that have ended, and had no sandboxes then."""
    runs: list[ToyRun] = []

    def make(name: str) -> ToyRun:
        run = make_run(tmp_path / "runs", [toy("a", "sleep")], name=name)
        runs.append(run)
        run.start()
        run.until("a", "ready")
        run.command("stop", now=True)
        run.result()
        return run

    yield make
    for run in runs:
        run.end()


def clean(folder: Path, *words: object) -> tuple[int, dict[str, Any]]:
    done = run_cli("clean", "--json", "--run-root", folder / "runs", *words)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_only_what_is_asked_for_and_only_of_that_run(tmp_path: Path, ended: Ended, fake: FakeDocker) -> None:
    mine, other = ended("mine"), ended("other")
    for run, trial in ((mine, "t-1"), (other, "t-2")):
        begin(run.run_dir, tmp_path / trial, [trial])
        fake.sandbox(run.run_dir, trial)
    code, report = clean(tmp_path, mine.run_dir, "--yes")
    assert code == 0 and report["sandboxes"] == [] and len(fake.there["container"]) == 2 and fake.calls == []
    code, report = clean(tmp_path, mine.run_dir, "--sandboxes")
    assert code == 0 and not report["removed"] and len(fake.there["container"]) == 2
    rows = {(row["run"], row["kind"], row["trial"]) for row in report["sandboxes"]}
    assert rows == {("tests/mine", kind, "t-1") for kind in GONE}
    code, report = clean(tmp_path, mine.run_dir, "--sandboxes", "--yes")
    assert code == 0 and report["sandboxes_removed"] == 3 and report["failed"] == []
    assert fake.there == {"container": ["c-t-2"], "network": ["n-t-2"], "image": ["t-2__env-main"]}
    code, report = clean(tmp_path, "--sandboxes", "--yes")
    assert code == 0 and report["sandboxes_removed"] == 3 and fake.there == {}


def test_kept_ones_go_with_kept_only(tmp_path: Path, ended: Ended, fake: FakeDocker) -> None:
    run = ended("mine")
    begin(run.run_dir, tmp_path, ["t-1"], kept=True)
    fake.sandbox(run.run_dir, "t-1", kept=True)
    code, report = clean(tmp_path, run.run_dir, "--sandboxes", "--yes")
    assert code == 0 and report["sandboxes"] == [] and len(fake.there) == 3
    assert {one["path"].split()[0] for one in report["left"] if "--kept" in one["why"]} == GONE
    code, report = clean(tmp_path, run.run_dir, "--sandboxes", "--kept", "--yes")
    assert code == 0 and report["sandboxes_removed"] == 3 and fake.there == {}


def test_what_cannot_be_removed_or_asked_fails(tmp_path: Path, ended: Ended, fake: FakeDocker) -> None:
    run = ended("mine")
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    fake.set(refuse=["n-t-1"])
    code, report = clean(tmp_path, run.run_dir, "--sandboxes", "--yes")
    (failed,) = report["failed"]
    assert code == 1 and failed["path"] == "network t-1__env_default" and "in use" in failed["why"]
    (fake.bin / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    code, report = clean(tmp_path, run.run_dir, "--sandboxes", "--yes")
    assert code == 1 and any("Cannot connect" in one["why"] for one in report["left"])


def test_a_run_that_lives_keeps_its_sandboxes(tmp_path: Path, ended: Ended, fake: FakeDocker) -> None:
    run = ended("mine")
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    run.start(resume=True)
    run.until("a", "ready")
    code, report = clean(tmp_path, run.run_dir, "--sandboxes", "--yes")
    assert code == 1 and report["sandboxes"] == [] and len(fake.there) == 3


def test_kept_alone_is_an_error_of_usage(tmp_path: Path) -> None:
    done = run_cli("clean", "--kept", "--run-root", tmp_path)
    assert done.returncode == 2 and "--kept needs --sandboxes" in done.stderr


def test_words_for_a_reader(tmp_path: Path, ended: Ended, fake: FakeDocker) -> None:
    run = ended("mine")
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    done = run_cli("clean", run.run_dir, "--sandboxes", "--yes", "--run-root", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    assert "in Docker: container t-1__env-main-1 of tests/mine, trial t-1\n" in done.stdout
    assert "removed 3 things that trials had left\n" in done.stdout
