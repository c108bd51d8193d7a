"""``ls``: what the files of each run say of it, in the order that was asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kit.ended_runs import FALLING, a_run
from kit.made_checkpoints import embedded
from msgspec.structs import replace

from liverl.model import Cause, Validation
from liverl.offline.run_list import listed
from liverl.rundir.index import candidates
from liverl.rundir.layout import RunDir
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


def test_a_run_is_told_in_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ls", "--run-root", str(root), "--sort", "reward"]) == 0
    head, best, worst, empty = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "state", "started", "steps", "reward", "time", "model", "directory"]
    assert "12/12" in best and "0.250 -> 0.703" in best and "1m00s" in best and "builtin:qwen3_coder" in best
    assert worst.endswith(f"{root / 'exp' / 'worst'}  (GPU 0 out of memory)")
    assert "Qwen3-8B" in empty and "->" not in empty
    assert len({line.index(str(root)) for line in (best, worst, empty)}) == 1


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
