"""``ls``: what the files of each run say of it, in the order that was asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kit.ended_runs import FALLING, a_run
from kit.made_checkpoints import embedded
from msgspec.json import encode as json_of
from msgspec.structs import replace

from liverl.model import Cause, RewardCourse, Rewards, Validation
from liverl.offline.readings import FileReadings
from liverl.offline.run_list import listed
from liverl.rundir.index import candidates
from liverl.rundir.layout import RunDir, own_record, write_backend
from liverl.snapshot_json import encode_snapshot
from liverl_tui.cli.main import run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    a_run(tmp_path, "best")
    a_run(tmp_path, "worst", FALLING, cause=Cause("trainer", "GPU 0 out of memory", 5.0))
    a_run(tmp_path, "empty", [], ("model.model_path=/models/Qwen3-8B",))
    return tmp_path


def names(capsys: pytest.CaptureFixture[str], root: Path, *options: str) -> list[str]:
    assert run(["ls", "--json", "--run-root", str(root), *options]) == 0
    return [row["run"].removeprefix("exp/") for row in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("reward", ["best", "worst", "empty"]),
        ("name", ["best", "empty", "worst"]),
        ("state", ["done", "done", "failed"]),
    ],
)
def test_the_largest_first_and_the_unknown_last(
    by: str, expected: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if by == "state":
        assert run(["ls", "--json", "--run-root", str(root), "--sort", by]) == 0
        assert [row["state"] for row in json.loads(capsys.readouterr().out)] == expected
    else:
        assert names(capsys, root, "--sort", by) == expected


def resumed(path: Path) -> None:
    """Its second attempt took 17 s."""
    result, last = RunDir(path).read_result(), RunDir(path).read_snapshot()
    assert result is not None and last is not None
    again = replace(result, attempt=2, started_at=200.0, ended_at=217.0)
    (path / "result.json").write_bytes(json_of(again))
    (path / "snapshot.json").write_bytes(encode_snapshot(replace(last, attempt=2, result=again)))


def test_which_attempt_the_time_is_of_is_said_where_others_came_before_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of two attempts had "17s", and 1m00s of its first one were nowhere."""
    resumed(root / "exp" / "best")
    assert run(["ls", "--run-root", str(root), "--sort", "reward"]) == 0
    _, best, worst, _ = capsys.readouterr().out.splitlines()
    assert "  17s, attempt 2  " in best and ", attempt" not in worst
    assert run(["ls", "--json", "--run-root", str(root), "--sort", "name"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["attempt"], row["seconds"]) for row in rows] == [(2, 17.0), (1, 60.0), (1, 60.0)]


