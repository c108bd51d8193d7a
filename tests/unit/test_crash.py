"""What is said when the interface crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.rundir.layout import RunDir
from liverl_tui.app.crash import FILE, report


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_recording_or_an_ended_run_is_not_said_to_run(tmp_path: Path, goes_on: bool) -> None:
    said = report(ValueError("x"), RunDir(tmp_path), in_run=True, goes_on=goes_on)
    assert ("is still running" in said) is goes_on
    assert said.startswith("liverl-tui has crashed (ValueError)") and said.endswith(FILE)
