"""What a run holds on disk, in lines of text."""

from __future__ import annotations

import pytest

from liverl.offline.checkpoints import CheckpointRow
from liverl.offline.run_disk import DiskRow, RunDisk
from liverl_tui.cli.checkpoints import _table
from liverl_tui.text.disk import lines
from liverl_tui.text.table import aligned_in


def row(step: int, **more: object) -> CheckpointRow:
    return CheckpointRow(
        step, f"/runs/p/n/checkpoints/{step}", "complete", "", "embedded", 1, 3, 4096, 1.0, **more
    )  # type: ignore[arg-type]


def test_the_newest_and_the_best_checkpoint_are_at_the_top() -> None:
    """Of 80 checkpoints they were lines 85 to 92, off the screen, and they are the question."""
    kinds = (DiskRow("checkpoints", 240, 80 * 4096, "", ""),)
    kept = tuple(row(step, newest=step == 395, best=step == 60) for step in range(5, 405, 5))
    disk = RunDisk(
        "p/n", "/runs/p/n", 1 << 20, 1 << 30, "", kinds, "/runs/p/n/checkpoints", kept, best="best: step 60"
    )
    for width in (78, 200):
        text = list(lines(disk, width))
        assert text.index("newest complete checkpoint: step 395") < 3 and text.index("best: step 60") < 4
        steps = [int(line.split()[0]) for line in text if line.split()[2:3] == ["complete"]]
        assert steps == list(range(400, 0, -5)), "the newest first"
    none = RunDisk("p/n", "/runs/p/n", 1, 1, "", kinds, "/runs/p/n/checkpoints", (row(5),))
    assert "newest complete checkpoint: none" in list(lines(none))
    empty = RunDisk("p/n", "/runs/p/n", 1, 1, "", kinds, "/c", (), "none is saved")
    assert not any("newest" in line for line in lines(empty))


@pytest.mark.parametrize("width", [78, 200])
def test_the_reward_is_labelled_as_the_mean_of_three_steps(width: int) -> None:
    """Of step 15 it was 0.938 below "reward", and 1.000 in the list of its trials."""
    kinds = (DiskRow("checkpoints", 3, 4096, "", ""),)
    disk = RunDisk("p/n", "/runs/p/n", 1, 1, "", kinds, "/runs/p/n/checkpoints", (row(15, reward=0.938),))
    text = " ".join(" ".join(lines(disk, width)).split())
    assert "validation reward (3 steps)" in text and "0.938" in text
    head, only = _table((row(15, reward=0.938),))
    assert "REWARD (3 STEPS)  STATE" in head
    assert only.index("0.938") + len("0.938") == head.index("  STATE"), "the number is below its head"
    assert only.index("complete") == head.index("STATE")


def test_a_long_word_of_the_last_cell_is_not_cut_where_it_fits_below() -> None:
    """A command whose program has a long path was cut in two beside the table, and could not be copied."""
    command = f"/opt/{'x' * 30}/liverl-tui clean run --trials"
    rows = [("kind", "removed by"), ("trials", command)]
    told = list(aligned_in(rows, 60))
    assert told[1].startswith("trials  /opt/") and " ".join(told[1:]).split() == ["trials", *command.split()]
    told = list(aligned_in(rows, 50))
    assert told[1:] == ["trials", f"    {command.split()[0]}", "    clean run --trials"]
    assert list(aligned_in([("kind", "why"), ("trials", "word " * 12)], 40))[1].startswith("trials  word")
