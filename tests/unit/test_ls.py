"""``ls``: what the files of each run say of it, in the order that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.ended_runs import FALLING, a_run

from liverl.model import Cause
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
