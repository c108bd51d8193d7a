"""What is kept of sessions that have ended: the newest ones, and the numbers of all."""

from __future__ import annotations

import json
import os
import shutil
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.recorded_turns import KEY

from liverl.sessions import finished, trial_log
from liverl.sessions.counters import Counters
from liverl.sessions.finished import KEPT_S, NAME, Ended, FinishedSessions, keep_rows
from liverl.sessions.result import SessionResult
from liverl.sessions.segments import Row, Versions
from liverl.util import clocks, regular_file

NOW = time.time()
USER = {"role": "user", "content": "What does the file say?"}


def script(_prompt: str, turn: int) -> str:
    return f"Reply {turn}."


def ended(number: int, at: float = NOW, **other: Any) -> Ended:
    counters = Counters(
        num_calls=1, min_global_steps=number, max_global_steps=number, overridden={"top_p": 1}
    )
    return Ended(f"t-{number}", KEY, f"/trials/t-{number}", counters, at=at, **other)


def totals(sessions: FinishedSessions) -> tuple[int, int, int | None, int | None, dict[str, int]]:
    total = sessions.total
    return len(sessions), total.num_calls, total.min_global_steps, total.max_global_steps, total.overridden


def read(folder: Path, most: int) -> FinishedSessions:
    sessions = FinishedSessions(folder, most)
    sessions.read()
    return sessions


