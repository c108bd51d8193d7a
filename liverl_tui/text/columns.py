"""How many terminal columns a text takes. Pure."""

from __future__ import annotations

import re

from rich.cells import cell_len

# Texts of which every character is known to be one column wide: a fast check that avoids measuring each one.
_NARROW = re.compile(r"[ -~·×°–-…←-↓─-◼◿⠀-⣿✔✖]*")


def is_narrow(text: str) -> bool:
    """Whether each character is known to be one column wide, so that its index is its column. The text is without
    control characters."""
    return text.isascii() or _NARROW.fullmatch(text) is not None


def columns_of(text: str) -> int:
    """The columns of a text without control characters."""
    return len(text) if text.isascii() or _NARROW.fullmatch(text) else cell_len(text)
