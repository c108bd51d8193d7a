"""The index of needles finds exactly those that stand in a text, and a search reads what is near them."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from liverl.causes import patterns
from liverl.causes.catalogue import rows
from liverl.causes.match import SHORT, find
from liverl.causes.needles import Needles
from liverl.causes.patterns import MOST_REACH
from liverl.causes.signature import Signature

_TEXT = st.text(alphabet="ab1_ :.é", max_size=40)
_NEEDLES = st.lists(st.text(alphabet="ab1_ :.é", min_size=1, max_size=12), max_size=8)


@given(_NEEDLES, _TEXT)
@example(["a b a"], "xa b ax")  # its first and its last word may be parts of longer ones
@example(["a b a"], "a bb a")
@example([" b "], "a b a")
def test_exactly_the_needles_of_a_text_are_found(needles: list[str], text: str) -> None:
    index = Needles(needles)
    expected = {needle for needle in needles if needle in text}
    assert set(index.of(text)) == expected
    assert index.any_of(text) == bool(expected)


@pytest.mark.parametrize("row", rows()[::23], ids=lambda row: row.id)
def test_every_row_is_found_in_a_long_text(row: Signature) -> None:
    needles = {one.needle for one in rows() if one.needle}
    index = Needles(needles)
    text = f"before it\n{row.fires}\nbehind it"
    assert set(index.of(text)) == {needle for needle in needles if needle in text}


def spans(row: Signature, text: str) -> tuple[int, int] | None:
    found = find(row, text)
    return None if found is None else found.span()


FILL = "\n".join(f"[{n}] step {n:04} of the run: loss 0.1, error: none (7 of 9)" for n in range(90))
assert len(FILL) > SHORT


def test_a_long_text_is_searched_where_the_needle_is_as_it_is_searched_whole() -> None:
    wrong, near = [], 0
    for row in rows():
        near += patterns.reach(row.pattern, row.needle) is not None
        pattern = re.compile(row.pattern)
        for text in (
            f"{FILL}\n{row.fires}\n{FILL}",
            f"{row.fires}\n{FILL}\n{row.needle}\n{FILL}",
            f"{FILL}\n{row.spares}\n{FILL}\n{row.fires}",
            f"{FILL}{row.needle}{FILL}{row.fires}{FILL}",
            f"{row.needle}\n{FILL}",
            FILL,
        ):
            whole = pattern.search(text)
            if spans(row, text) != (None if whole is None else whole.span()):
                wrong.append((row.id, text.replace(FILL, "...")))
    assert wrong == []
    assert near > 0.95 * len(rows()), "nearly all rows say where they can match"


@pytest.mark.parametrize(
    ("pattern", "needle", "reach"),
    [
        ("abc", "abc", 4),
        ("abc", "b", 4),
        (r"\w{1,9}: abc", "abc", 15),
        (r"(?<=xy)abc(?!\w{3})", "abc", 9),
        (r"(?:(?<!x)a|b(?=yz))abc", "abc", 8),
        (r"(?P<a>a)?abc(?(a)(?=xx)|y)", "abc", 8),
        (r"(?:ab|cd)", "ab", None),
        (r"(?=abc)", "abc", None),
        (r"\Aabc.*", "abc", None),
        (r"abc", "", None),
        (rf"x{{0,{MOST_REACH - 4}}}abc", "abc", MOST_REACH),
        (rf"x{{0,{MOST_REACH - 3}}}abc", "abc", None),
    ],
)
def test_how_far_a_search_reads(pattern: str, needle: str, reach: int | None) -> None:
    assert patterns.reach(pattern, needle) == reach


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\babc", "x" * SHORT + "abc", False),
        (r"\babc", "x" * SHORT + " abc", True),
        (r"(?<!x)abc", "x" * SHORT + "abc", False),
        (r"^abc", "x" * SHORT + "abc", False),
        (r"abc$", "abc" + "x" * SHORT, False),
        (r"abc(?!x{3}y)", "abcxxxy" + "x" * SHORT, False),
        (r"abc\b", "abc" + "x" * SHORT, False),
    ],
)
def test_what_stands_around_a_place_counts(pattern: str, text: str, found: bool) -> None:
    row = replace(rows()[0], pattern=pattern, needle="abc")
    assert (find(row, text) is not None) is found
