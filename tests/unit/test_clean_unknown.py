"""What ``clean`` says of Ray's directories whose runs it does not know."""

from __future__ import annotations

import pytest

from liverl.offline.clean_host import _unknown_words

OURS = (
    "of Ray of yours, whose runs are not known here: they are under another --run-root or in another home, or were "
    "removed"
)


@pytest.mark.parametrize(
    ("mine", "foreign", "words"),
    [
        (0, 0, ""),
        (1, 0, f"1 folder {OURS}"),
        (0, 3, "3 folders of Ray of other users"),
        (29, 1, f"29 folders {OURS}; 1 folder of Ray of other users"),
    ],
)
def test_it_counts_them_and_tells_nobody_to_remove_them(mine: int, foreign: int, words: str) -> None:
    assert _unknown_words(mine, foreign) == words