@pytest.mark.parametrize(("state", "seconds"), [("orphaned", 900.0), ("lost", 30.0)])
def test_a_run_whose_backend_is_gone_has_the_rewards_of_its_metrics(
    state: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last snapshot had no reward yet, while `status` and its screen said the mean of the steps since, and the time
    until now."""
    path = a_run(tmp_path, "orphan")
    (path / "result.json").unlink()
    last = RunDir(path).read_snapshot()
    assert last is not None
    early = replace(last, state="running", rewards=Rewards(), at=130.0, result=None)
    (path / "snapshot.json").write_bytes(encode_snapshot(early))
    monkeypatch.setattr("liverl.offline.run_list.time.time", lambda: 1000.0)
    monkeypatch.setattr("liverl.offline.left.anything_left", lambda _: state == "orphaned")
    (info,) = candidates(tmp_path)
    found = listed(replace(info, state=state))
    readings = FileReadings(path)
    readings.metrics()
    assert (found.reward_first, found.reward_last) == (readings.rewards.first, readings.rewards.last)
    assert found.reward_last is not None and found.reward_course == readings.rewards.course
    assert found.seconds == seconds


def test_a_run_is_told_in_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ls", "--run-root", str(root), "--sort", "reward"]) == 0
    head, best, worst, empty = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "state", "started", "steps", "reward", "time", "model", "directory"]
    assert "12/12" in best and "0.250 -> 0.703" in best and "1m00s" in best and "builtin:qwen3_coder" in best
    assert worst.endswith(f"{root / 'exp' / 'worst'}  (GPU 0 out of memory)")
    assert "0.250 -> 0.703 learning" in best and "0.250 -> 0.000 no clear trend" in worst
    assert "Qwen3-8B" in empty and "->" not in empty
    assert len({line.index(str(root)) for line in (best, worst, empty)}) == 1


def test_the_verdict_is_that_of_the_metrics_whatever_a_version_has_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of runs of an older version `ls` said `all solved` where the dashboard said `nearly all solved`, or nothing."""
    for name, kept in (("old", None), ("other", RewardCourse("flat", 3))):
        run_dir = RunDir(a_run(tmp_path, name))
        (before,) = filter(None, [run_dir.read_snapshot()])
        rewards = replace(before.rewards, course=kept)
        run_dir.snapshot.write_bytes(encode_snapshot(replace(before, rewards=rewards)))
    a_run(tmp_path, "few", [0.1, 0.2, 0.1])
    gone = a_run(tmp_path, "gone")
    (gone / "metrics.jsonl").unlink()
    assert run(["ls", "--run-root", str(tmp_path)]) == 0
    told = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "0.250 -> 0.703 learning " in told["exp/old"] and "0.250 -> 0.703 learning " in told["exp/other"]
    assert " 0.133  " in told["exp/few"], "one mean claims no change"
    assert " 0.703  " in told["exp/gone"] and "->" not in told["exp/gone"], "nobody can judge it"


def test_a_run_began_when_its_attempt_did_whenever_its_backend_was_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the backend alone the run was listed as started then, above runs that began after it."""
    path = a_run(tmp_path, "restarted")
    (path / "result.json").unlink()
    write_backend(path, replace(own_record(path / "control.sock", "0"), started_at=150.0))
    monkeypatch.setattr("liverl.offline.run_list.time.time", lambda: 1000.0)
    (one,) = map(listed, candidates(tmp_path))
    # It is live: until now, as `status` says, and not until its last snapshot, which is some seconds old.
    assert (one.started_at, one.seconds) == (100.0, 900.0)


def test_a_damaged_file_leaves_its_cell_empty(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("snapshot.json", "config.yaml"):
        (root / "exp" / "best" / name).write_bytes(b'model:\n  model_path: "\\q"\n{')
    assert run(["ls", "--json", "--run-root", str(root), "--run", "best"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["reward_last"], row["model"], row["steps"]) == (None, "", 12)


@pytest.mark.parametrize(
    ("made", "smoke", "words"),
    [
        ("none", False, "best validation 0.5 after step 8: no checkpoint of it"),
        ("another", False, "best validation 0.5 after step 8: no checkpoint of it"),
        ("incomplete", False, "best validation 0.5 after step 8: no checkpoint of it"),
        ("complete", False, "best checkpoint: step 8, validation 0.5"),
        ("complete", True, ""),
        ("without validation", False, ""),
    ],
)
def test_the_best_checkpoint_by_validation_is_named(
    made: str, smoke: bool, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_run(tmp_path, "r")
    run_dir = RunDir(path)
    (before,) = filter(None, [run_dir.read_snapshot()])
    found = None if made == "without validation" else Validation("val-core/x", 0.1, 0.4, 12, 0.5, 8)
    rewards = replace(before.rewards, validation=found)
    (path / "snapshot.json").write_bytes(encode_snapshot(replace(before, rewards=rewards, smoke=smoke)))
    if made != "none":
        run_dir.checkpoints.mkdir(parents=True)
        embedded(run_dir.checkpoints, 4 if made == "another" else 8)
    if made == "incomplete":
        shutil.rmtree(run_dir.checkpoints / "global_step_8" / "actor")
    (one,) = map(listed, candidates(tmp_path))
    assert one.best_words == words
    assert bool(one.best_checkpoint) == words.startswith("best checkpoint")
    assert run(["ls", "--run-root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(words or str(path))
