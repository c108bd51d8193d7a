"""A configuration that is edited while its run goes on: real files, the real backend."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.runs import ToyRun
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.config import load_config, resolved, run_directory
from liverl.daemon.launch import create_run
from liverl.observe.config_edits import FILE, ConfigEdits, expect, record
from liverl.plan import make_plan
from liverl.rundir.commands import resume_command


def rewrite(path: Path, text: str) -> None:
    """As an editor does: a new file takes the old one's place."""
    other = path.with_suffix(".new")
    other.write_text(text)
    os.replace(other, path)


def test_each_edit_is_told_once_and_what_is_as_it_was_is_none(tmp_path: Path) -> None:
    one, two = tmp_path / "config.yaml", tmp_path / "own.yaml"
    one.write_text("a: 1\n")
    two.write_text("b: secret-of-mine\n")
    record(tmp_path, [one, two])
    assert "secret" not in (tmp_path / FILE).read_text()
    edits = ConfigEdits(tmp_path)
    assert edits.poll() == []
    rewrite(one, "a: 1\n")
    assert edits.poll() == [], "it was only saved again"
    rewrite(one, "a: 2\n")
    (told,) = edits.poll()
    assert told.startswith(f"{one} was edited") and f"up --config {one} --name" in told
    assert edits.poll() == []
    rewrite(one, "a: 3\n")
    assert len(edits.poll()) == 1, "another edit"
    one.unlink()
    assert edits.poll() == []
    rewrite(one, "a: 1\n")
    assert edits.poll() == [], "the edit was undone"
    rewrite(one, "a: 2\n")
    rewrite(two, "b: 3\n")
    assert len(edits.poll()) == 2
    assert len(ConfigEdits(tmp_path).poll()) == 2, "the next backend tells it as well"


def test_a_change_that_was_announced_is_no_edit(tmp_path: Path) -> None:
    """A fix changes the run's configuration, and the user's own file, while a backend watches both."""
    one = tmp_path / "own.yaml"
    one.write_text("a: 1\n")
    record(tmp_path, [one])
    edits = ConfigEdits(tmp_path)
    assert edits.poll() == []
    expect(tmp_path, one, b"a: 2\n")
    assert edits.poll() == [], "it is not written yet"
    rewrite(one, "a: 2\n")
    assert edits.poll() == []
    rewrite(one, "a: 1\n")
    assert len(edits.poll()) == 1, "the value of before is an edit now"


@pytest.mark.parametrize("note", [None, "", "{", "[1]", '{"/x": 7}'])
def test_a_run_without_a_proper_note_has_nothing_to_tell(note: str | None, tmp_path: Path) -> None:
    if note is not None:
        (tmp_path / FILE).write_text(note)
    assert ConfigEdits(tmp_path).poll() == []


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ToyRun]:
    config = tmp_path / "mine.yaml"
    config.write_text("run:\n  name: edited\ntrainer:\n  kind: none\n")
    loaded = load_config(config, sets=[f"run.run_root={tmp_path / 'runs'}"], env={})
    loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=tmp_path, now=0.0, file=config))
    run_dir = run_directory(loaded.config)
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    one = ToyRun(run_dir)
    yield one
    one.end()


def test_a_living_run_tells_of_both_files(run: ToyRun, tmp_path: Path) -> None:
    def told() -> list[str]:
        return [e.text for e in run.events() if e.kind == "config"]

    run.start()
    wait_until(lambda: run.snapshot().host.cpu_count is not None, what="a first look")
    assert told() == []
    given = tmp_path / "mine.yaml"
    rewrite(given, given.read_text() + "model:\n  served_name: other\n")
    (text,) = wait_until(told, what="the event")
    assert text.startswith(f"{given} ") and f"{resume_command(run.run_dir)} --config {given}" in text
    rewrite(run.run_dir / "config.yaml", (run.run_dir / "config.yaml").read_text() + "# mine\n")
    wait_until(lambda: len(told()) == 2, what="the second one")
    assert told()[1].startswith(f"{run.run_dir / 'config.yaml'} ")
    # what it advises works
    again = load_config(run.run_dir / "config.yaml", sets=["run.name=NEW"], env={})
    config = resolved(again.config, env={}, cwd=tmp_path, now=0.0, file=run.run_dir / "config.yaml")
    assert run_directory(config) == run.run_dir.with_name("NEW")
