"""Log bytes to lines, time indexes, event lines, and the status table: the pure parts of the command line."""

from __future__ import annotations

import io
import os
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.control.history import last_events
from liverl.control.messages import Cursor, decode_incoming
from liverl.control.outbox import Outbox
from liverl.logs import tail
from liverl.logs.ansi import coloured
from liverl.logs.files import LogFile
from liverl.logs.tail import last_lines, read_lines, tail_start
from liverl.logs.text import LINE_BYTES, LineAssembler, plain
from liverl.logs.times import TimeIndex, parse_age
from liverl.model import BackendInfo, Event, ServiceStatus, Snapshot, StepTrials, Symptom, TrialsStatus
from liverl_tui.cli import status_table
from liverl_tui.cli.plain import EventLines, one_line

CHUNKS = st.lists(st.binary(max_size=40), max_size=12)
LOGGY = st.lists(
    st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n", b"x" * 5000, "é".encode(), b"\x1b[1m"]), max_size=30
)


def assemble(chunks):
    assembler = LineAssembler()
    lines = [line for chunk in chunks for line in assembler.feed(chunk)]
    return lines + assembler.finish()


@given(st.one_of(LOGGY, CHUNKS), st.randoms())
def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces, random):
    data = b"".join(pieces)
    cuts = sorted(random.sample(range(len(data) + 1), k=min(len(data), 5)))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    whole = assemble([data])
    assert assemble(chunks) == whole
    assert all(len(line.encode()) <= LINE_BYTES * 3 + 40 for line in whole)
    assert len(whole) == data.count(b"\n") + (
        not data.endswith(b"\n") and bool(data.rpartition(b"\n")[2].strip(b"\r"))
    )


def test_progress_bars_collapse_to_their_last_state():
    assert assemble([b"1%\r50%\r100%\ndone\r\n"]) == ["100%", "done"]
    assert assemble([b"1%", b"\r", b"2%", b"\r\n"]) == ["2%"]
    assert assemble([b"x" * 9000 + b"\rshort\n"]) == ["short"]


def test_a_long_line_is_cut_with_a_mark_in_bounded_memory():
    assembler = LineAssembler()
    for _ in range(1000):
        assert assembler.feed(b"x" * 10_000) == []
    assert len(assembler.peek()) < LINE_BYTES + 60
    assert assembler.feed(b"\nnext\n") == [
        "x" * LINE_BYTES + f" … [{10_000_000 - LINE_BYTES} bytes cut]",
        "next",
    ]
    assert "\ufffd" not in assemble([("é" * 5000 + "\n").encode()])[0]


@given(st.text(st.characters(codec="utf-8")))
def test_nothing_printed_can_move_a_cursor(text):
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", plain(text))
    rest = re.sub(r"\x1b\[[0-9;:]*m", "", coloured(text))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", rest)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", one_line(text))


def test_colours_stay_and_end_with_the_line():
    text = "\x1b[31mred\x1b[2J\x1b]0;title\x07 text"
    assert coloured(text) == "\x1b[31mred\\x1b]0;title\\x07 text\x1b[0m"
    assert plain(text) == r"red\x1b]0;title\x07 text"
    assert coloured("\x1b[30;8mhidden\x1b[5;94m blue") == "\x1b[30mhidden\x1b[0m\x1b[38;5;12m blue\x1b[0m"
    assert coloured("bare") == "bare"


def test_ages():
    assert [parse_age(a) for a in ("90", "30s", "5m", "1h30m", "2d", "0.5h")] == [
        90,
        30,
        300,
        5400,
        172800,
        1800,
    ]
    for bad in ("", "soon", "5 m", "-5m", "m", "5mm", "1e3"):
        with pytest.raises(ValueError, match="is not a time span"):
            parse_age(bad)


@given(st.lists(st.sampled_from(["", "a", "bb" * 30]), max_size=50), st.integers(0, 12), st.booleans())
def test_the_last_lines_are_those_of_the_whole_file(tmp_path_factory, lines, count, ended):
    path = tmp_path_factory.mktemp("l") / "s.1.log"
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    path.write_text(text)
    blocks = tail.BLOCK
    tail.BLOCK = 16  # so that lines cross blocks
    try:
        start = tail_start(path, count)
        got = [line.text for line in last_lines([LogFile("s", 1, path)], count)]
    finally:
        tail.BLOCK = blocks
    assert start == 0 or text[start - 1] == "\n"
    every = [line.text for line in read_lines(LogFile("s", 1, path))]
    assert got == every[len(every) - min(count, len(every)) :]


def test_a_huge_file_without_newlines_is_looked_at_in_bounds(tmp_path, monkeypatch):
    path = tmp_path / "s.1.log"
    with path.open("wb") as file:
        file.truncate(1 << 34)  # sparse: 16 GiB
    monkeypatch.setattr(tail, "TAIL_BYTES", 1 << 20)
    assert tail_start(path, 10) == (1 << 34) - (1 << 20)


@given(st.lists(st.sampled_from(["event", "torn", "empty"]), max_size=30), st.integers(0, 8), st.booleans())
def test_the_newest_events_are_those_of_the_whole_file(tmp_path_factory, lines, count, ended):
    folder = tmp_path_factory.mktemp("e")
    texts = {"torn": '{"seq": 1, "at', "empty": ""}
    kept = [texts.get(kind, f'{{"seq":{n},"at":0,"kind":"k","text":"t"}}') for n, kind in enumerate(lines, 1)]
    # a line without its end is being written, and not there yet
    (folder / "events.jsonl").write_text("\n".join(kept) + ("\n" if ended else ""))
    every = [n for n, kind in enumerate(lines, 1) if kind == "event" and (ended or n < len(lines))]
    assert [e.seq for e in last_events(folder, count)] == every[len(every) - min(count, len(every)) :]


