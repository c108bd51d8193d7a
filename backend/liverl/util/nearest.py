"""The name that was probably meant by one that does not exist. Every "did you mean" comes from here."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 200  # characters of a wrong name that are compared
_SHORTEST = 3  # a shorter word is not compared with beginnings: too many names would begin like it


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice most similar to ``word``, or else the one whose beginning is; None if neither is similar. Case and
    ``-`` versus ``_`` do not matter; ``cutoff`` is the least similarity, 0..1 (difflib)."""
    import difflib  # only wrong names need it

    asked = _folded(word[:_LONGEST])
    folded = {_folded(choice): choice for choice in choices}
    close = difflib.get_close_matches(asked, folded, n=1, cutoff=cutoff)
    if close:
        return folded[close[0]]
    if len(asked) < _SHORTEST:
        return None
    beginnings = {choice[: len(asked)]: choice for choice in reversed(folded)}
    close = difflib.get_close_matches(asked, beginnings, n=1, cutoff=max(cutoff, 0.75))
    return folded[beginnings[close[0]]] if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``did you mean X?`` with the most similar choice; "" if none is similar."""
    close = nearest(word, choices)
    return f"did you mean {close}?" if close else ""


def _folded(text: str) -> str:
    return text.lower().replace("-", "_")
