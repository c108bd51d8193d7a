"""Waking up for files that change: real files, real inotify and its limits, the real backend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control import blocking
from liverl.observe import file_watch
from liverl.observe.file_watch import MOST, FileWatch, file_system, on_local_disk
from liverl.plan.spec import Settings


class Told:
    """A watch that counts what it tells. Paths that hold ``quiet`` do not count. ``seen``: how many changes had been
    told when a path was judged first."""

    def __init__(self) -> None:
        self.changes = 0
        self.failures: list[str] = []
        self.seen: dict[str, int] = {}
        self.watch = FileWatch(self._changed, self.failures.append, self._relevant)

    def _changed(self) -> None:
        self.changes += 1

    def _relevant(self, path: str) -> bool:
        self.seen.setdefault(path, self.changes)
        return "quiet" not in path

    def after(self, path: Path) -> None:
        """Write until it is told: a watch that is being set up tells nothing yet."""
        before = self.changes

        def told() -> bool:
            with path.open("a") as file:
                file.write("x")
            return self.changes > before

        wait_until(told, what=f"the news of {path}")

    def judged(self, path: Path) -> int:
        """Write a file once, and wait until it is judged; how many changes had been told by then."""
        path.write_text("x")
        wait_until(lambda: str(path) in self.seen, what=f"{path}")
        return self.seen[str(path)]


@pytest.fixture
def told() -> Iterator[Told]:
    one = Told()
    yield one
    one.watch.close()


def inotify(pid: int | str = "self") -> int:
    """How many inotify instances a process has open."""
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += "inotify" in os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue  # closed meanwhile
    return found


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "file watch"]


def test_a_change_is_told_and_what_does_not_count_is_not(told: Told, tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    told.watch.watch([tmp_path])
    told.after(tmp_path / "metrics.jsonl")
    told.judged(tmp_path / "one")  # what was written before it has been told
    wait_until(lambda: told.changes > told.seen[str(tmp_path / "one")], what="the news of it")
    before = told.judged(tmp_path / "quiet")
    (tmp_path / "deeper" / "file").write_text("x")
    # This is judged after the others have been: had they counted, more would have been told.
    assert told.judged(tmp_path / "two") == before
    assert str(tmp_path / "deeper" / "file") not in told.seen, "it is not in a directory that is watched"


def test_other_directories_replace_the_first_and_nothing_is_left_open(told: Told, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(6)]
    for folder in folders:
        folder.mkdir()
        told.watch.watch([folder])
        told.watch.watch([folder])
        told.after(folder / "file")
    wait_until(lambda: len(watching()) == 1 and inotify() == 1, what="the end of the earlier ones")
    told.watch.watch([])
    wait_until(lambda: not watching() and inotify() == 0, what="the end of the last one")


def test_a_directory_that_goes_and_comes_back_is_watched_again(told: Told, tmp_path: Path) -> None:
    folder, beside = tmp_path / "trials", tmp_path / "beside"
    beside.mkdir()
    wanted = [folder, beside, tmp_path]  # the first is not there yet
    told.watch.watch(wanted)
    told.after(beside / "file")
    for name in ("first", "second"):
        folder.mkdir()
        wait_until(lambda one=folder / name: _again(told, wanted, one), what="news of the new directory")
        shutil.rmtree(folder)
        wait_until(lambda one=beside / name: _again(told, wanted, one), what="news of the others")
    assert not told.failures


def _again(told: Told, wanted: list[Path], path: Path) -> bool:
    """Write once more, as a watch that is being set up tells nothing yet; whether the file was ever judged."""
    told.watch.watch(wanted)
    path.write_text(str(time.monotonic()))
    return str(path) in told.seen


def test_only_so_many_directories_are_watched(told: Told, tmp_path: Path) -> None:
    folders = [tmp_path / f"{number:03}" for number in range(MOST + 1)]
    for folder in folders:
        folder.mkdir()
    told.watch.watch(folders)
    told.after(folders[-2] / "file")
    assert told.watch._wanted == frozenset(folders[:-1])


def test_what_is_not_on_a_local_disk_is_left_to_polling(told: Told, tmp_path: Path) -> None:
    assert file_system(Path("/proc/self")) == "proc" and file_system(Path("/dev/shm/gone/x")) == "tmpfs"
    assert on_local_disk(tmp_path) and not on_local_disk(Path("/proc"))
    assert not file_watch.LOCAL & {
        "nfs",
        "nfs4",
        "cifs",
        "lustre",
        "gpfs",
        "9p",
        "fuse.sshfs",
        "ceph",
        "virtiofs",
    }
    told.watch.watch([Path("/proc/self")])
    wait_until(lambda: not watching(), what="the end of a watch without a directory")
    assert inotify() == 0 and not told.failures


LIMITED = """
import sys, threading
from pathlib import Path
from liverl.observe.file_watch import FileWatch
limit, first, second = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
Path(f"/proc/sys/user/{limit}").write_text("0")
failures = []
watch = FileWatch(lambda: None, failures.append, lambda _: True)
for wanted in ([first], [first, second], [second]):
    watch.watch(wanted)
    for thread in threading.enumerate():
        if thread.name == "file watch":
            thread.join()
print(failures)
"""


@pytest.mark.parametrize(
    ("limit", "sysctl"),
    [("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches")],
)
def test_a_limit_of_inotify_is_told_once(limit: str, sysctl: str, tmp_path: Path) -> None:
    argv = ["unshare", "--user", "--map-root-user", sys.executable, "-c", LIMITED, limit]
    second = tmp_path / "second"
    second.mkdir()
    done = subprocess.run([*argv, str(tmp_path), str(second)], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"no user namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("inotify") == 2 and f"fs.inotify.{sysctl}" in done.stdout, "one failure"


def test_a_process_that_forgets_to_close_its_watch_ends_all_the_same(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from liverl.observe.file_watch import FileWatch; "
        "FileWatch(print, print, print).watch([Path(sys.argv[1])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


# --- in the backend ---------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ToyRun]:
    # Polling comes too late for this test: what is told meanwhile, the watch has told.
    one = make_run(tmp_path / "run", [toy("a", "sleep")], settings=Settings(trials_interval=3600.0))
    yield one
    one.end()


def test_a_client_hears_of_steps_and_trials_at_once_and_nothing_is_watched_without_one(run: ToyRun) -> None:
    pid = run.start()
    run.until("a", "ready")
    assert inotify(pid) == 0
    with closing(blocking.Connection(run.run_dir)):
        wait_until(lambda: inotify(pid) == 1, what="the watch")
        step = 0

        def told() -> bool:
            nonlocal step
            step += 1
            with (run.run_dir / "metrics.jsonl").open("a") as file:
                file.write(f'{{"step": {step}, "data": {{}}}}\n')
            return (run.snapshot().step or 0) > 0

        wait_until(told, what="a step")
        for number in range(1, 4):  # the directories of later steps are watched as they come
            for name in ("one-1", "two-1"):
                path = f"trials/step_{number:04}/{name}"
                (run.run_dir / path).mkdir(parents=True)
                wait_until(lambda p=path: p in {t.path for t in run.snapshot().trials.newest}, what=path)
    wait_until(lambda: inotify(pid) == 0, what="the end of the watch")
