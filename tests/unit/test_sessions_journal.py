"""Journals of sessions: cut anywhere, damaged, written by a service that was killed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from liverl.sessions import journal as journal_module
from liverl.sessions.counters import Counters
from liverl.sessions.journal import (
    Counted,
    DamagedJournal,
    Delivered,
    Doubted,
    Entry,
    Finished,
    Journal,
    Opened,
    Recorded,
    read_journal,
)
from liverl.sessions.messages import Call, Message
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Turn, Versions
from liverl.sessions.wire import Answer

OPENED = Opened("task-1", "key", "/run/trials/task-1", 1.5, Limits({"temperature": 1.0}, max_turns=3))
TURN = Turn("main", None, [1, 2], [3, 4], [-0.5, -1.25], (Versions(7, 2),), b"\x00\xff", 2, "stop", "You are")
ANSWER = Answer(
    "a", 1, "m", Message("assistant", "täxt", "why", (Call("c", "read", "{}"),)), "tool_calls", 2, 2
)
ENTRIES = [
    OPENED,
    Recorded(b"digest", TURN, ANSWER, Counters(num_calls=1, min_global_steps=7)),
    Delivered(b"digest"),
    Finished(),
]


def written(path: Path) -> bytes:
    journal = Journal(path)
    for entry in ENTRIES:
        journal.write(entry)
    journal.close()
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "task-1.jsonl"
    written(path)
    entries = read_journal(path).entries
    assert entries == ENTRIES
    assert entries[1].turn.ids == [3, 4] and entries[1].counters.min_global_steps == 7
    assert path.stat().st_mode & 0o777 == 0o600


def test_cut_at_any_byte_the_whole_lines_before_are_read_and_the_rest_is_removed(tmp_path):
    path = tmp_path / "task-1.jsonl"
    data = written(path)
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        assert read_journal(path).entries == ENTRIES[:whole]
        journal = Journal(path)
        later = Finished() if whole else ENTRIES[0]
        journal.write(later)
        journal.close()
        assert read_journal(path).entries == [*ENTRIES[:whole], later]
        path.unlink()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"type":"finished"}\n', "line 1: the first line does not open a session"),
        (b"\x00\x00\n", "line 1"),
        (b'{"type":"opened","id":"x"}\n', "line 1: Object missing required field"),
    ],
)
def test_a_journal_that_opens_no_session_names_its_line(tmp_path, data, words):
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(DamagedJournal, match=r"x\.jsonl") as raised:
        read_journal(path)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "bad", [b'{"type":"later"}\n', b"\x00\xff\n", b"[" * 5000 + b"\n", b"x\n", b"\n", b"{}\n"]
)
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_line_that_cannot_be_read_costs_what_follows_it(tmp_path, bad, at):
    path = tmp_path / "task-1.jsonl"
    lines = written(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:at], bad, *lines[at:]]))
    contents = read_journal(path)
    assert contents.entries == ENTRIES[:at] and f"task-1.jsonl, line {at + 1}: " in contents.damage


def replace_by(path: Path, what: str) -> None:
    path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "link":
        (path.parent / "target").write_text("precious")
        path.symlink_to(path.parent / "target")
    elif what == "file":
        path.write_text("another\n")


@pytest.mark.parametrize("what", ["nothing", "fifo", "directory", "link", "file"])
def test_a_journal_that_was_removed_is_written_anew(tmp_path, what):
    path = tmp_path / "task-1.jsonl"
    journal = Journal(path)
    journal.write(ENTRIES[0])
    journal.write(ENTRIES[1])
    told: list[str] = []
    journal.whole, journal.told = (lambda: ENTRIES[:2]), told.append
    replace_by(path, what)
    journal.write(ENTRIES[2])
    assert read_journal(path).entries == ENTRIES[:3] and path.stat().st_mode & 0o777 == 0o600
    assert told == ["was removed" if what == "nothing" else "was replaced or changed"]
    journal.write(ENTRIES[3])
    assert read_journal(path).entries == ENTRIES and len(told) == 1
    if what == "link":
        assert (tmp_path / "target").read_text() == "precious"


@pytest.mark.parametrize("removed", ["sessions", "run", "."])
def test_a_journal_whose_folders_were_removed_is_written_anew(tmp_path: Path, removed: str) -> None:
    top = tmp_path / "top"
    path = top / "run" / "sessions" / "task-1.jsonl"
    path.parent.mkdir(parents=True)
    journal = Journal(path)
    journal.write(ENTRIES[0])
    journal.write(ENTRIES[1])
    journal.whole = lambda: ENTRIES[:2]
    shutil.rmtree({"sessions": path.parent, "run": top / "run", ".": top}[removed])
    journal.write(ENTRIES[2])
    assert read_journal(path).entries == ENTRIES[:3]
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", ["appended", "cut", "emptied"])
def test_a_journal_that_was_changed_is_written_anew(tmp_path, change):
    path = tmp_path / "task-1.jsonl"
    journal = Journal(path)
    journal.write(ENTRIES[0])
    journal.write(ENTRIES[1])
    journal.whole = lambda: ENTRIES[:2]
    data = path.read_bytes()
    path.write_bytes({"appended": data + b"junk\n", "cut": data[:-40], "emptied": b""}[change])
    journal.write(ENTRIES[2])
    assert read_journal(path).entries == ENTRIES[:3]
    assert (tmp_path / "task-1.jsonl.set-aside-1").exists(), "what was there is kept"


def test_a_journal_of_which_nothing_is_known_is_not_begun_anew(tmp_path):
    journal = Journal(tmp_path / "task-1.jsonl")
    journal.write(ENTRIES[0])
    journal.path.unlink()
    with pytest.raises(OSError, match="journal was removed"):
        journal.write(ENTRIES[1])


@pytest.mark.parametrize("entry", [Doubted([0]), Delivered(b"r", "a"), Counted(Counters(num_calls=5))])
def test_an_entry_that_finds_no_space_is_written_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Entry
) -> None:
    """The session knows it already, and has nothing more to write of it."""
    written = journal_module.append_to

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    opened = Opened("x", "k", str(tmp_path), 0.0)
    journal = Journal(tmp_path / "x.jsonl")
    journal.write(opened)
    journal.whole = lambda: [opened, entry]
    monkeypatch.setattr(journal_module, "append_to", full)
    with pytest.raises(OSError, match="No space"):
        journal.write(entry)
    monkeypatch.setattr(journal_module, "append_to", written)
    journal.mend()
    assert read_journal(journal.path).entries == [opened, entry]
    journal.mend()
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]
