"""Several names in a sentence."""

from __future__ import annotations

import pytest

from liverl.util.listing import listing


@pytest.mark.parametrize(
    ("names", "last", "said"),
    [
        ([], "and", ""),
        (["a"], "and", "a"),
        (["a", "b"], "and", "a and b"),
        (["a", "b", "c"], "and", "a, b and c"),
        (("1", "2", "4"), "or", "1, 2 or 4"),
    ],
)
def test_names_are_joined_as_in_a_sentence(names: list[str], last: str, said: str) -> None:
    assert listing(names, last) == said
