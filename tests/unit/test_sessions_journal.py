"""Journals of sessions: cut anywhere, damaged, written by a service that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.sessions.counters import Counters
from liverl.sessions.journal import (
    DamagedJournal,
    Delivered,
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
    entries = read_journal(path)
    assert entries == ENTRIES
    assert entries[1].turn.ids == [3, 4] and entries[1].counters.min_global_steps == 7
    assert path.stat().st_mode & 0o777 == 0o600


def test_cut_at_any_byte_the_whole_lines_before_are_read_and_the_rest_is_removed(tmp_path):
    path = tmp_path / "task-1.jsonl"
    data = written(path)
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        assert read_journal(path) == ENTRIES[:whole]
        journal = Journal(path)
        later = Finished() if whole else ENTRIES[0]
        journal.write(later)
        journal.close()
        assert read_journal(path) == [*ENTRIES[:whole], later]
        path.unlink()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"type":"finished"}\n', "line 1: the first line does not open a session"),
        (b"\x00\x00\n", "line 1"),
        (b'{"type":"opened","id":"x"}\n', "line 1: Object missing required field"),
        (b'{"type":"opened","id":"x","key":"k","trial_dir":"/t","created":1}\n{"type":"later"}\n', "line 2"),
    ],
)
def test_a_damaged_journal_names_its_line(tmp_path, data, words):
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(DamagedJournal, match=r"x\.jsonl") as raised:
        read_journal(path)
    assert words in str(raised.value)
