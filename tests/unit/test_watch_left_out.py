"""What ``watch`` could not read or did not look at is said: it is never good news. Real files; a folder that cannot be
listed is simulated, since a superuser may list all."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from liverl.model import Snapshot
from liverl.watch.background import Background
from liverl.watch.target import Target
from liverl.watch.watcher import Watcher

STEP = "(TaskRunner pid=3) step:1 - critic/rewards/mean:0.5\n"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def seen(folder: Path, until: Callable[[Snapshot], object]) -> Snapshot:
    """What is shown of ``folder`` once that is true, or in the end."""
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=folder.parent)))
    watcher.start()
    deadline = time.monotonic() + 60
    try:
        assert watcher.settle(60)
        while not until(now := watcher.with_real_paths(watcher.poll())) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        watcher.close()
    return now


def fifo(folder: Path, _: pytest.MonkeyPatch) -> Path:
    os.mkfifo(folder / "engine.log")
    return folder / "engine.log"


def fifo_of_metrics(folder: Path, _: pytest.MonkeyPatch) -> Path:
    os.mkfifo(folder / "metrics.jsonl")
    return folder / "metrics.jsonl"


def link_to_itself(folder: Path, _: pytest.MonkeyPatch) -> Path:
    (folder / "slurm-7.out").symlink_to("slurm-7.out")
    return folder / "slurm-7.out"


def folder_that_cannot_be_listed(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    (folder / "logs").mkdir()
    scandir = os.scandir

    def refused(path: str) -> object:
        if os.fspath(path) == str(folder / "logs"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    patch.setattr("liverl.watch.folder.os.scandir", refused)
    return folder / "logs"


def log_that_the_judge_cannot_read(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    from liverl.watch import verdicts

    read = verdicts.read_log

    def refused(path: Path, *more: object) -> object:
        if path.name == "other.log":
            raise OSError(5, "Input/output error", str(path))
        return read(path, *more)  # type: ignore[arg-type]

    (folder / "other.log").write_text(OUT_OF_MEMORY)
    patch.setattr("liverl.watch.verdicts.read_log", refused)
    return folder / "other.log"


@pytest.mark.parametrize(
    "damage",
    [
        fifo,
        fifo_of_metrics,
        link_to_itself,
        folder_that_cannot_be_listed,
        log_that_the_judge_cannot_read,
    ],
    ids=lambda damage: damage.__name__,
)
def test_what_cannot_be_read_is_an_alert(
    damage: Callable[[Path, pytest.MonkeyPatch], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(STEP)
    path = damage(folder, monkeypatch)
    now = seen(folder, lambda one: one.unreadable)
    assert [one.path for one in now.unreadable] == [str(path)] and now.unreadable[0].why
    (alert,) = (one for one in now.symptoms if one.id == "file_unreadable")
    assert str(path) in alert.title and "remove the file" not in alert.fix


def many_logs(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr("liverl.watch.units.MOST_LOGS", 2)
    for number in range(4):
        (folder / f"part{number}.log").write_text("working\n")
        os.utime(folder / f"part{number}.log", (1e9 + number, 1e9 + number))
    return "3 logs older than the newest 2"


def more_logs_than_are_judged(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr("liverl.watch.verdicts.LOGS", 1)
    (folder / "old.log").write_text(OUT_OF_MEMORY)
    os.utime(folder / "old.log", (1e9, 1e9))
    return "1 log older than the newest 1"


def a_large_log(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr("liverl.watch.verdicts.MOST", 1 << 20)
    (folder / "engine.log").write_text(OUT_OF_MEMORY + "working\n" * (1 << 18))
    return "the beginning of "


def deep_folders(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr("liverl.watch.folder.DEPTH", 2)
    (folder / "a/b/c").mkdir(parents=True)
    return "more than 2 folders deep"


def many_files(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr("liverl.watch.folder.ENTRIES", 2)
    (folder / "a/b").mkdir(parents=True)
    return "behind the first 2 files and folders"


@pytest.mark.parametrize(
    "limit",
    [many_logs, more_logs_than_are_judged, a_large_log, deep_folders, many_files],
    ids=lambda limit: limit.__name__,
)
def test_a_limit_that_was_met_is_an_alert(
    limit: Callable[[Path, pytest.MonkeyPatch], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(STEP)
    words = limit(folder, monkeypatch)
    now = seen(folder, lambda one: any(alert.id == "not_all_seen" for alert in one.symptoms))
    (alert,) = (one for one in now.symptoms if one.id == "not_all_seen")
    assert words in alert.cause and len(alert.title) <= 60


def test_logs_that_are_still_being_read_are_no_run_without_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from liverl.watch import verdicts

    folder, read, goes_on = tmp_path / "run", verdicts.read_log, threading.Event()
    folder.mkdir()
    (folder / "train.log").write_text(STEP + OUT_OF_MEMORY)

    def slow(path: Path, *more: object) -> object:
        assert goes_on.wait(60)
        return read(path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("liverl.watch.verdicts.read_log", slow)
    monkeypatch.setattr("liverl.watch.watcher.UNJUDGED_S", 0.0)
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=tmp_path)))
    watcher.start(0.1)
    try:
        (alert,) = watcher.poll().symptoms
        assert alert.id == "not_all_seen" and "its logs say" in alert.cause
        goes_on.set()
        assert watcher.settle(60)
        assert [one.id for one in watcher.poll().symptoms] == ["log:cuda-oom-short"]
    finally:
        goes_on.set()
        watcher.close()


def test_a_folder_of_which_all_was_read_has_neither(tmp_path: Path) -> None:
    """Files that nobody would read as logs may be unreadable."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(STEP)
    (folder / "gone.log").symlink_to("nowhere")
    os.mkfifo(folder / "control")
    now = seen(folder, lambda one: one.step)
    assert now.unreadable == () and now.symptoms == ()


@pytest.mark.parametrize(
    ("error", "path", "why"),
    [
        (OSError(5, "Input/output error", "/x/a.log"), "/x/a.log", "Input/output error"),
        (OSError("broken"), "test", "broken"),
        (ValueError("x"), "test", "the look failed; the program's log says why"),
    ],
)
def test_a_look_that_failed_is_told_until_one_succeeds(error: Exception, path: str, why: str) -> None:
    errors = [error]

    def work() -> int:
        if errors:
            raise errors.pop()
        return 7

    background = Background("test", work, 600.0, 1)
    background.start()
    assert background.wait(60) and background.value == 1
    assert background.problem is not None
    assert (background.problem.path, background.problem.why) == (path, why)
    assert background.again(30) and (background.value, background.problem) == (7, None)
    background.close()
