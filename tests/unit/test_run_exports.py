"""`timeline`, `disk --json` and `compare --svg`: a run's figures for scripts and for pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from kit.trial_folders import FILE, T, call, lines, put

from liverl.exit_codes import ExitCode
from liverl.model import SCHEMA
from liverl.observe.metrics.series import Series
from liverl.offline.charts_svg import COLUMNS, overlaid
from liverl.offline.step_timeline import StepTimeline
from liverl.offline.timeline_shown import TimelineShown
from liverl_tui.cli.main import run
from liverl_tui.text.timeline import lines as timeline_lines

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def say(*words: str) -> tuple[int, str, str]:
        code = run(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return say


def made(folder: Path, better: float = 0.0) -> Path:
    put(folder / "events.jsonl", "", T)
    rows: list[dict[str, Any]] = []
    for step in (1, 2, 3):
        data = {"critic/rewards/mean": 0.1 * step + better, "timing_s/step": 10.0, "timing_s/gen": 6.0 + step}
        rows.append({"step": step, "data": data})
        trial = folder / "trials" / f"step_{step:04d}" / f"t-{step}"
        put(trial / FILE, lines(call(calls=1, request_time=T + 10 * step, duration_ms=2000)), T + 10 * step)
        put(
            trial / "result.json",
            json.dumps({"verifier_result": {"rewards": {"reward": 1.0}}}),
            T + 10 * step + 3,
        )
    put(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows), T)
    return folder


def test_timeline_of_a_step(tmp_path: Path, said: Said) -> None:
    folder = made(tmp_path / "run")
    code, out, _ = said("timeline", str(folder), "--json")
    shown = json.loads(out)
    assert (code, shown["schema"], shown["run_dir"], shown["live"]) == (0, SCHEMA, str(folder), False)
    assert (shown["step"]["step"], shown["step"]["seconds"]) == (3, 10.0), "the newest one that has ended"
    assert shown["step"]["parts"]["generate"] == 9.0
    assert [trial["name"] for trial in shown["step"]["trials"]] == ["t-3"]
    code, out, _ = said("timeline", "--run", str(folder), "--step", "1")
    assert code == 0 and out.startswith("step 1 of ") and "generate" in out and "70 %" in out and "t-1" in out
    code, out, err = said("timeline", str(folder), "--step", "9")
    assert (code, out) == (ExitCode.NO_RUN, "") and "has no step 9; it has steps 1 to 3" in err


def test_timeline_of_a_run_without_steps(tmp_path: Path, said: Said) -> None:
    put(tmp_path / "run" / "events.jsonl", "", T)
    code, out, err = said("timeline", str(tmp_path / "run"), "--json")
    assert (code != 0, out) == (True, "") and "has no step yet" in err


@pytest.mark.parametrize(
    ("running", "first"), [(True, "step 4 of r (still running)"), (False, "step 4 of r")]
)
def test_a_step_that_has_not_ended_is_called_so(running: bool, first: str) -> None:
    step = StepTimeline(step=4, begin=T, end=None, seconds=None, running=running)
    assert next(timeline_lines(TimelineShown("r", "/r", running, step))) == first


def test_disk_as_json(tmp_path: Path, said: Said) -> None:
    folder = made(tmp_path / "run")
    code, out, _ = said("disk", str(folder), "--json")
    disk = json.loads(out)
    rows = {row["kind"]: row for row in disk["rows"]}
    assert (code, disk["schema"], disk["run_dir"]) == (0, SCHEMA, str(folder))
    size = sum(path.stat().st_size for path in (folder / "trials").rglob("*") if path.is_file())
    assert rows["trials"]["files"] == 6 and rows["trials"]["bytes"] >= size > 0
    assert disk["bytes"] == sum(row["bytes"] for row in disk["rows"])
    assert rows["trials"]["may_go"].startswith("liverl-tui clean ")


def test_compare_as_a_picture(tmp_path: Path, said: Said) -> None:
    one, two = made(tmp_path / "a<b>&"), made(tmp_path / "two", better=0.3)
    picture = tmp_path / "picture.svg"
    code, out, err = said("compare", str(one), str(two), "--svg", str(picture))
    assert (code, out) == (0, "") and f"written: {picture}" in err
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    words = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert any("a<b>&" in word for word in words) and any("two" in word for word in words)
    assert "<script" not in text and "href" not in text and "url(" not in text and "a<b>" not in text
    drawn = [element.get("class") for element in root.iter() if element.tag.endswith("polyline")]
    assert drawn.count("l s0") == drawn.count("l s1") >= 1
    code, _, err = said("compare", str(one), str(two), "--svg", str(picture))
    assert code != 0 and picture.read_text() == text, "a file that is there stays"
    assert said("compare", str(one), str(two), "--svg", "-")[:2] == (0, text)
    assert said("compare", str(one), str(two), "--svg", "-", "--json")[0] == 2


def test_overlaid_curves_have_one_axis() -> None:
    low, high, odd = Series(), Series(), Series()
    for step in (1, 2, 3):
        low.add(step, 0.0), high.add(step + 2, 10.0)
        odd.add(step, float("nan"))
    text = overlaid(
        ["low", "high", "odd"], [("m", [low, high, odd]), ("n", [None, high, None]), ("o", [None] * 3)]
    )
    root = ElementTree.fromstring(text)
    first, second, third = (group for group in root.iter() if group.tag.endswith("}g"))
    points = [line.get("points", "").split() for line in first.iter() if line.tag.endswith("polyline")]
    (zero, ten) = points
    assert zero[0] != ten[0] and zero[-1].partition(",")[0] == ten[0].partition(",")[0], "both are at step 3"
    assert float(zero[0].partition(",")[2]) > float(ten[0].partition(",")[2]), "0 is below 10"
    assert sum(mark.get("class") == "n" for mark in first.iter()) == 3
    assert len([1 for line in second.iter() if line.tag.endswith("polyline")]) == 1
    assert not [1 for line in third.iter() if line.tag.endswith("polyline")]
    assert COLUMNS == 2 and root.get("width") == "840"


def test_a_list_that_is_not_whole_says_so(tmp_path: Path, said: Said) -> None:
    folder = made(tmp_path / "run")
    assert "incomplete list" not in said("trials", "ls", "--run", str(folder), "--filter", "reward>=0")[2]
    (folder / "rollouts").mkdir()
    os.mkfifo(folder / "rollouts" / "2.jsonl")
    for more in ((), ("--json",)):
        code, out, err = said("trials", "ls", "--run", str(folder), "--filter", "reward>=0", *more)
        assert code == 0 and "t-3" in out and "incomplete list: rollouts/2.jsonl could not be read: " in err
    listed = json.loads(out)
    assert listed["whole"] is False and [gap.partition(" ")[0] for gap in listed["gaps"]] == [
        "rollouts/2.jsonl"
    ]
