"""What is removed of earlier steps' trials, and what never is; and how full the disk will be."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kit.screens import snapshot
from kit.trial_folders import FAILED, call, lines

from liverl.config import ConfigError, load_config, resolved
from liverl.config.changes import on_change
from liverl.daemon import retention as retention_module
from liverl.daemon.retention import CUT_OFF_S, Removed, Retention
from liverl.daemon.run import Run
from liverl.daemon.sampler import SampledFacts, Sampler
from liverl.diagnose.catalogue.disks import disk_low
from liverl.diagnose.tracker import RunContext
from liverl.model import DiskStatus, StepMetrics
from liverl.observe.step_sizes import StepSizes, disk_status
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.volumes import RUN_DIRECTORY, SHARED_MEMORY, TRIALS, Volume, bytes_of
from liverl.plan import make_plan
from liverl.sessions.trial_log import ROWS, TURNS
from liverl.util.blocking_call import BlockingCalls
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import disk_words

GOOD = {"verifier_result": {"rewards": {"reward": 1.0}}}
BAD = {**GOOD, "exception_info": {"exception_type": "TimeoutError", "exception_message": "late"}}
OURS = ("liverl.json", "result.json", "verifier/reward.txt")
THEIRS = ("notes.txt", "agent/litellm-trajectory.jsonl", "sandbox/proxy_trajectory.json", f"{TURNS}.bak")


def trial(run: Path, name: str, result: dict[str, Any] | None = GOOD, **record: Any) -> Path:
    """A trial with all files that one can have, of us and of others. ``name``: ``step_0001/a``."""
    folder = run / "trials" / name
    for each in ("agent", "verifier", "sandbox"):
        (folder / each).mkdir(parents=True)
    (folder / TURNS).write_text(lines(call(calls=1), record or call(calls=1)))
    (folder / ROWS).write_text(json.dumps({"session_id": name, "rows": []}))
    for each in ("liverl.json", "verifier/reward.txt", *THEIRS):
        (folder / each).write_text("{}")
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def names(run: Path) -> set[str]:
    return {
        str(path.relative_to(run / "trials")) for path in (run / "trials").rglob("*") if not path.is_dir()
    }


def old(folder: Path) -> None:
    then = time.time() - CUT_OFF_S - 60
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then), follow_symlinks=False)


def test_the_turns_of_earlier_steps_go_and_nothing_else(tmp_path: Path) -> None:
    for step in (1, 2, 9, 10, 11):
        for name in ("a", "b"):
            trial(tmp_path, f"step_{step:04}/{name}")
    before = names(tmp_path)
    retention = Retention(tmp_path / "trials", 2)
    found = retention.look(11, low=False)
    assert [(one.step, one.last, one.trials, one.kept) for one in found] == [
        (1, False, 2, 0),
        (2, False, 2, 0),
        (9, False, 2, 0),
    ], "by number, not by name"
    gone = {f"step_{step:04}/{name}/{TURNS}" for step in (1, 2, 9) for name in ("a", "b")}
    assert before - names(tmp_path) == gone and found[0].bytes > 100
    assert retention.look(11, low=False) == []
    assert [one.step for one in retention.look(12, low=False)] == [10]
    assert [one.step for one in Retention(tmp_path / "trials", 2).look(13, low=False)] == [11], (
        "a new backend"
    )


@pytest.mark.parametrize("step", [None, 0, 2])
def test_nothing_goes_before_there_are_enough_steps(tmp_path: Path, step: int | None) -> None:
    trial(tmp_path, "step_0001/a")
    before = names(tmp_path)
    retention = Retention(tmp_path / "trials", 2)
    assert retention.look(step, low=True) == [] and names(tmp_path) == before and retention.problem == ""


@pytest.mark.parametrize("why", ["failed", "a failed call", "no tool call", "a damaged record", "cut off"])
def test_failed_and_flagged_trials_and_all_rows_go_last(tmp_path: Path, why: str) -> None:
    good = trial(tmp_path, "step_0001/good")
    if why == "a failed call":
        flawed = trial(tmp_path, "step_0001/bad", **FAILED)
    else:
        flawed = trial(tmp_path, "step_0001/bad", {"failed": BAD, "cut off": None}.get(why, GOOD))
    if why == "no tool call":
        (flawed / TURNS).write_text(lines(call()))
    if why == "a damaged record":
        (flawed / TURNS).write_text(lines(call(calls=1)) + "{\n")
    if why == "cut off":
        old(flawed)
    retention = Retention(tmp_path / "trials", 1)
    assert [(one.trials, one.kept) for one in retention.look(9, low=False)] == [(1, 1)]
    assert not (good / TURNS).exists() and (good / ROWS).exists()
    assert (flawed / TURNS).exists() and (flawed / ROWS).exists()
    found = retention.look(9, low=True)
    assert [(one.last, one.trials) for one in found] == [(True, 2)]
    assert "the disk is nearly full" in found[0].words
    for folder in (good, flawed):
        assert not (folder / TURNS).exists() and not (folder / ROWS).exists()
        assert all((folder / name).exists() for name in THEIRS)
    assert all((good / name).exists() for name in OURS)


def test_while_the_disk_is_low_all_turns_go_before_any_rows_and_these_step_by_step(tmp_path: Path) -> None:
    for step in (1, 2):
        trial(tmp_path, f"step_{step:04}/a")
    retention = Retention(tmp_path / "trials", 1)
    found = [(one.step, one.last) for one in retention.look(9, low=True)]
    assert found == [(1, False), (2, False), (1, True)]
    assert [(one.step, one.last) for one in retention.look(9, low=True)] == [(2, True)]


def test_trials_that_keep_their_turns_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial(tmp_path, "step_0001/bad", BAD)
    read: list[Path] = []
    monkeypatch.setattr(
        retention_module, "read_trajectory", lambda path: read.append(path) or read_trajectory(path)
    )
    retention = Retention(tmp_path / "trials", 1)
    for step in range(9, 12):
        assert retention.look(step, low=False) == []
    assert len(read) == 1


def test_a_trial_that_runs_keeps_everything_until_it_has_ended(tmp_path: Path) -> None:
    folder = trial(tmp_path, "step_0001/slow", None)
    retention = Retention(tmp_path / "trials", 1)
    assert retention.look(9, low=True) == [] and (folder / TURNS).exists() and (folder / ROWS).exists()
    (folder / "result.json").write_text(json.dumps(GOOD))
    assert [one.trials for one in retention.look(9, low=False)] == [1]


@pytest.mark.parametrize("what", ["the file", "the trial", "the step", "the trials", "a fifo", "a folder"])
def test_no_link_is_followed_and_only_files_are_removed(tmp_path: Path, what: str) -> None:
    mine = tmp_path / "mine"
    other = trial(mine, "step_0001/a")
    run = tmp_path / "run"
    (run / "trials").mkdir(parents=True)
    if what == "the trials":
        (run / "trials").rmdir()
        (run / "trials").symlink_to(mine / "trials")
    elif what == "the step":
        (run / "trials/step_0001").symlink_to(mine / "trials/step_0001")
    elif what == "the trial":
        (run / "trials/step_0001").mkdir()
        (run / "trials/step_0001/a").symlink_to(other)
    else:
        folder = trial(run, "step_0001/a")
        for name in (TURNS, ROWS):
            (folder / name).unlink()
            if what == "the file":
                (folder / name).symlink_to(other / name)
            elif what == "a fifo":
                os.mkfifo(folder / name)
            else:
                (folder / name).mkdir()
    before = names(mine), names(run)
    retention = Retention(run / "trials", 1)
    assert retention.look(9, low=True) == []
    assert (names(mine), names(run)) == before
    assert bool(retention.problem) == (what == "the trials")


def test_a_look_ends_when_its_time_is_over_and_the_next_goes_on(tmp_path: Path) -> None:
    for number in range(5):
        trial(tmp_path, f"step_0001/{number}")
    clock: Iterator[float] = iter(range(1000))
    retention = Retention(tmp_path / "trials", 1, lambda: float(next(clock)))
    looks = [retention.look(9, low=False) for _ in range(5)]
    (found,) = [one for look in looks for one in look]
    assert looks[0] == [] and found.trials == 5 and found.bytes > 0


def test_what_is_left_is_read_as_before_by_a_new_backend(tmp_path: Path) -> None:
    folder = trial(tmp_path, "step_0001/a")
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "Yes.", "tool_calls": [{}]},
    ]
    (folder / ROWS).write_text(json.dumps({"messages_snapshot": messages, "rows": []}))
    Retention(tmp_path / "trials", 1).look(9, low=False)
    (head,) = TrialScanner(tmp_path).scan(now=2e9).newest
    assert (head.state, head.reward, head.turns, head.flags) == ("finished", 1.0, 1, ())


def test_the_event_says_what_was_removed() -> None:
    words = Removed(7, False, trials=498, kept=14, bytes=1_230_000_000).words
    assert words == (
        "removed the turns of 498 trials of step 7 (1.23 GB): retention.keep_steps; 14 failed or flagged trials keep "
        "theirs"
    )


# -- the configuration


def planned(**sets: object) -> Any:
    env = {"HOME": "/home/user"}
    loaded = load_config(sets=["run.name=n", *(f"retention.{k}={v}" for k, v in sets.items())], env=env)
    config = resolved(loaded.config, env=env, cwd=Path("/w"), now=0.0)
    return make_plan(msgspec.structs.replace(loaded, config=config), Path("/runs/p/n"))


@pytest.mark.parametrize(
    ("sets", "keeps"), [({}, None), ({"keep_steps": "null"}, None), ({"keep_steps": 3}, 3)]
)
def test_nothing_is_removed_unless_it_is_asked_for(sets: dict[str, object], keeps: int | None) -> None:
    assert planned(**sets).settings.keep_steps == keeps


@pytest.mark.parametrize("value", [0, -1, "all", 1.5])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        planned(keep_steps=value)


def test_a_run_changes_it_with_its_next_attempt() -> None:
    assert on_change("retention.keep_steps").kind == "next attempt"


# -- how full the disk will be


def volume(what: str, **other: Any) -> Volume:
    return Volume("/x", what, 1000, 500, **other)


@pytest.mark.parametrize(
    ("volumes", "step_bytes", "step_seconds", "expected"),
    [
        ([], 10, 10.0, None),
        ([volume(SHARED_MEMORY)], 10, 10.0, None),
        ([volume(RUN_DIRECTORY)], None, 10.0, DiskStatus(1000, 500)),
        ([volume(RUN_DIRECTORY)], 10, None, DiskStatus(1000, 500, 10)),
        ([volume(RUN_DIRECTORY)], 0, 10.0, DiskStatus(1000, 500, 0)),
        ([volume(RUN_DIRECTORY)], 10, 4.0, DiskStatus(1000, 500, 10, 200.0)),
        ([volume(RUN_DIRECTORY, seconds_left=7.0)], 10, 4.0, DiskStatus(1000, 500, 10, 7.0)),
        ([volume(RUN_DIRECTORY), volume(TRIALS, seconds_left=3.0)], 10, 4.0, DiskStatus(1000, 500, 10, 3.0)),
    ],
)
def test_when_the_disk_is_full(
    volumes: list[Volume], step_bytes: int | None, step_seconds: float | None, expected: DiskStatus | None
) -> None:
    assert disk_status(volumes, step_bytes, step_seconds) == expected


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (None, None),
        (DiskStatus(1 << 40, 100 << 30), "100G of 1.0T free"),
        (
            DiskStatus(1 << 40, 100 << 30, 3 << 30, 7260.0),
            "100G of 1.0T free, 3.0G of trials a step, full in about 2h01m",
        ),
    ],
)
def test_status_says_how_full_the_disk_is(disk: DiskStatus | None, words: str | None) -> None:
    shown = snapshot(disk=disk)
    assert disk_words(shown) == words
    assert [line for line in render(shown).splitlines() if line.startswith("disk ")] == [
        f"disk      {words}"
    ] * bool(words)


@pytest.mark.parametrize("what", [RUN_DIRECTORY, TRIALS, SHARED_MEMORY])
def test_the_alert_of_a_low_disk_says_what_a_step_takes_and_what_removes_it(what: str) -> None:
    window = SimpleNamespace(beside=RunContext(volumes=(volume(what),), step_bytes=5 << 30))
    (symptom,) = disk_low(window)  # type: ignore[arg-type]
    of_trials = [one.text for one in symptom.evidence if "newest finished step" in one.text]
    assert of_trials == ["trials of the newest finished step: 5.0 GiB"] * (what != SHARED_MEMORY)
    assert ("retention.keep_steps" in symptom.fix) == (what != SHARED_MEMORY)


async def test_what_is_removed_is_an_event_of_the_run(tmp_path: Path) -> None:
    for step in (1, 2):
        trial(tmp_path, f"step_{step:04}/a")
    said: list[tuple[str, str]] = []
    run = SimpleNamespace(
        _retention=Retention(tmp_path / "trials", 1),
        _removals=BlockingCalls[list[Removed]](),
        sampler=SimpleNamespace(facts=SampledFacts(volumes=(volume(SHARED_MEMORY),))),
        snapshots=SimpleNamespace(step=lambda: 2),
        supervisor=SimpleNamespace(say=lambda kind, text, *_, **__: said.append((kind, text))),
    )
    for _ in range(2):
        await Run._retain(run)  # type: ignore[arg-type]
    assert [(kind, text.partition(" (")[0]) for kind, text in said] == [
        ("retention", "removed the turns of 1 trial of step 1")
    ], "a low /dev/shm is no low disk"
    (tmp_path / "trials").rename(tmp_path / "moved")
    (tmp_path / "trials").symlink_to(tmp_path / "moved")
    for _ in range(2):
        await Run._retain(run)  # type: ignore[arg-type]
    assert len(said) == 2 and "or a link: nothing in it is removed" in said[1][1]


def test_a_finished_step_is_measured_once(tmp_path: Path) -> None:
    sizes = StepSizes(tmp_path / "trials")
    sizes.look(None)
    sizes.look(1)
    assert sizes.newest is None, "it has no folder"
    trial(tmp_path, "step_0002/a")
    sizes.look(2)
    first = sizes.newest
    assert first is not None and first > 0
    trial(tmp_path, "step_0002/b")
    sizes.look(2)
    assert sizes.newest == first
    trial(tmp_path, "step_00000003/a")
    trial(tmp_path, "step_00000003/b")
    sizes.look(3)
    assert sizes.newest == bytes_of(str(tmp_path / "trials" / "step_00000003")) > first
    (tmp_path / "trials/step_0004").symlink_to(tmp_path / "trials/step_0002")
    sizes.look(4)
    assert sizes.newest == bytes_of(str(tmp_path / "trials" / "step_00000003")), "no link is followed"


@pytest.mark.parametrize(
    ("step_bytes", "left", "words"),
    [
        (None, None, "step 3: reward 0.500"),
        (99_000_000, 60.0, "step 3: reward 0.500"),
        (1_250_000_000, None, "step 3: reward 0.500, 1.2 GB of trials a step"),
        (
            1_250_000_000,
            5400.0,
            "step 3: reward 0.500, 1.2 GB of trials a step, the disk is full in about 1.5 h",
        ),
        (1_250_000_000, 8 * 86400.0, "step 3: reward 0.500, 1.2 GB of trials a step"),
    ],
)
def test_the_event_of_a_step_says_what_it_took(
    step_bytes: int | None, left: float | None, words: str
) -> None:
    said: list[str] = []
    plan = SimpleNamespace(total_steps=None)
    supervisor = SimpleNamespace(plan=plan, say=lambda kind, text, *_, **__: said.append(text))
    facts = SampledFacts(volumes=(volume(RUN_DIRECTORY, seconds_left=left),), step_bytes=step_bytes)
    sampler = SimpleNamespace(_supervisor=supervisor, facts=facts)
    Sampler._report_step(sampler, StepMetrics(3, {"critic/score/mean": 0.5}), None)  # type: ignore[arg-type]
    assert said == [words]
