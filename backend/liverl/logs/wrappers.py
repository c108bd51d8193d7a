"""What a program that is not known puts before each line of another one, learned from a traceback within it. Pure.

``[INFO ] W-9000-stdout MODEL_LOG - Traceback (most recent call last):``, and the same words before each of its frames.
"""

from __future__ import annotations

import re

from liverl.logs.prefix_chain import split_prefixes
from liverl.logs.tracebacks import BEGINS, begins_in

MOST = 8  # wrappers that are learned
LONGEST = 200  # characters of one
_NUMBER = re.compile(r"\d+")
_NAMED = re.compile(r"[^\W_]")  # exception groups draw lines of bars
_FRAME = '  File "'


class Wrappers:
    """Strips what stood before a traceback and its first frame alike, but for digits."""

    def __init__(self) -> None:
        self.seen = False  # words before a traceback, so that further lines must be looked at
        self._learned: list[re.Pattern[str]] = []
        self._candidate: re.Pattern[str] | None = None

    def stripped(self, text: str) -> str | None:
        """``text`` without a wrapper; None if it has none. ``text``: a line without known prefixes and head."""
        candidate = self._candidate
        match = None if candidate is None else candidate.match(text)
        if (
            candidate is not None
            and match is not None
            and split_prefixes(text[match.end() :]).text.startswith(_FRAME)
        ):
            self._learned.append(candidate)
            self._candidate = None
        for learned in self._learned:
            match = learned.match(text)
            if match is not None:
                return text[match.end() :]
        place = text.find(BEGINS, 0, LONGEST)
        if place > 0 and begins_in(text) and len(self._learned) < MOST and _NAMED.search(text[:place]):
            wrapper = _unknown(text[:place])
            self._candidate = _pattern(wrapper)
            self.seen = True
            if len(wrapper) < place:  # known prefixes behind it tell that it is a wrapper
                return text[len(wrapper) :]
        return None


def _unknown(words: str) -> str:
    """The words before a traceback without the known prefixes that they end with."""
    for match in re.finditer(r"(?<=\s)(?=\S)", words):
        rest = words[match.start() :]
        if split_prefixes(rest).length == len(rest):
            return words[: match.start()]
    return words


def _pattern(wrapper: str) -> re.Pattern[str]:
    bare = wrapper.rstrip()
    pattern = r"\d{1,20}".join(re.escape(part) for part in _NUMBER.split(bare))
    return re.compile(
        rf"{pattern}(?:{re.escape(wrapper[len(bare) :])}|$)"
    )  # a blank line ends with the wrapper
