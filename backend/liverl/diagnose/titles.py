"""Titles and fixes of symptoms in short. Imported at the start of the interface, so it imports nothing of the rules."""

from __future__ import annotations

import re

_CLAUSE = re.compile(r"[:;] ")


def point(text: str) -> str:
    """What a title or a fix says in short: its part before the first colon or semicolon."""
    return _CLAUSE.split(text, maxsplit=1)[0]