def test_time_index(tmp_path):
    log = tmp_path / "s.1.log"
    log.write_text("x" * 100)
    os.utime(log, (500, 500))
    assert TimeIndex(log).time_at(50) == 500
    assert TimeIndex(log).offset_at(450) == 0
    (tmp_path / "s.1.log.idx").write_text("10 100\n50 200.5\ngarbage\n90 300\n5")
    index = TimeIndex(log)
    assert [index.time_at(o) for o in (0, 9, 10, 49, 89, 95)] == [100, 100, 200.5, 200.5, 300, 500]
    assert [index.offset_at(t) for t in (50, 100, 250, 999)] == [0, 10, 50, 90]


def test_event_lines_in_a_file_and_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    out = io.StringIO()
    EventLines(out).event(Event(1, 0.0, "k", "went\nwrong", "error", "proxy"))
    assert out.getvalue().endswith("  proxy       error: went | wrong\n")
    assert "\x1b" not in out.getvalue()


def test_an_alert_says_what_to_do_in_the_next_line(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")

    def lines(level, **data):
        out = io.StringIO()
        EventLines(out).event(Event(1, 0.0, "symptom", "trainer hangs", level, "trainer", data))
        return out.getvalue().splitlines()

    assert [line[21:] for line in lines("error", fix="see with\npy-spy")] == [
        "trainer     error: trainer hangs",
        "trainer     what to do: see with | py-spy",
    ]
    assert len(lines("info", fix="use harder tasks")) == 1, "a notice"
    assert len(lines("error")) == 1, "of an older version"


def test_a_lost_output_silences_only_who_wants_to_go_on():
    class Gone(io.StringIO):
        def flush(self):
            raise BrokenPipeError(32, "Broken pipe")

    EventLines(Gone(), keep_going=True).note("x")
    with pytest.raises(BrokenPipeError):
        EventLines(Gone()).note("x")


def service(name, **more):
    fields = {
        "kind": "replica",
        "owner": "ours",
        "state": "ready",
        "why": "w" * 200,
        "since": 0.0,
        "pid": 1234567,
    }
    return ServiceStatus(name=name, **{**fields, "generation": 12, "restarts": 11, "log": None, **more})


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_status_table_fits(width):
    states = [
        "waiting",
        "preparing",
        "starting",
        "ready",
        "degraded",
        "stopping",
        "stopped",
        "failed",
        "backing_off",
        "gave_up",
    ]
    services = tuple(service(f"replica-{i}", state=s, started_at=10.0) for i, s in enumerate(states))
    snapshot = Snapshot(
        5, 5000.0, "project/name", "/r", "running", "rollout " * 30, 2, "managed", BackendInfo(1, 0.0, "h", "0"), 0.0,
        services=services, step=3, trials=TrialsStatus(10, 2, 8, 8, steps=(StepTrials(3, 10, 8, 8, None),)),
    )  # fmt: skip
    wrong = Symptom(
        "zero_tool_calls", "critical", "no tool", "?", "mend it", patch={"model.tool_parser": "hermes"}
    )
    snapshot = msgspec.structs.replace(
        snapshot, symptoms=(wrong, msgspec.structs.replace(wrong, id="x", guess=True))
    )
    text = status_table.render(snapshot, width=width)
    assert "✖ critical: no tool" in text
    flat = " ".join(text.split())
    assert "set: model.tool_parser=hermes; liverl-tui fix zero_tool_calls --run /r does it" in flat
    assert "set: model.tool_parser=hermes, which is a guess; liverl-tui fix x --run /r does it" in flat
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= width
    assert "▲ 8 of 8 trials (100%) made no tool call at all" in text
    assert sum("backing off" in line for line in lines) == 1
    assert "1h23m" in text
    assert "\x1b[32m● replica-3" in status_table.render(snapshot, width=width, colour=True)


def test_durations():
    assert [status_table.duration(s) for s in (None, 0, 59.9, 61, 3600, 90000)] == [
        "-",
        "0s",
        "59s",
        "1m01s",
        "1h00m",
        "1d01h",
    ]


# --- what the control socket holds back for a slow client


@given(st.lists(st.tuples(st.sampled_from("aest"), st.integers(0, 300)), max_size=200), st.integers(100, 600))
def test_an_outbox_is_bounded_and_loses_no_event_silently(steps, limit):
    box = Outbox(limit)
    seq, cursor, answers = 0, Cursor(0), [0, 0]

    def deliver():
        line = box.take()
        if line is None:
            return False
        message = decode_incoming(line)
        if message.event is not None:
            assert message.event.seq <= cursor.seq + 1, "a gap without a resync"
            list(cursor.new([message.event]))
        elif message.resync is not None:
            assert message.resync.seq <= seq
            cursor.seq = max(cursor.seq, message.resync.seq)  # what the client asks for then
        else:
            answers[1] += 1
        return True

    for kind, size in steps:
        if kind == "a" and not box.full:
            box.answer(b'{"id":1,"ok":"%s"}\n' % (b"x" * size))
            answers[0] += 1
        elif kind == "e":
            seq += 1
            box.event(b'{"event":{"seq":%d,"at":0,"kind":"k","text":"%s"}}\n' % (seq, b"x" * size), seq)
        elif kind == "s":
            box.snapshot(b"{}\n" + b" " * size)
        elif kind == "t" and box.size:
            box._snapshot = None
            deliver()
        assert box.size <= 2 * limit + 4 * 400
    box._snapshot = None
    while deliver():
        pass
    assert cursor.seq == seq
    assert answers[0] == answers[1]
