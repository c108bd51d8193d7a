"""The pictures that screens are compared by: what of a screen is in them, and how a difference is told."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st
from kit.pictures import cells, differences, svg

STYLES = ["", "1", "31", "1;38;2;255;255;255", "44", "48;2;90;107;128", "7"]
PIECES = st.tuples(st.sampled_from(STYLES), st.text("ab ─▁⣿●✖<&日", max_size=4))


def drawn(*pieces: tuple[str, str], columns: int = 24, lines: int = 3) -> pyte.Screen:
    screen = pyte.Screen(columns, lines)
    screen.reset_mode(pyte.modes.DECAWM)
    stream = pyte.Stream(screen)
    for style, text in pieces:
        stream.feed(f"\x1b[0m\x1b[{style}m{text}" if style else f"\x1b[0m{text}")
    return screen


@given(st.lists(PIECES, max_size=3))
def test_every_cell_is_in_the_picture(pieces: list[tuple[str, str]]) -> None:
    screen = drawn(*pieces)
    found = cells(svg(screen))
    for row in range(screen.lines):
        assert "".join(cell.text for cell in found[row]) == screen.display[row]
    assert not differences(svg(screen), svg(screen))


@given(st.lists(PIECES, max_size=3), st.lists(PIECES, max_size=3))
def test_pictures_that_differ_are_told_apart(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    before, after = svg(drawn(*one)), svg(drawn(*other))
    assert bool(differences(before, after)) == (cells(before) != cells(after))
    if before == after:
        assert cells(before) == cells(after)


def test_a_difference_is_told_in_words() -> None:
    before = svg(drawn(("", "one "), ("31", "two"), ("", " three")))
    assert differences(before, svg(drawn(("", "one "), ("1;31", "two"), ("", " three")))) == [
        "row 1, column 5: 'two', #e05561 on #14171c -> #e05561 bold on #14171c"
    ]
    assert differences(before, svg(drawn(("", "one "), ("31", "TwO"), ("", " three")))) == [
        "row 1, column 5: 'two' -> 'TwO', #e05561 on #14171c"
    ]
    assert differences(before, svg(drawn(lines=4))) == ["24x3 cells, now 24x4"]
