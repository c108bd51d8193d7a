"""What lies beside the journals when the number of processes changes."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from liverl.sessions import finished, layout
from liverl.sessions.counters import Counters
from liverl.sessions.finished import Ended, FinishedSessions, finished_files, keep_rows, name_of
from liverl.sessions.journal import Journal, Opened
from liverl.sessions.layout import LOCK, lock, misplaced, share_out
from liverl.sessions.shares import Share

NAMES = [f"task-{number:08d}" for number in range(20)]


def ended(name: str) -> Ended:
    return Ended(name, "key", "/trial", Counters(num_calls=2), at=1.0 + NAMES.index(name))


def shares(of: int) -> list[Share]:
    return [Share(number, of) for number in range(of)]


def write(folder: Path, of: int) -> None:
    for share in shares(of):
        sessions = FinishedSessions(folder, share=share)
        for name in filter(share.has, NAMES):
            sessions.add(ended(name))


def read(folder: Path, of: int) -> tuple[int, int, list[str]]:
    """How many have ended, how many calls they had, and which are known to their own process."""
    number = calls = 0
    known = []
    for share in shares(of):
        sessions = FinishedSessions(folder, share=share)
        sessions.read()
        number += len(sessions)
        calls += sessions.total.num_calls
        known += [name for name in NAMES if share.has(name) and sessions.get(name) is not None]
    return number, calls, sorted(known)


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_ended_sessions_go_to_the_files_of_another_number(tmp_path: Path, before: int, after: int) -> None:
    write(tmp_path, before)
    share_out(tmp_path, after)
    assert {path.name for path in finished_files(tmp_path)} <= {name_of(share) for share in shares(after)}
    assert read(tmp_path, after) == (20, 40, NAMES)
    kept = {path: path.stat().st_ino for path in finished_files(tmp_path)}
    share_out(tmp_path, after)
    assert {path: path.stat().st_ino for path in finished_files(tmp_path)} == kept, "nothing to do"


def test_those_that_are_known_as_a_number_only_are_counted_once(tmp_path: Path) -> None:
    first = b'{"earlier":7,"counters":{"num_calls":70}}\n'
    (tmp_path / finished.NAME).write_bytes(first)
    share_out(tmp_path, 3)
    assert read(tmp_path, 3) == (7, 70, [])
    share_out(tmp_path, 2)
    assert read(tmp_path, 2) == (7, 70, [])
    share_out(tmp_path, 1)
    assert (tmp_path / finished.NAME).read_bytes().startswith(b'{"earlier":7')


@pytest.mark.parametrize("step", range(9))
def test_it_may_be_interrupted_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    (tmp_path / "finished.1-of-2.ndjson").write_bytes(b'{"earlier":7,"counters":{"num_calls":70}}\n')
    write(tmp_path, 2)
    steps = 0

    def interrupted(work: object) -> object:
        def call(*args: object, **more: object) -> None:
            nonlocal steps
            if steps == step:
                raise OSError(errno.ENOSPC, "full")
            steps += 1
            work(*args, **more)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patch:
        patch.setattr(finished, "write_atomic", interrupted(finished.write_atomic))
        patch.setattr(Path, "unlink", interrupted(Path.unlink))
        if step < 7:  # the joined file, two old ones, three new ones, and the joined one again
            with pytest.raises(OSError, match="full"):
                share_out(tmp_path, 3)
        else:
            share_out(tmp_path, 3)
    share_out(tmp_path, 4)
    assert read(tmp_path, 4) == (27, 110, NAMES)


def test_a_process_removes_old_rows_of_its_own_sessions_only(tmp_path: Path) -> None:
    share = Share(0, 2)
    paths = {name: keep_rows(tmp_path, name, b"{}") for name in NAMES}
    for path in paths.values():
        os.utime(path, (1.0, 1.0))
    sessions = FinishedSessions(tmp_path, most=2, share=share)
    sessions.add(ended(next(filter(share.has, NAMES))))
    for number in range(6):
        sessions.add(Ended(f"other-{number}", "key", "/trial", Counters(), at=time.time()))
    left = {name for name, path in paths.items() if path.exists()}
    assert left == {name for name in NAMES if not share.has(name)}


def test_a_journal_with_the_name_of_another_session_is_found(tmp_path: Path) -> None:
    for name in NAMES[:3]:
        Journal(tmp_path / f"{name}.jsonl").write(Opened(name, "key", "/trial", 1.0))
    (tmp_path / f"{NAMES[4]}.jsonl").write_text("{")
    (tmp_path / f"{NAMES[5]}.jsonl").write_text("{\n")
    assert misplaced(tmp_path) == []
    (tmp_path / f"{NAMES[0]}.jsonl").rename(tmp_path / "other.jsonl")
    assert misplaced(tmp_path) == [tmp_path / "other.jsonl"]


def test_the_lock_is_waited_for_until_all_that_have_it_have_ended(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    first = lock(folder)
    copy = os.dup(first)  # as in a process that the front has started
    pauses = 0

    def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        os.close(first if pauses == 1 else copy)

    second = lock(folder, pause)
    assert pauses == 2 and (folder / LOCK).stat().st_mode & 0o077 == 0
    os.close(second)


def test_who_holds_the_lock_is_said_while_it_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its process may have been started by one that is gone."""
    first = lock(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[first])
    os.close(first)

    def pause(_seconds: float) -> None:
        holder.communicate(b"\n")

    os.close(lock(tmp_path, pause))
    assert caplog.messages == [f"waiting until the processes of an earlier service have ended: {holder.pid}"]


def test_a_file_system_without_locks_is_no_reason_not_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    os.close(lock(tmp_path))
    assert "has no locks" in caplog.text
    monkeypatch.setattr(layout, "_NO_LOCKS", ())
    with pytest.raises(OSError, match="No locks"):
        lock(tmp_path)
