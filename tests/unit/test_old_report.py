"""The report that an earlier version has left: its sentences are those that every screen of this one says."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.ended_runs import a_run
from msgspec.structs import replace

from liverl.diagnose.where.words import lines
from liverl.model import StepTime
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot
from liverl_tui.cli.main import run

TIME = StepTime(10, 4.6, {"model": 0.84, "tool": 0.14}, queue=0.33, queue_key="harbor_runtime.num_workers")
OLD = "no single bottleneck: trials spend 33 % of their time in the queue"


def left(root: Path, shares: str) -> RunDir:
    """A run that has ended, with the report that its backend has written."""
    there = RunDir(a_run(root, "one"))
    last = there.read_snapshot()
    assert last is not None
    (there.path / "snapshot.json").write_bytes(encode_snapshot(replace(last, step_time=TIME)))
    there.report(1).write_text(
        f"# exp/one, attempt 1: done\n\n- {shares}\n- {OLD}\n- first step after 21 s\n"
    )
    return there


@pytest.mark.parametrize("options", [(), ("--html",)])
def test_the_report_names_what_a_step_waits_for_as_the_timeline_does(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line below "the model 84 %" it said "no single bottleneck"."""
    shares, bottleneck = lines(TIME)
    there = left(tmp_path, shares)
    assert run(["report", str(there.path), *options]) == 0
    out = capsys.readouterr().out
    assert bottleneck.startswith("84 % of the step the trials wait for the model")
    assert bottleneck in out and "no single bottleneck" not in out
    assert shares in out and "first step after 21 s" in out


def test_of_other_figures_the_report_keeps_its_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = left(tmp_path, "a step takes 9.9 s (the median of the newest 10 steps): the model 20 %")
    assert run(["report", str(there.path)]) == 0
    assert OLD in capsys.readouterr().out
