"""Whole blocks of polls and heartbeats are judged as each of their lines is."""

from __future__ import annotations

import random

import pytest

from liverl.logs.no_work import BUSY, shows_no_work
from liverl.offline.doctor import idle_lines
from liverl.offline.doctor.idle_lines import TIMES, IdleLines, shown_text

LINES = [
    b'INFO:     127.0.0.1:%d - "GET /health HTTP/1.1" 200 OK',
    b"2026-11-21 00:18:%02d heartbeat %d",
    b"\x1b[36m(TaskRunner pid=%d)\x1b[0m 00:18:%02d waiting for 7 of 8",
    b"step %d: waiting at 00:18:%02d,123 for rank 3",
    b"INFO 11-21 00:18:%02d [loggers.py:1] Avg generation throughput: %d.0 tokens/s, Running: 1 reqs",
    b"INFO 11-21 00:18:%02d [loggers.py:1] Avg generation throughput: 0.0 tokens/s, Running: %d reqs",
    b"Decode batch. #running-req: %d, #token: 0",
    b"Loading: 12%%| 3/9 [00:0%d<00:02, 1.5s/it]\rLoading: 13%%| 4/9 [00:05<00:02, %d.5s/it]\r",
    "noch nichts um 00:1%d von %d Rängen".encode(),
    "\xa0".encode(),
    b"00:18:%02d",
    b"  ",
    b"",
    b"\xff\xfe broken 00:1%d",
    b"the same words",
    b"(raylet) gone [repeated %dx across cluster]",
    b"%d " * 900 + b" far behind what is looked at 00:1%d",
]


def filled(line: bytes, values: random.Random) -> bytes:
    """A line with a number for each of its places."""
    count = line.replace(b"%%", b"").count(b"%")
    return line % tuple(values.randrange(3) for _ in range(count)) if count else line.replace(b"%%", b"%")


def shows_work(line: bytes, beats: frozenset[str]) -> bool | None:
    """Whether one line shows work; None for a blank one."""
    text = shown_text(line)
    if text is None:
        return None
    return not shows_no_work(text) and (BUSY.search(text) is not None or TIMES.sub("", text) not in beats)


@pytest.mark.parametrize("seed", range(20))
def test_a_block_is_judged_as_its_lines_are(seed: int) -> None:
    values = random.Random(seed)
    some = [filled(line, values) for line in values.sample(LINES, 9)]
    beats = frozenset(TIMES.sub("", text) for line in some[:6] if (text := shown_text(line)) is not None)
    idle = IdleLines(beats)
    shown = 0
    for line in (filled(line, values) for _ in range(30) for line in LINES):
        work = shows_work(line, beats)
        assert idle.count(line) == (work is False), line
        assert idle.count(b"the same words\n" * 3 + line) == (
            0 if work or "the same words" not in beats else 3 + (work is False)
        ), line
        shown += work is False
    assert shown > 30


def test_lines_that_differ_by_their_times_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def counted(text: str) -> bool:
        looked_at.append(text)
        return shows_no_work(text)

    monkeypatch.setattr(idle_lines, "shows_no_work", counted)
    beats = frozenset(["rank 3 waits at "])
    block = b"".join(b"rank 3 waits at 00:%02d:%02d,123\n" % (n // 60, n % 60) for n in range(3600))
    assert IdleLines(beats).count(block) == 3600
    assert len(looked_at) == 1
