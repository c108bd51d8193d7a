"""The index of needles finds exactly those that stand in a text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liverl.causes.catalogue import rows
from liverl.causes.needles import Needles
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
