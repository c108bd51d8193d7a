"""Every file that grows by lines: a line is in it whole or not at all, and is never one with what a crash has cut."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.recorded_turns import KEY, asked, recorded, said

from liverl.embedded.trainer.history import MetricsFiles
from liverl.logs.last_lines import TailIndex
from liverl.model import HostStats
from liverl.observe.history import HistoryWriter, sample_of
from liverl.proxy.runtime.assignments import Assignments
from liverl.proxy.runtime.recorder import Recorder as ProxyRecorder
from liverl.replay.record import Recorder
from liverl.rundir.journal import LineFile
from liverl.sessions import trial_log
from liverl.sessions.counters import Counters
from liverl.sessions.finished import Ended, FinishedSessions
from liverl.sessions.journal import Entry, Journal, Opened, read_journal
from liverl.sessions.messages import Message
from liverl.util import append
from liverl.util.append import append_whole
from liverl.watch.mirror import Mirror

LEFT = 10  # bytes that the disk has left: less than any line


class File(NamedTuple):
    """A file that grows. ``add(n)``: append line ``n``; ``tells``: a line that has no room raises OSError."""

    path: Path
    add: Callable[[int], Any]
    tells: bool = True
    close: Callable[[], Any] = lambda: None


def turns(told: trial_log.ToldTurns | None) -> Callable[[Path], File]:
    def made(folder: Path) -> File:
        def add(number: int) -> None:
            record = trial_log.turn_record(
                "s", "openai", asked([Message("user", f"n{number}")]), recorded(number, said("Yes."))
            )
            trial_log.append_turn(folder, record, KEY, told)

        return File(folder / trial_log.TURNS, add)

    return made


def journal(folder: Path) -> File:
    one = Journal(folder / "s.jsonl")
    entries: list[Entry] = []
    one.whole = lambda: entries

    def write(entry: Entry) -> None:
        one.write(entry)
        entries.append(entry)

    write(Opened("s", KEY, str(folder), 0.0))
    return File(one.path, lambda number: write(recorded(number, said(f"n{number}"), opens=True)))


def ended(folder: Path) -> File:
    sessions = FinishedSessions(folder)
    return File(
        folder / "finished.ndjson",
        lambda number: sessions.add(Ended(f"n{number}", KEY, str(folder), Counters(num_calls=1))),
    )


def tail_index(folder: Path) -> File:
    log = folder / "a.log"
    index = TailIndex(log)

    def add(number: int) -> None:
        with log.open("ab") as file:
            file.write(b"x" if number != 2 else b"")  # below the limit, where there is one
        index._size = 0
        index.tick(1e9 + 10.0 * number)

    return File(index.path, add)


def metrics(folder: Path) -> File:
    (folder / "attempt").mkdir()
    files = MetricsFiles(folder, folder / "attempt")
    return File(files.attempt_path, lambda number: files.append(number, {"reward": 1.0}))


def mirror(folder: Path) -> File:
    one = Mirror(folder, "run")
    return File(one.run.events, lambda number: one.say(1.0, "step", f"n{number}"))


def replay(folder: Path) -> File:
    one = Recorder(folder / "run", folder / "out")
    return File(folder / "out" / "a.jsonl", lambda n: one._append("a.jsonl", [b'{"n": %d}' % n] * 2))


def line_file(folder: Path) -> File:
    one = LineFile(folder / "events.jsonl", durable=False)
    return File(one.path, lambda number: one.append({"number": number}).result(60), close=one.close)


def history(folder: Path) -> File:
    one = HistoryWriter(folder)
    return File(
        folder / "history.jsonl",
        lambda number: one.append(sample_of(float(number), HostStats(), (), {})),
    )


def proxy_recorder(folder: Path) -> File:
    one = ProxyRecorder(folder, (), lambda: None)
    (folder / "trials" / "t").mkdir(parents=True)
    return File(
        folder / "trials" / "t" / "litellm-trajectory.jsonl",
        lambda number: one.submit("t", lambda: {"number": number, "text": "x" * 50}).result(60),
        tells=False,
        close=one.close,
    )


def assignments(folder: Path) -> File:
    one = Assignments(folder / "assignments.jsonl", 1)
    return File(
        folder / "assignments.jsonl",
        lambda number: one.settle(f"n{number}", lambda _before: "http://a:1"),
        close=one.close,
    )


def plain(folder: Path) -> File:
    path = folder / "plain.jsonl"
    return File(path, lambda number: append_whole(path, b'{"number": %d}\n' % number))


WHOLE = {
    "any": plain,
    "turns": turns(None),
    "journal": journal,
    "ended sessions": ended,
    "index of a log": tail_index,
    "metrics": metrics,
    "events of a watched run": mirror,
    "recording": replay,
    "events": line_file,
    "history": history,
}
# Their next line ends what was cut: another process may be the one that writes it.
ENDED = {"records of the proxy": proxy_recorder, "assignments": assignments}


@pytest.fixture(params=[*WHOLE, *ENDED])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[File]:
    one = (WHOLE | ENDED)[request.param](tmp_path)
    yield one
    one.close()


@contextlib.contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file of this process can have more than ``size`` bytes, as if the disk were full then."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def whole(line: bytes) -> bool:
    try:
        json.loads(line)
        return True
    except ValueError:
        return len(line.split()) == 2 and line[:1].isdigit()  # of the index


def test_a_line_without_room_is_told_and_leaves_nothing(file: File) -> None:
    file.add(1)
    before = file.path.read_bytes()
    with disk_of(len(before) + LEFT):
        if file.tells:
            with pytest.raises(OSError):
                file.add(2)
        else:
            with contextlib.suppress(OSError):
                file.add(2)
    cut = file.path.read_bytes()
    file.add(3)
    after = file.path.read_bytes()
    assert after.startswith(before) and after.endswith(b"\n")
    lines = after.removeprefix(before).splitlines()
    assert cut == before, "nothing of the line is left"
    assert all(map(whole, lines)) and lines


@pytest.mark.parametrize("name", WHOLE | ENDED)
def test_what_a_crash_has_cut_is_no_part_of_the_next_line(name: str, tmp_path: Path) -> None:
    file = (WHOLE | ENDED)[name](tmp_path)
    file.add(1)
    file.close()
    before = file.path.read_bytes()
    with file.path.open("ab") as out:
        out.write(before.splitlines()[-1][:7])
    again = tmp_path / "again"
    again.mkdir()
    if name in ("events", "records of the proxy", "history", "assignments"):  # of a new process
        file = (WHOLE | ENDED)[name](again)
        file.close()
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_bytes(before + before.splitlines()[-1][:7])
        for kept in again.iterdir():
            if kept.is_dir():
                (kept / "t").mkdir(exist_ok=True)
        file = _same(name, again)
    file.add(3)
    file.close()
    lines = file.path.read_bytes().removeprefix(before).splitlines()
    assert whole(lines[-1])
    if name in WHOLE:
        assert all(map(whole, lines)), "it is removed"


def _same(name: str, folder: Path) -> File:
    """A new writer for the file that ``folder`` has."""
    if name == "records of the proxy":
        one = ProxyRecorder(folder, (), lambda: None)
        path = folder / "trials" / "t" / "litellm-trajectory.jsonl"
        return File(path, lambda n: one.submit("t", lambda: {"number": n}).result(60), close=one.close)
    return (WHOLE | ENDED)[name](folder)


def test_a_journal_is_read_again_after_a_full_disk(tmp_path: Path) -> None:
    file = journal(tmp_path)
    file.add(1)
    with disk_of(file.path.stat().st_size + LEFT), pytest.raises(OSError) as caught:
        file.add(2)
    assert caught.value.filename == str(file.path)
    file.add(3)
    said_then = [entry.answer.message.text for entry in read_journal(file.path).entries[1:]]  # type: ignore[union-attr]
    assert said_then == ["n1", "n3"]


def test_a_part_that_cannot_be_removed_is_removed_by_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    append_whole(path, b"one\n")

    def refuses(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with disk_of(6), monkeypatch.context() as patched:
        patched.setattr(append.os, "ftruncate", refuses)
        with pytest.raises(OSError, match="File too large") as caught:
            append_whole(path, b"two\n")
    assert path.read_bytes() == b"one\ntw" and caught.value.filename == str(path)
    assert append_whole(path, b"three\n") == 4
    assert path.read_bytes() == b"one\nthree\n"


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=4),
    st.binary(max_size=40).filter(lambda line: b"\n" not in line),
    st.integers(1, 50),
)
def test_whatever_was_cut_the_whole_lines_stay(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cut: bytes, block: int
) -> None:
    path = tmp_path_factory.mktemp("a") / "file"
    kept = b"".join(line + b"\n" for line in lines)
    path.write_bytes(kept + cut)
    before, append._BLOCK = append._BLOCK, block
    try:
        assert append_whole(path, b"new\n") == len(kept)
    finally:
        append._BLOCK = before
    assert path.read_bytes() == kept + b"new\n"


def test_a_torn_line_that_is_none_of_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "LONGEST_TORN", 100)
    monkeypatch.setattr(append, "_BLOCK", 10)
    path = tmp_path / "file"
    path.write_bytes(b"one\n" + b"x" * 200)
    append_whole(path, b"two\n")
    assert path.read_bytes() == b"one\n" + b"x" * 200 + b"\ntwo\n"


@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "other")
    else:
        path.mkdir()
    with pytest.raises(OSError):
        append_whole(path, b"one\n")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("whole", "left"), [(None, b"one\nnew\n"), (4, b"one\nnew\n"), (7, b"one\ntwonew\n")]
)
def test_a_cut_line_is_looked_for_unless_the_file_is_as_it_was_left(
    tmp_path: Path, whole: int | None, left: bytes
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo")
    append_whole(path, b"new\n", whole=whole)
    assert path.read_bytes() == left
