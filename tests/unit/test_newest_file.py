"""The newest content of a file, over a storage that fails, is slow or hangs. SIMULATED: what the storage does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.newest import Storage, idle

from liverl.util import newest_file
from liverl.util.newest_file import NewestFile

FULL = OSError(28, "No space left on device")


@dataclass
class Observed(Storage):
    """A storage with one file, and what that tells."""

    path: Path = Path()
    written: list[bytes] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def file(self) -> NewestFile:
        return NewestFile(
            self.path,
            written=self.written.append,
            failed=lambda text: self.told.append(f"failed: {text}"),
            late=lambda text: self.told.append(f"late: {text}"),
            mode=0o600,
        )


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    made = Observed(path=tmp_path / "list.json")
    monkeypatch.setattr(newest_file, "write_atomic", made.write)
    yield made
    made.end()


async def test_what_was_put_is_written_once_and_told(storage: Observed) -> None:
    file = storage.file()
    assert not file.pending
    for _ in range(3):
        file.put(b"a")
        assert file.pending
    await storage.answered(file, None)
    assert not file.pending
    file.put(b"a")
    assert (storage.begun, storage.written, storage.told) == ([b"a"], [b"a"], [])
    assert storage.path.read_bytes() == b"a" and storage.path.stat().st_mode & 0o777 == 0o600
    assert threading.get_ident() not in storage.threads


async def test_of_what_comes_during_a_write_only_the_newest_is_written(storage: Observed) -> None:
    file = storage.file()
    file.put(b"a")
    await storage.until_begun(1)
    for data in (b"b", b"c", b"d"):
        file.put(data)
    await storage.answered(file, None, None)
    assert storage.begun == storage.written == [b"a", b"d"]
    assert storage.path.read_bytes() == b"d" and not file.pending


async def test_what_the_file_had_before_is_written_again_after_another_content(storage: Observed) -> None:
    file = storage.file()
    file.put(b"a")
    await storage.answered(file, None)
    file.put(b"b")
    await storage.until_begun(2)
    file.put(b"a")
    await storage.answered(file, None, None)
    assert storage.path.read_bytes() == b"a" and storage.begun == [b"a", b"b", b"a"]


async def test_a_write_that_failed_is_told_and_tried_again_by_the_next_put(storage: Observed) -> None:
    file = storage.file()
    for _ in range(2):
        file.put(b"a")
        await storage.answered(file, FULL)
        assert file.pending and storage.written == []
    assert storage.told == ["failed: list.json: No space left on device"] * 2
    file.put(b"a")
    await storage.answered(file, None)
    assert storage.written == [b"a"] and not file.pending


async def test_a_failed_write_of_old_content_keeps_the_newest_from_nothing(storage: Observed) -> None:
    file = storage.file()
    file.put(b"a")
    await storage.until_begun(1)
    file.put(b"b")
    await storage.answered(file, FULL, None)
    assert storage.written == [b"b"] and len(storage.told) == 1


async def test_without_another_thread_the_next_put_tries_again(
    storage: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = storage.file()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        file.put(b"a")
        await idle(file)
    assert storage.told == ["failed: list.json: can't start new thread"]
    file.put(b"a")
    await storage.answered(file, None)
    assert storage.written == [b"a"]


async def test_a_write_that_hangs_is_told_once_and_written_when_it_can_be(
    storage: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_file, "LATE", 0.02)
    file = storage.file()
    file.put(b"a")
    async with asyncio.timeout(60):
        while not storage.told:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
    for data in (b"b", b"a", b"b"):
        file.put(data)
    (told,) = storage.told
    assert (
        told.startswith(f"late: writing {storage.path} has taken longer than 0.02 s") and "check it" in told
    )
    monkeypatch.setattr(newest_file, "LATE", 60.0)
    await storage.answered(file, None, None)
    assert storage.begun == [b"a", b"b"] and storage.path.read_bytes() == b"b" and len(storage.told) == 1


async def test_a_write_that_has_ended_is_not_late(storage: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def note(delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, callback, *args)
        if delay == newest_file.LATE:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", note)
    file = storage.file()
    for answer in (FULL, None):
        file.put(b"a")
        await storage.answered(file, answer)
    assert [timer.cancelled() for timer in timers] == [True, True]


def test_a_write_that_hangs_keeps_no_loop_from_its_end(storage: Observed) -> None:
    async def use() -> None:
        storage.file().put(b"a")
        await storage.until_begun(1)

    asyncio.run(use())  # returns, although the thread has not


async def test_its_directory_is_made_but_none_above(tmp_path: Path) -> None:
    told: list[str] = []
    for folder in (tmp_path / "a", tmp_path / "b" / "c"):
        path = folder / "f"
        nothing = told.append
        file = NewestFile(path, written=lambda _: None, failed=told.append, late=nothing, make_folder=True)
        file.put(b"x")
        await idle(file)
    assert (tmp_path / "a" / "f").read_bytes() == b"x"
    assert told == ["f: No such file or directory"]


STEP = st.one_of(st.sampled_from([b"a", b"b", b"c"]), st.just("written"), st.just("fails"))


@given(st.lists(STEP, max_size=12))
def test_the_last_content_wins_whatever_came_before(steps: list[bytes | str]) -> None:
    import tempfile

    async def play(storage: Observed) -> None:
        file, last = storage.file(), None
        for step in steps:
            if isinstance(step, bytes):
                last = step
                file.put(step)
            else:
                storage.answers.put(None if step == "written" else FULL)
            await asyncio.sleep(0)
        while file.pending or file._writing is not None:
            assert last is not None
            file.put(last)
            storage.answers.put(None)
            await asyncio.sleep(0.001)
        assert (storage.path.read_bytes() if storage.path.exists() else None) == last
        assert not storage.written or storage.written[-1] == last

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        made = Observed(path=Path(name) / "f")
        patch.setattr(newest_file, "write_atomic", made.write)
        asyncio.run(play(made))
