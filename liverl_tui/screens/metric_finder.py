"""Finds a metric by any part of its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from textual.fuzzy import Matcher

from liverl_tui.screens.finder import QUERY_MOST, Choices, Finder
from liverl_tui.widgets.base.cells import Row

_VALUE = 9  # columns of a value


def ranked(query: str, keys: Iterable[str]) -> list[str]:
    """The keys that fit, the best first; all of them, by name, where nothing is asked for."""
    ordered = sorted(keys)
    words = query[:QUERY_MOST].lower().split()
    if not words:
        return ordered
    matcher = Matcher("".join(words))
    scored = []
    for key in ordered:
        # What holds the words as they are comes before what only has their letters.
        held = all(word in key.lower() for word in words)
        score = matcher.match(key)
        if held or score > 0:
            scored.append((-held, -score, key))
    return [key for _, _, key in sorted(scored)]


class Metrics(Choices):
    """Metrics with their newest values; ``●`` marks those that have a chart."""

    def __init__(self, newest: Mapping[str, str], shown: Collection[str]) -> None:
        super().__init__()
        self._newest = newest
        self._shown = shown
        self._found = ranked("", newest)

    def find(self, query: str) -> None:
        self._found = ranked(query, self._newest)

    def keys(self) -> Sequence[str]:
        return self._found

    def row(self, key: str, width: int) -> Row:
        mark = (" ● ", "ok") if key in self._shown else ("   ", "text")
        row = Row(mark).add(key, "text", width=max(4, width - _VALUE - 4))
        return row.add(self._newest[key], "strong", _VALUE, ">")

    def empty(self, width: int) -> Iterable[Row]:
        return [Row((" no metric matches", "dim"))]


class MetricFinder(Finder[str]):
    """Its answer is the key of a metric, or None."""

    def __init__(self, newest: Mapping[str, str], shown: Collection[str]) -> None:
        self._metrics = Metrics(newest, shown)
        super().__init__("Metrics", "part of a name; Enter shows its chart", self._metrics)

    def answer(self) -> str | None:
        return self._metrics.cursor
