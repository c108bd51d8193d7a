"""The dialog that finds a metric by any part of its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from textual.fuzzy import Matcher

from liverl.observe.metrics.names import CHARTS, key_in
from liverl.observe.metrics.series import chart_name, validation_key
from liverl_tui.screens.finder import QUERY_MOST, Choices, Finder
from liverl_tui.widgets.base.cells import Row

_VALUE = 9  # columns of the newest value, beside the name


def ranked(query: str, keys: Iterable[str]) -> list[str]:
    """Return the keys that match ``query``, the best match first; all keys by name for an empty query. A metric is
    found by the title of its chart, too, and then first: ``val`` is the validation that the interface shows.

    Only the first ``QUERY_MOST`` characters count; case does not.
    """
    ordered = sorted(keys)
    words = query[:QUERY_MOST].lower().split()
    if not words:
        return ordered
    matcher = Matcher("".join(words))
    charted = {validation_key(ordered), *(key_in(name, ordered) for name, _ in CHARTS)}
    scored = []
    for key in ordered:
        title = chart_name(key).lower()
        titled = all(word in title for word in words)
        # A key that contains the words comes before one that only has their letters in this order.
        has_words = titled or all(word in f"{title} {key.lower()}" for word in words)
        score = matcher.match(key)
        if has_words or score > 0:
            scored.append((not has_words, not titled, key not in charted, -score, key))
    return [key for *_, key in sorted(scored)]


class MetricChoices(Choices):
    """The list of matching metrics with their newest values; ``●`` marks those that have a chart.

    ``newest``: metric -> its newest value as text. ``shown``: metrics that have a chart.
    """

    def __init__(self, newest: Mapping[str, str], shown: Collection[str]) -> None:
        super().__init__()
        self._newest = newest
        self._shown = shown
        self._matches = ranked("", newest)

    def find(self, query: str) -> None:
        """List the metrics that match ``query``, the best match first."""
        self._matches = ranked(query, self._newest)

    def keys(self) -> Sequence[str]:
        """Return the metrics that match the query."""
        return self._matches

    def row(self, key: str, width: int) -> Row:
        """Return the mark, the metric's name and its newest value."""
        mark = (" ● ", "ok") if key in self._shown else ("   ", "text")
        row = Row(mark).add(key, "text", width=max(4, width - _VALUE - 4))
        return row.add(self._newest[key], "strong", _VALUE, ">")

    def empty(self, width: int) -> Iterable[Row]:
        """Return the line that says that no metric matches."""
        return [Row((" no metric matches", "dim"))]


class MetricFinder(Finder[str]):
    """Dismissed with the key of the chosen metric, or None. Arguments as of ``MetricChoices``."""

    def __init__(self, newest: Mapping[str, str], shown: Collection[str]) -> None:
        self._metrics = MetricChoices(newest, shown)
        super().__init__("Metrics", "part of a name; Enter shows its chart", self._metrics)

    def answer(self) -> str | None:
        """Return the metric under the cursor."""
        return self._metrics.cursor
