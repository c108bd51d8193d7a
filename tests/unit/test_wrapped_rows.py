"""Rows whose last text goes on below: by columns of the terminal, not by characters."""

from __future__ import annotations

import pytest

from liverl_tui.text.columns import columns_of
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.wrapping import wrapped


@pytest.mark.parametrize(
    "text", ["训练进程在等待复制品的权重更新，请检查网络连接" * 3, "the trainer waits for weights " * 8]
)
@pytest.mark.parametrize("width", [30, 41, 80])
def test_each_row_fits_and_nothing_is_lost(text: str, width: int) -> None:
    rows = [row.text for row in wrapped([Row(("原因: ", "dim"), (text, "text"))], width)]
    assert all(columns_of(row) <= width for row in rows), rows
    shown = "".join(rows).removeprefix("原因: ")
    assert shown.replace(" ", "") == text.replace(" ", "")
    assert all(row.startswith(" " * 6) for row in rows[1:])


@pytest.mark.parametrize("width", [24, 30, 41])
def test_what_goes_on_below_an_indented_text_stands_under_it(width: int) -> None:
    rows = [row.text for row in wrapped([Row(("why: ", "dim"), ("   " + "waits " * 12, "text"))], width)]
    assert len(rows) > 2 and all(len(row) <= width for row in rows), rows
    assert rows[0].startswith("why:    waits") and all(row.startswith(" " * 8 + "waits") for row in rows[1:])


def test_beside_hardly_any_room_a_text_is_one_row() -> None:
    row = Row(("x" * 20, "dim"), ("a text of many words", "text"))
    assert len(list(wrapped([row], 20 + 11))) == 1 and len(list(wrapped([row], 20 + 12))) == 2
