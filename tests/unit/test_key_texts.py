"""How the comment of a configuration key becomes the text of its page."""

from __future__ import annotations

import pytest
from kit.key_texts import meaning

CASES = {
    "one line": ("the port; 0 = any free one", "The port; 0 = any free one."),
    "lines of one paragraph": ("A long\nsentence.  And\nanother", "A long sentence. And another."),
    "a value stays as it is": (
        "vanilla = clipped; gspo = by sequence",
        "vanilla = clipped; gspo = by sequence.",
    ),
    "values one after the other": ("dark, light; auto: by TERM", "dark, light; auto: by TERM."),
    "a variable that is listed beside it": ("the port [PORT]", "The port."),
    "nothing but that": ("[PORT]", ""),
    "other variables": ("as [OTHER] says", "As \\[OTHER\\] says."),
    "a list": (
        "Which one:\none:   the first;\nthree: as one,\n       but later.\nAnd a word more",
        "Which one:\n\n- `one`: the first\n- `three`: as one, but later\n\nAnd a word more.",
    ),
    "an indented list": (
        "Keys:\n  a:  x\n      y\n  bb: z\nIt ends",
        "Keys:\n\n- `a`: x y\n- `bb`: z\n\nIt ends.",
    ),
    "one entry is no list": ("Note: this\nand that", "Note: this and that."),
    "values in one paragraph": (
        "What it does. dark: this. light: that; see there",
        "What it does.\n\n- `dark`: this\n- `light`: that; see there",
    ),
    "a word that is no value": ("dark: this. Beware: that", "dark: this. Beware: that."),
    "a remark in brackets at the end": ("[PORT_X: 1 is on, 0 is off]", "PORT_X: 1 is on, 0 is off."),
    "an ellipsis": ("one, two, ...", "One, two, ..."),
}


@pytest.mark.parametrize("name", CASES)
def test_a_comment_becomes_sentences_and_lists(name: str) -> None:
    comment, page = CASES[name]
    values = ("dark", "light", "vanilla", "gspo")
    assert meaning(comment, ["PORT"], values) == page