@given(st.integers(1, 6), st.integers(0, 40), st.sets(st.integers(0, 40)))
def test_however_many_have_ended_the_newest_are_kept_and_all_are_counted(
    tmp_path_factory: pytest.TempPathFactory, most: int, count: int, restarts: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("s")
    sessions = read(folder, most)
    for number in range(count):
        if number in restarts:
            sessions = read(folder, most)
        sessions.add(ended(number))
        lines = (folder / NAME).read_bytes().splitlines()
        assert len(lines) <= 2 * most + 1, "the file does not grow without end"
    expected = (
        count,
        count,
        0 if count else None,
        count - 1 if count else None,
        {"top_p": count} if count else {},
    )
    assert totals(sessions) == totals(read(folder, most)) == expected
    newest = [f"t-{number}" for number in range(max(0, count - most), count)]
    assert all(sessions.get(name) is not None for name in newest)
    again = read(folder, most)
    assert [name for name in (f"t-{n}" for n in range(count)) if again.get(name) is not None] == newest


def test_a_file_of_a_version_that_kept_all_is_read_and_shortened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is larger than what is read as a whole."""
    monkeypatch.setattr(regular_file, "LARGEST", 2000)
    old = [{"id": f"t-{n}", "key": KEY, "trial_dir": "/t", "counters": {"num_calls": 2}} for n in range(500)]
    lines = b"".join(b"\n" + msgspec.json.encode(each) + b"\n" for each in old)
    (tmp_path / NAME).write_bytes(lines[:-20] + b'\n{"id": 7}\n\xff\n' + b"x" * 300)
    sessions = read(tmp_path, 50)
    assert (len(sessions), sessions.total.num_calls) == (499, 998), "the last line was cut"
    assert len((tmp_path / NAME).read_bytes().splitlines()) == 51
    assert sessions.get("t-498") is not None and sessions.get("t-448") is None
    assert totals(read(tmp_path, 50)) == totals(sessions)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_a_file_without_a_newline_costs_little(tmp_path: Path) -> None:
    with (tmp_path / NAME).open("wb") as file:
        file.truncate((256 << 20) + 1)
    tracemalloc.start()
    try:
        assert len(read(tmp_path, 50)) == 0
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_sessions_of_another_day_are_not_kept(tmp_path: Path) -> None:
    sessions = read(tmp_path, 10)
    for number in range(21):
        sessions.add(ended(number, NOW - (KEPT_S + 1 if number < 15 else 0)))
    kept = [number for number in range(21) if sessions.get(f"t-{number}") is not None]
    assert kept == list(range(15, 21)) and totals(sessions)[0] == 21


@pytest.mark.parametrize("when", ["before the new file", "before its rename", "on a full disk"])
def test_a_crash_while_the_file_is_shortened_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Killed(BaseException):
        pass

    sessions = read(tmp_path, 5)
    for number in range(10):
        sessions.add(ended(number))
    error: BaseException = OSError(28, "No space left on device") if when == "on a full disk" else Killed()

    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        if when == "before its rename":
            patched.setattr(os, "replace", fails)
        else:
            patched.setattr(finished, "write_atomic", fails)
        if when == "on a full disk":
            for number in range(10, 13):
                sessions.add(ended(number))
            assert len(caplog.records) == 1 and "cannot be shortened" in caplog.text, "not with each session"
            assert totals(sessions)[:2] == (13, 13)
        else:
            with pytest.raises(Killed):
                sessions.add(ended(10))
    count = 13 if when == "on a full disk" else 11
    assert totals(read(tmp_path, 100)) == (count, count, 0, count - 1, {"top_p": count}), (
        "all lines are there"
    )
    assert totals(read(tmp_path, 5)) == (count, count, 0, count - 1, {"top_p": count})


def row() -> Row:
    return Row("main", 1, [1, 2, 3], [1, 1], [-0.5, -0.25], (Versions(1, 2),))


def test_rows_beside_the_journals_are_the_owners_and_go_with_their_session(tmp_path: Path) -> None:
    result = SessionResult([row()], {"hidden": 3}, Counters(num_calls=2))
    document = trial_log.rows_document("t-0", result, trial_log.Conversation(), KEY)
    path = keep_rows(tmp_path, "t-0", document)
    other = keep_rows(tmp_path, "t-1", document)  # of a session that is ending
    assert path.stat().st_mode & 0o777 == 0o600
    one = Ended("t-0", KEY, "/gone", result.counters, str(path), NOW)
    assert one.result() == result
    sessions = read(tmp_path, 2)
    sessions.add(one)
    last = keep_rows(tmp_path, "t-5", document)
    for each in (path, last):
        os.utime(each, (NOW - KEPT_S - 1,) * 2)
    os.utime(other, (NOW, NOW))
    for number in range(2, 7):
        sessions.add(ended(number))
    assert sessions.get("t-0") is None and not path.exists() and other.exists()
    assert sessions.get("t-5") is not None and last.exists()


def test_ten_thousand_sessions_are_answered_for_and_one_more_is_not(tmp_path: Path) -> None:
    lines = [msgspec.json.encode(ended(number)) + b"\n" for number in range(10_001)]
    for count, oldest in ((10_000, "t-0"), (10_001, "t-1")):
        (tmp_path / NAME).write_bytes(b"".join(lines[:count]))
        sessions = FinishedSessions(tmp_path)
        sessions.read()
        kept = [name for name in ("t-0", "t-1", "t-2") if sessions.get(name) is not None]
        assert kept[0] == oldest and len(sessions) == sessions.total.num_calls == count


@pytest.mark.parametrize("at", [0.0, NOW], ids=["unknown end", "known end"])
def test_rows_of_no_session_go_after_a_day_whether_or_not_the_end_is_known(tmp_path: Path, at: float) -> None:
    old, new = (keep_rows(tmp_path, name, b"{}") for name in ("t-8", "t-9"))
    os.utime(old, (NOW - KEPT_S - 60,) * 2)
    os.utime(new, (NOW - KEPT_S + 3600,) * 2)
    sessions = read(tmp_path, 2)
    for number in range(5):
        sessions.add(ended(number, at))
    assert not old.exists() and new.exists()


# -- of a service


@pytest.mark.parametrize("how", ["removed", "a file", "a link that leads nowhere"])
async def test_a_session_whose_trials_directory_is_gone_ends_with_its_rows(
    host: Any, replica: Any, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    opened = await host.open(deadline=time.time() + 1000)
    await host.chat(opened, USER)
    folder = host.folder / "trials" / opened["id"]
    shutil.rmtree(folder)
    if how == "a file":
        folder.write_text("")
    elif how != "removed":
        folder.symlink_to(host.folder / "nowhere")
    (one,) = await host.finish()
    assert sum(one["traj_response_mask"]) == len(replica.replies[0])
    (kept,) = (host.folder / "sessions").glob("*.rows.json")
    assert kept.stat().st_mode & 0o777 == 0o600 and host.store.facts()["open"] == 0
    assert len([record for record in caplog.records if "its rows are in" in record.message]) == 1
    for again in (False, True):
        if again:
            await host.stop()
            await host.start()
        assert await host.finish() == [one]


async def test_such_a_session_expires_and_is_logged_once(
    host: Any, replica: Any, caplog: pytest.LogCaptureFixture
) -> None:
    now = clocks.ran()
    opened = await host.open(seconds=1000)
    await host.chat(opened, USER)
    shutil.rmtree(host.folder / "trials" / opened["id"])
    for _ in range(3):
        await host.store.expire(now + 5000)
    assert host.store.facts()["open"] == 0
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_a_session_that_cannot_be_ended_is_logged_once_and_tried_again(
    host: Any, replica: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clocks.ran()
    opened = await host.open(seconds=1000)
    await host.chat(opened, USER)
    shutil.rmtree(host.folder / "trials" / opened["id"])

    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("liverl.sessions.store.keep_rows", full)
        for _ in range(3):
            await host.store.expire(now + 5000)
        assert host.store.facts()["open"] == 1
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    await host.store.expire(now + 5000)
    assert host.store.facts()["open"] == 0


async def test_a_turn_that_could_not_be_written_to_its_trial_is_written_at_the_end(
    host: Any, replica: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await host.open()
    append = trial_log.append_turn

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(trial_log, "append_turn", full)
        status, _ = await host.chat(opened, USER)
        assert status == 500
    assert append is trial_log.append_turn
    await host.finish()
    (line,) = (host.folder / "trials" / opened["id"] / trial_log.TURNS).read_text().splitlines()
    assert json.loads(line)["request_body"]["messages"] == [USER]
