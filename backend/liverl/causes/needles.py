"""Which of many needles stand in a text, without a search for each of them. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

_WORD = re.compile(r"\w+")
# How characters of logs are spread, the most frequent first; all others are rarer
_COMMON = " etaoinrsl0dc1mpu2.g3_45f:h876b9w/v-kyxTIEANSRPLCWOMDG,=()'[]FU"


class Needles:
    """An index by words: a word within a needle, with other characters on both sides, is a whole word of every text in
    which the needle stands. Needles without such a word are searched for if the text has their rarest character."""

    def __init__(self, needles: Iterable[str]) -> None:
        within = {needle: _within(needle) for needle in dict.fromkeys(needles) if needle}
        often = Counter(word for words in within.values() for word in words)
        self._by_word: dict[str, list[str]] = {}
        self._by_character: dict[str, list[str]] = {}
        for needle, words in within.items():
            if words:
                rarest = min(words, key=lambda word: (often[word], -len(word)))
                self._by_word.setdefault(rarest, []).append(needle)
            else:
                rarest = max(needle, key=_COMMON.find)
                rarest = next((character for character in needle if character not in _COMMON), rarest)
                self._by_character.setdefault(rarest, []).append(needle)

    def of(self, text: str) -> Iterator[str]:
        """Yield the needles that stand in ``text``, in no order."""
        for word in self._by_word.keys() & set(_WORD.findall(text)):
            for needle in self._by_word[word]:
                if needle in text:
                    yield needle
        for character in self._by_character.keys() & set(text):
            for needle in self._by_character[character]:
                if needle in text:
                    yield needle

    def any_of(self, text: str) -> bool:
        """Whether a needle stands in ``text``."""
        return next(self.of(text), None) is not None


def _within(needle: str) -> set[str]:
    return {found[0] for found in _WORD.finditer(needle) if found.start() > 0 and found.end() < len(needle)}
