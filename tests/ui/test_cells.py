"""The base of every pane: rows as cells, and which of them differ."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from kit.pilots import handled
from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.strip import Strip

from liverl_tui.text.themes import DARK
from liverl_tui.widgets.base.cells import GAP, CellPanel, Row, changes, draw

NAMES = st.sampled_from(["text", "dim", "alarm", "title_focus"])
TEXT = st.text("ab ─●字é▏…", max_size=9)
ROWS = st.builds(
    lambda spans, cursor: Row(*spans, cursor=cursor),
    st.lists(st.tuples(TEXT, st.one_of(NAMES, st.just(Style(color="red")))), max_size=6),
    st.booleans(),
)


def cells(strip: Strip) -> list[tuple[str, Style | None]]:
    """What stands in each column; a wide character stands in both of its own."""
    return [(c, style) for text, style, _ in strip for c in text for _ in range(get_character_cell_size(c))]


def test_a_style_without_a_colour_has_that_of_text_not_the_terminals() -> None:
    ((_, style, _), *_) = draw(Row(("bold in a log", Style(bold=True))), 13, DARK)
    assert style == DARK["text"] + Style(bold=True)


@given(ROWS, st.integers(0, 40))
def test_a_row_is_drawn_as_wide_as_asked(row: Row, width: int) -> None:
    strip = draw(row, width, DARK)
    assert sum(cell_len(text) for text, _, _ in strip) == width == strip.cell_length
    shown = [style for _, style in cells(strip)]
    wanted = [style for text, style in row.spans for _ in range(cell_len(text))]
    for got, name in zip(shown[: max(0, width - 2)], wanted, strict=False):
        resolved = DARK[name if isinstance(name, str) else "text"]
        resolved = resolved if isinstance(name, str) else resolved + name
        assert got == (DARK.under_cursor(resolved) if row.cursor else resolved)


@given(ROWS, ROWS, st.integers(1, 40))
def test_what_differs_is_found_and_little_else(before: Row, after: Row, width: int) -> None:
    one, other = draw(before, width, DARK), draw(after, width, DARK)
    old, new = cells(one), cells(other)
    runs = changes(one, other)
    inside = {column for start, size in runs for column in range(start, start + size)}
    assert all(0 <= start < start + size <= width for start, size in runs)
    assert all(column in inside for column in range(width) if old[column] != new[column])
    ends = [column for start, size in runs for column in (start, start + size - 1)]
    if "字" not in before.text + after.text:
        assert all(old[column] != new[column] for column in ends)
    assert all(b[0] - sum(a) > GAP for a, b in pairwise(runs))


def test_lines_of_other_widths_and_empty_pieces() -> None:
    style = Style()
    assert changes(Strip([Segment("abc", style)]), Strip([Segment("abcd", style)])) == [(0, 4)]
    with_nothing = Strip([Segment("", style), Segment("a", style), Segment("", style), Segment("bx", style)])
    assert changes(Strip([Segment("abc", style)]), with_nothing) == [(2, 1)]


class Panel(CellPanel):
    def compose_rows(self, width: int, height: int) -> list[Row]:
        return [Row((f"{width} x {height}", "text"))]


async def test_a_panel_with_a_frame_of_its_own() -> None:
    class Framed(App[None]):
        CSS = "Panel { width: 12; height: 3; padding: 1 2; }"

        def compose(self) -> ComposeResult:
            yield Panel()

    app = Framed()
    async with app.run_test(size=(20, 5)) as pilot:
        await handled(pilot)
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert [line.rstrip() for line in lines[:3]] == ["", "  8 x 1", ""]
