"""One line of a log: its text, colours and level; what is looked for in it; and times as people type them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.logs.ansi import PLAIN, TextStyle, runs
from liverl.logs.levels import Levels, own_level
from liverl.logs.query import Query, needle
from liverl.logs.text import LINE_BYTES, LineAssembler, bare, plain, shown
from liverl.logs.times import parse_moment

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
LOGGY = st.lists(
    st.sampled_from([b"a", b"bc", b"\r", b"\r\r", b"x" * 5000, "é".encode(), b"\x1b[1m", b"\t", b"\xff"]),
    max_size=30,
).map(b"".join)


@given(LOGGY)
def test_a_line_by_itself_reads_as_in_the_stream(line):
    assembler = LineAssembler()
    assert assembler.feed(line + b"\n") == [shown(line)]


@given(st.lists(LOGGY, min_size=1, max_size=5))
def test_what_is_searched_is_what_is_shown(lines):
    found = bare(b"\n".join(lines)).split("\n")
    assert len(found) == len(lines)
    for text, line in zip(found, lines, strict=True):
        if len(line) <= LINE_BYTES:
            assert text == plain(shown(line))


def test_a_title_sequence_that_never_ends_does_not_swallow_the_lines_after_it():
    assert bare(b"a\x1b]0;title\nb\nc").split("\n") == ["a\x1b]0;title", "b", "c"]


# --- colours


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plain", [("plain", PLAIN)]),
        ("", []),
        ("\x1b[31mred\x1b[0m no", [("red", TextStyle(fg=1)), (" no", PLAIN)]),
        (
            "\x1b[1;92;44mx\x1b[22;39my\x1b[49mz",
            [("x", TextStyle(10, 4, True)), ("y", TextStyle(bg=4)), ("z", PLAIN)],
        ),
        (
            "\x1b[38;5;208mo\x1b[48;2;1;2;3mp\x1b[mq",
            [("o", TextStyle(208)), ("p", TextStyle(208, (1, 2, 3))), ("q", PLAIN)],
        ),
        ("\x1b[38:2:1:2:3mo", [("o", TextStyle((1, 2, 3)))]),
        (
            "\x1b[2;3;4;7mu\x1b[23;24;27mv",
            [("u", TextStyle(None, None, False, True, True, True, True)), ("v", TextStyle(dim=True))],
        ),
        ("\x1b[38;5mx\x1b[38my\x1b[999;38;2;1mz", [("xyz", PLAIN)]),
        ("a\x1b[2Jb\x1b]0;t\x07c\u202ed", [(r"ab\x1b]0;t\x07c\u202ed", PLAIN)]),
    ],
)
def test_colours(line, expected):
    joined: list[tuple[str, TextStyle]] = []
    for text, look in runs(line):
        if joined and joined[-1][1] == look:
            text = joined.pop()[0] + text
        joined.append((text, look))
    assert joined == expected


@given(st.text(st.sampled_from("a\x1b[0123456789;:mK \x07\u202e\u2028é]"), max_size=40))
def test_runs_are_the_plain_text_whatever_comes(line):
    text = "".join(text for text, _ in runs(line))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", text)


# --- levels

NAMED = {
    "INFO 11-20 23:51:23 [core.py:1510] ready": "info",
    "(EngineCore pid=12) ERROR 11-20 23:51:23 [core.py:1] failed": "error",
    "(vLLMHttpServer pid=1) (Worker pid=2) WARNING 11-21 00:20:46 [jit.py:106] slow": "warning",
    "WARNING:2026-11-20 23:44:55,034:No supported accelerator": "warning",
    "(TaskRunner pid=9, ip=10.0.0.1) DEBUG:2026-11-20 23:44:55,034:detail": "debug",
    "INFO:     Started server process [2326]": "info",
    "ERROR:    Exception in ASGI application": "error",
    "2026-11-21 00:17:39,002\tINFO worker.py:2038 -- Started a local Ray instance.": "info",
    "2026-11-21 00:17:39,002\tWARNING authentication_token_setup.py:85 -- enabled": "warning",
    "2026-11-25 22:47:32,320\tERR scripts.py:87 -- raylet [exit code=-9]": "error",
    "2026-11-25 22:47:32,320\tPANIC scripts.py:87 -- Ray is not installed": "error",
    "00:16:46 - LiteLLM Proxy:ERROR: proxy_server.py:2454 - bad": "error",
    "2026-01-01 12:00:00,000 - root - CRITICAL - msg": "error",
    "2026-01-01 12:00:00.123 | SUCCESS  | a": None,
    "2026-01-01 12:00:00.123 | DEBUG    | mod:fn:1 - msg": "debug",
    "[2026-01-01 12:00:00] [WARN] msg": "warning",
    "[INFO|configuration_utils.py:733] 2026-01-01 loading": "info",
    "WARNING: val_batch_size is deprecated": "warning",
    "[rank0]:W1121 00:20:49.145000 4238 torch/fx/_symbolic_trace.py:53] x": "warning",
    "I0521 12:00:00.123456 123 file.cc:12] x": "info",
    "[2026-11-21 00:17:39,002 E 123 456] (raylet) node_manager.cc:1: x": "error",
    "host:123:456 [0] transport/net.cc:5 NCCL WARN Connection refused": "warning",
    'time="2026-01-01" level=error msg="x"': "error",
    '{"ts": 1, "level": "warning", "msg": "x"}': "warning",
    "2026/11/21 00:00:00 [error] 123#0: nginx": "error",
    "/venv/lib/main_ppo.py:180: UserWarning: Disabled critic": "warning",
    "Traceback (most recent call last):": "error",
    "[rank1]: Traceback (most recent call last):": "error",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.": "error",
    "ValueError: x": "error",
    "api.py: error: argument --port": "error",
    "Killed": "error",
    "*** SIGTERM received at time=1795217993": "error",
    "step:5 - actor/pg_loss:-0.16": None,
    "dataset len: 64": None,
    "ray init kwargs: {'env_vars': {'NCCL_DEBUG': 'WARN', 'level': 'x'}}": None,
    "Killed 3 of them": None,
    "the ERROR was not ours": None,
    "": None,
}


@pytest.mark.parametrize("line", NAMED)
def test_levels_by_name(line):
    assert own_level(line) == NAMED[line]


def test_a_traceback_belongs_to_its_error_and_each_process_to_itself():
    lines = {
        "(A pid=1) INFO 11-20 23:51:23 [a.py:1] fine": "info",
        "(B pid=2) Traceback (most recent call last):": "error",
        '(B pid=2)   File "x", line 1': "error",
        "(A pid=1)   goes on": "info",
        "(B pid=2)     boom()": "error",
        "(B pid=2) RuntimeError: boom": "error",
        "(B pid=2) ": "error",
        "(B pid=2) back to work": None,
        "(B pid=2)   indented": None,
    }
    levels = Levels()
    assert [levels.of(line) for line in lines] == list(lines.values())


FRAMES = 'Traceback (most recent call last):\n  File "t.py", line 4, in step\n    raise LopsidedBatch("31")\n'


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (f"{FRAMES}LopsidedBatch: 31", ["error"] * 4),  # its name does not end in Error
        (f"{FRAMES}LopsidedBatch: 31\nloss: 3", [*["error"] * 4, None]),
        (f"{FRAMES}went on", [*["error"] * 3, None]),
        ("loss: 3", [None]),
        (f"(A pid=1) {FRAMES.splitlines()[0]}\nloss: 3", ["error", None]),  # of another process
        (FRAMES.split("\n", 1)[1] + "my.Batch: 31", [None, None, "error"]),  # what is above was not read
        (f"INFO 07-15 15:33:47 [a.py:1] ignored: {FRAMES}Batch: 31", ["info"] * 4),
    ],
)
def test_the_exception_of_a_traceback_has_its_level(text: str, levels: list[str | None]) -> None:
    assert level_of_each(text) == levels


def level_of_each(text: str) -> list[str | None]:
    levels = Levels()
    return [levels.of(line) for line in text.split("\n")]


@pytest.mark.parametrize("path", sorted(RECORDINGS.rglob("*.log")), ids=lambda path: path.stem)
def test_what_is_skipped_quickly_has_no_such_level(path):
    """The quick look at a whole block must not miss a line that the exact one finds."""
    lines = bare(path.read_bytes()).split("\n")
    for level, least in (("warning", 2), ("error", 3)):
        exact = [
            place
            for place, found in enumerate(level_of_each("\n".join(lines)))
            if {None: 1, "debug": 0, "info": 1, "warning": 2, "error": 3}[found] >= least
        ]
        assert Query(level=level).pick("\n".join(lines), "").places == exact
        for place in exact[:100:10]:
            above = "".join(f"{line}\n" for line in lines[max(0, place - 60) : place])
            assert Query(level=level).pick(lines[place], above).places == [0]


@pytest.mark.parametrize("line", [line for line, level in NAMED.items() if level in ("warning", "error")])
def test_no_named_line_is_skipped(line):
    assert Query(level="warning").pick(f"x\n{line}\ny", "").places == [1]


def test_a_block_inherits_the_level_of_what_is_above():
    above = "(B pid=2) Traceback (most recent call last):\n"
    text = "(A pid=1) x\n(B pid=2)   File y\n(B pid=2) fine\n(B pid=2)   z"
    assert Query(level="error").pick(text, above).places == [1]
    assert Query(level="error").pick(text, "").places == []


# --- what is looked for


@given(
    st.lists(st.text(st.sampled_from("aAbB1 é"), max_size=6), min_size=1, max_size=8),
    st.text(st.sampled_from("aAb1"), min_size=1, max_size=2),
    st.text(st.sampled_from("aAb1.é"), min_size=1, max_size=2),
)
def test_lines_with_and_without(lines, word, other):
    def has(pattern, line):
        flags = 0 if any(c.isupper() for c in pattern) else re.IGNORECASE
        return re.search(pattern, line, flags) is not None

    query = Query(include=(needle(word),), exclude=(needle(other),))
    expected = [n for n, line in enumerate(lines) if has(word, line) and not has(other, line)]
    assert query.pick("\n".join(lines), "").places == expected


def test_a_pattern_sees_one_line_at_a_time():
    query = Query(include=(needle('a[^"]*b'),))
    assert query.pick("a\nb\na b", "").places == [2]
    assert Query(include=(needle("^b$"),)).pick("a\nb", "").places == [1]


@given(
    st.lists(st.text(st.sampled_from("aAbBzZ1 _é\x1b\r"), max_size=8), min_size=1, max_size=8),
    st.sampled_from(
        [
            r"\S+ a",
            r"[^a]b",
            r"(?:a|b)+1",
            r"\x41",
            r"(?i:a)b",
            r"(a)\1",
            "^a",
            "b$",
            r"\bz",
            "a.*?b",
            "é",
            "a b",
            "(?-i:a)b",
        ]
    ),
)
def test_without_a_capital_letter_capitals_do_not_matter(lines, pattern):
    text = "\n".join(lines)
    bared = bare(text.encode()).split("\n")
    query = Query(include=(needle(pattern),))
    expected = [n for n, line in enumerate(bared) if re.search(pattern, line, re.IGNORECASE)]
    assert query.pick(bare(text.encode()), "").places == expected
    if expected:
        assert not query.rules_out(text.encode())


@pytest.mark.parametrize("text", ["(", "[a", "a{2,1}", "*", "(?P<x", "\\"])
def test_what_is_no_pattern_is_refused_in_words(text):
    with pytest.raises(ValueError, match="not a regular expression: "):
        needle(text)


# --- times

END = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


def clock(at: float) -> str:
    return time.strftime("%d %H:%M:%S", time.localtime(at))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("11:30", "21 11:30:00"),
        ("12:00", "21 12:00:00"),
        ("12:00:01", "20 12:00:01"),  # not yet on that day
        ("23:59:59", "20 23:59:59"),
        ("2026-11-19 1:02", "19 01:02:00"),
        ("2026-11-19T01:02:03", "19 01:02:03"),
        ("5m", "21 11:55:00"),
        (" 1h30m ", "21 10:30:00"),
    ],
)
def test_moments_in_a_log_that_ended_at_noon(text, expected):
    assert clock(parse_moment(text, END + 86400, END)) == expected


def test_an_age_is_counted_from_now_where_the_log_reaches_so_far():
    assert parse_moment("5m", END + 60, END) == END + 60 - 300


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:60", "12:3", "2026-13-01 10:00", "1234-1-1"])
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a time|month must be"):
        parse_moment(text, END, END)
