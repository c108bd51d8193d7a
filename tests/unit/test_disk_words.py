"""What a run holds on disk, in words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.made_checkpoints import embedded

import liverl.offline.run_disk as module
from liverl.offline.checkpoints import CheckpointRow, list_checkpoints
from liverl.offline.run_disk import CHECKPOINTS, DiskRow, RunDisk, run_disk
from liverl_tui.text.disk import WIDE, lines

SMALL = 40 << 10


def disk(*, inside: bool) -> RunDisk:
    """A run with 80 small checkpoints, of which the newest stays; ``inside``: of its directory."""
    folder = "/r/checkpoints" if inside else "/elsewhere"
    rows = tuple(
        CheckpointRow(
            step,
            f"{folder}/{step}",
            "complete",
            "",
            "embedded",
            1,
            3,
            SMALL,
            1.0,
            keeps="newest" * (step == 80),
        )
        for step in range(1, 81)
    )
    kinds = (
        DiskRow(CHECKPOINTS, 240, 80 * SMALL, "liverl-tui checkpoints prune r", "", 79 * SMALL),
    ) * inside
    return RunDisk("exp/r", "/r", 80 * SMALL, 1, "", kinds, folder, rows, prune=79 * SMALL)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("width", [80, WIDE])
def test_how_many_checkpoints_would_go_is_said_beside_sizes_that_are_alike(inside: bool, width: int) -> None:
    """`3.1M of 3.1M` of 80 checkpoints read as if all of them would go."""
    text = " ".join(" ".join(lines(disk(inside=inside), width)).split())
    assert "3.1M of 3.1M, 79 of 80" in text


def saved_meanwhile(base: Path) -> None:
    embedded(base, 3)


def removed_meanwhile(base: Path) -> None:
    shutil.rmtree(base / "global_step_1")


@pytest.mark.parametrize("meanwhile", [saved_meanwhile, removed_meanwhile])
def test_the_size_of_the_checkpoints_is_that_of_those_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], None]
) -> None:
    """Of a live run the sum was of another moment than the list: 168K above 5 checkpoints of 40K."""
    run = tmp_path / "exp" / "r"
    for step in (1, 2):
        embedded(run / "checkpoints", step)

    def looked_at(*args: Any) -> object:
        found = list_checkpoints(*args)
        meanwhile(run / "checkpoints")
        return found

    monkeypatch.setattr(module, "list_checkpoints", looked_at)
    found = run_disk(run)
    (kind,) = [row for row in found.rows if row.kind == CHECKPOINTS]
    assert [row.step for row in found.checkpoints] == [1, 2]
    assert kind.bytes == sum(row.bytes for row in found.checkpoints) > 0
    assert kind.files == sum(row.files for row in found.checkpoints) > 0
    text = "\n".join(lines(found, WIDE, "10:47:17"))
    assert text.splitlines()[0].endswith("; counted at 10:47:17")


def test_what_of_a_checkpoint_could_not_be_counted_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "exp" / "r"
    folder = embedded(run / "checkpoints", 1)
    monkeypatch.setattr("liverl.observe.checkpoint_files.measure", refuse)
    found = run_disk(run)
    assert found.problems == (f"{folder}: No such device",)
    assert [row.step for row in found.checkpoints] == [1]


def refuse(path: Path) -> object:
    raise OSError(19, "No such device", str(path))
