"""The newest checkpoint of a run, as its trainer names it."""

from __future__ import annotations

import os
from pathlib import Path

from liverl.observe.checkpoints import LATEST, newest_checkpoint


def test_the_newest_complete_checkpoint_is_the_one_that_the_trainer_names(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") is None
    for step in (5, 10, 15):
        (tmp_path / f"global_step_{step}").mkdir()
    assert newest_checkpoint(tmp_path) is None, "it is not complete before it is named"
    (tmp_path / LATEST).write_text("10\n")
    assert newest_checkpoint(tmp_path) == 10
    (tmp_path / LATEST).write_text("20")
    assert newest_checkpoint(tmp_path) is None, "it was removed"
    (tmp_path / LATEST).write_text("ten")
    assert newest_checkpoint(tmp_path) is None
    (tmp_path / LATEST).unlink()
    os.mkfifo(tmp_path / LATEST)
    assert newest_checkpoint(tmp_path) is None, "reading it must not wait"
