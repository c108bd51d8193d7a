"""Titles and fixes of symptoms in short. Imported at the start of the interface, so it imports nothing of the rules."""

from __future__ import annotations

from liverl.util.late_pattern import late_pattern

_CLAUSE = late_pattern(r"[:;] ")
_WORD = late_pattern(r"[a-z]+[ ,;:]")  # no name of a file, a key or a metric


def point(text: str) -> str:
    """What a title or a fix says in short: its part before the first colon or semicolon."""
    return _CLAUSE.split(text, maxsplit=1)[0]


def sentences(title: str, cause: str) -> str:
    """A title and its cause as one line of text: ``trainer has failed: killed by SIGKILL``. A title that has clauses of
    its own is a sentence for itself."""
    if not cause:
        return title
    return f"{title}. {capital(cause)}" if _CLAUSE.search(title) else f"{title}: {cause}"


def capital(text: str) -> str:
    """The text as it begins behind a full stop; names keep their form."""
    return text[:1].upper() + text[1:] if _WORD.match(text) else text
