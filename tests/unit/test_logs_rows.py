"""Log lines as rows of the screen, the prompt, the title and the bar of tabs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import service
from rich.cells import cell_len
from rich.style import Style

from liverl.logs.query import needle
from liverl_tui.widgets.base.prompt import HISTORY, Prompt
from liverl_tui.widgets.log.frame import ALL, Filter, Frame, Search
from liverl_tui.widgets.log.rows import crop, rows_of, spans, width_of, wrapped
from liverl_tui.widgets.log.title import Tab, empty_words, facts, tab_row

WIDE = st.text(st.sampled_from("ab é日本\t\x1b[31m0;"), max_size=60)


def text_of(row):
    return "".join(text for text, _ in row)


@given(WIDE, st.integers(0, 30), st.integers(2, 30))
def test_a_line_is_cut_to_the_columns_that_are_seen(line, begin, width):
    whole = text_of(spans(line, None))
    cut = text_of(crop(spans(line, None), begin, width))
    assert cell_len(cut) <= width + 1
    if cell_len(whole) - begin > width:
        assert cell_len(cut) >= width  # so that what is missing can be told
    if whole.isascii():
        assert cut == whole[begin : begin + width + 1]


@given(WIDE, st.integers(2, 30))
def test_a_wrapped_line_is_all_there_in_as_many_rows_as_were_told(line, width):
    rows = wrapped(spans(line, None), width)
    assert "".join(map(text_of, rows)) == text_of(spans(line, None))
    assert all(cell_len(text_of(row)) <= width for row in rows)
    assert rows_of(line, width) == len(rows)
    assert width_of(line) == cell_len(text_of(spans(line, None)))


def test_tabs_go_to_the_next_stop():
    assert text_of(spans("a\tb\x1b[31m\tc", None)) == "a       b       c"


def test_levels_colour_what_has_no_colour_of_its_own():
    assert spans("x\x1b[36my\x1b[0mz", "error") == [
        ("x", "bad"),
        ("y", Style(color="color(6)")),
        ("z", "bad"),
    ]
    assert [spans("x", level)[0][1] for level in (None, "debug", "info", "warning")] == [
        "text",
        "dim",
        "text",
        "warn",
    ]


@given(st.text(st.sampled_from("abB \x1b[1m"), max_size=30), st.sampled_from(["ab", "b+", "a?", "^b", " "]))
def test_hits_are_marked_and_nothing_else_changes(line, pattern):
    found = spans(line, None, re.compile(pattern))
    whole = text_of(spans(line, None))
    assert text_of(found) == whole
    marked = [False] * len(whole)
    for match in re.finditer(pattern, whole):
        marked[match.start() : match.end()] = [True] * (match.end() - match.start())
    assert [style == "match" for text, style in found for _ in text] == marked


# --- the prompt


def typed(prompt: Prompt, *keys: str) -> Prompt:
    for key in keys:
        prompt.key(key, key if len(key) == 1 else None)
    return prompt


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        (["a", "b", "left", "c"], "acb", 2),
        (["a", "b", "home", "c", "end", "d"], "cabd", 4),
        (["a", "b", "c", "backspace", "left", "delete"], "a", 1),
        (["a", " ", "b", "ctrl+w", "x"], "a x", 3),
        (["a", "b", "left", "ctrl+u"], "b", 0),
        (["a", "b", "left", "ctrl+k"], "a", 1),
        (["left", "backspace", "right", "delete"], "", 0),
        (["a", "ctrl+a", "ctrl+d", "b"], "b", 1),
    ],
)
def test_typing(keys, text, cursor):
    prompt = typed(Prompt("search"), *keys)
    assert (prompt.text, prompt.cursor) == (text, cursor)


def test_what_was_typed_before_comes_back():
    history: list[str] = []
    for text in ["one", "two", "one", *map(str, range(HISTORY))]:
        prompt = Prompt("search", history=history)
        prompt.insert(text)
        prompt.remember()
    assert len(history) == HISTORY and history[-1] == str(HISTORY - 1)
    prompt = Prompt("search", history=["a", "b"])
    assert [typed(prompt, key).text for key in ("up", "up", "up", "down", "down", "down")] == [
        "b", "a", "a", "b", "", ""
    ]  # fmt: skip


def test_paste_takes_one_line_and_unknown_keys_are_not_taken():
    prompt = Prompt("include", "x")
    prompt.insert("a\x07b\nsecond")
    assert prompt.text == "ab", "what stood there before is selected"
    prompt.insert("c")
    assert prompt.text == "abc"
    assert not prompt.key("f5", None)
    assert not prompt.key("ctrl+c", "\x03")


@given(st.text("ab c", max_size=300), st.text("xyz", max_size=80), st.integers(30, 120), st.integers(0, 300))
def test_the_prompt_fits_and_shows_its_cursor(text, error, width, back):
    prompt = Prompt("include", text)
    prompt.key("end", None)  # what stood there is selected no more
    prompt.cursor = max(0, len(text) - back)
    prompt.error = error
    row = prompt.row(width)
    assert cell_len(row.text) <= width
    at_cursor = [shown for shown, style in row.spans if style == "match"]
    assert at_cursor == [text[prompt.cursor : prompt.cursor + 1] or " "]


# --- the title


def said(frame: Frame, column: int = 0) -> str:
    return "  ".join(text for text, _ in facts(frame, column))


def test_the_title_says_what_one_sees():
    assert said(Frame(file="a.1.log", size=5 << 20)) == "▶ following  a.1.log 5.0M"
    paused = Frame(
        follow=False, fresh=1234, number=12, total=6_700_000, wrap=True, lag=2.4, note="from 12:00"
    )
    assert said(paused, 40) == (
        "‖ paused  1,234 written since  ▲ 2 s behind  from 12:00  line 12 of 6.70M  column 41  wrapped"
    )
    filtered = Frame(filter=Filter(needle("foo"), needle("bar"), "warning"), scanned=0.5)
    assert said(filtered) == "▶ following  warnings and errors  only /foo/  without /bar/  filtering 50%"
    assert "✖ cannot read" in said(Frame(error="cannot read: x"))


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (Search(needle("x"), 17, 3), "/x/ hit 3 of 17"),
        (Search(needle("x"), 17, None, 0.34), "/x/ 17+ hits  searching 34%"),
        (Search(needle("x"), 1, None), "/x/ 1 hit"),
        (Search(needle("x")), "/x/ no hit"),
        (Search(needle("y" * 50), 1200, 1100, 0.5), f"/{'y' * 23}…/ hit 1,100 of 1,200+  searching 50%"),
    ],
)
def test_the_title_says_how_a_search_stands(search, words):
    assert words in said(Frame(search=search))


def test_an_empty_view_says_why():
    waiting = Tab(
        "trainer", service("trainer", "trainer", "waiting", why="waits for proxy", generation=0, log=None)
    )
    assert empty_words(Frame(tab="trainer"), waiting) == "trainer has not started: waits for proxy"
    gone = Tab("r0", service("r0", "replica", "failed", why="exit 1"))
    assert "attempt_001/logs/r0.1.log does not exist" in empty_words(Frame(tab="r0"), gone)
    assert "written no output yet" in empty_words(Frame(tab="r0", file="r0.1.log"), gone)
    assert "no log of its own" in empty_words(Frame(tab="e"), Tab("e", service("e", "environment", log=None)))
    assert "no log file" in empty_words(Frame(tab="x"), Tab("x"))
    assert empty_words(Frame(), Tab(ALL)) == "no service has written any output yet"
    assert empty_words(Frame(), Tab(ALL), "connecting") == "connecting"
    assert empty_words(Frame(unread=True), Tab(ALL)) == "reading the logs ..."
    assert empty_words(Frame(unread=True), Tab(ALL), "connecting") == "connecting"
    narrow = Frame(size=100, filter=Filter(needle("x")))
    assert "no line in 100B of log matches the filter;" in empty_words(narrow, gone)
    looking = Frame(size=100, filter=Filter(needle("x")), scanned=0.25)
    assert "searched 25% of 100B" in empty_words(looking, gone)
    assert empty_words(Frame(error="cannot read: x"), gone) == "cannot read: x"


@given(st.integers(1, 70), st.integers(0, 69), st.integers(30, 220))
def test_the_active_tab_is_always_in_the_bar(count, active, width):
    tabs = [Tab(ALL), *(Tab(f"replica-{n}", service(f"replica-{n}", "replica")) for n in range(count - 1))]
    name = tabs[active % count].name
    row, places = tab_row(tabs, name, width)
    assert cell_len(row.text) <= width
    assert name in [tab for _, _, tab in places]
    for first, last, tab in places:
        assert (tab or "all") in row.text[first:last]
    before, after = re.match(r"‹(\d+)", row.text), re.search(r"(\d+)›$", row.text)
    hidden = sum(int(match[1]) for match in (before, after) if match)
    assert hidden + len(places) == count
