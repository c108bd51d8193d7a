"""How many terminal columns a text takes. Pure."""

from __future__ import annotations

import re

# Texts of which every character is known to be one column wide: a fast check that avoids measuring each one.
_NARROW = re.compile(r"[ -~·×°–-…←-↓─-◼◿⠀-⣿✔✖]*")


def is_narrow(text: str) -> bool:
    """Whether each character is known to be one column wide, so that its index is its column. The text is without
    control characters."""
    return text.isascii() or _NARROW.fullmatch(text) is not None


def columns_of(text: str) -> int:
    """The columns of a text without control characters."""
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len  # not at the top: commands that print plain text do without

    return cell_len(text)


def head(word: str, room: int) -> str:
    """The longest beginning of a word that fits ``room`` columns."""
    if is_narrow(word):
        return word[:room]
    from rich.cells import get_character_cell_size

    used = 0
    for index, character in enumerate(word):
        used += get_character_cell_size(character)
        if used > room:
            return word[:index]
    return word
