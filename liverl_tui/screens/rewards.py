"""The dialog with the histogram of rewards: each bar is a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from textual.app import ComposeResult

from liverl_tui.screens.dialogs import Dialog, Option, Options, Wrapped

BARS = 8  # ranges, where there are more values than that
_BAR = 30  # columns of the longest bar


def buckets(rewards: Iterable[float]) -> list[tuple[str, str, int]]:
    """(filter, label, number of trials) of each bar: one for each value, or ``BARS`` ranges of the same width."""
    counts = Counter(rewards)
    if len(counts) <= BARS:
        return [(f"reward={value:g}", f"{value:g}", count) for value, count in sorted(counts.items())]
    low, high = min(counts), max(counts)
    bounds = [low + (high - low) * n / BARS for n in range(BARS)] + [high]
    found = []
    for number, (begin, end) in enumerate(pairwise(bounds)):
        last = number == BARS - 1
        inside = sum(
            c for value, c in counts.items() if begin <= value and (value <= end if last else value < end)
        )
        sign = "<=" if last else "<"
        found.append((f"reward>={begin!r} reward{sign}{end!r}", f"{begin:.3g} to {end:.3g}", inside))
    return found


class RewardBars(Dialog[str]):
    """Dismissed with the filter of a bar, or None. ``what``: whose rewards these are."""

    def __init__(self, rewards: Sequence[float], unknown: int, what: str) -> None:
        super().__init__()
        self._what = what
        found = buckets(rewards)
        if unknown:
            found.append(("reward=none", "none", unknown))
        most = max((count for _, _, count in found), default=1)
        wide = max((len(label) for _, label, _ in found), default=0)
        self._options = [
            Option(
                text,
                "",
                f"{label:>{wide}} {'█' * max(1 if count else 0, round(_BAR * count / most)):<{_BAR}}",
                f"{count:,}",
            )
            for text, label, count in found
        ]

    def parts(self) -> ComposeResult:
        """Title and bars."""
        yield Wrapped(f"Rewards of {self._what}: a bar becomes the filter", "title")
        yield Options(self._options)

    def action_pick(self) -> None:
        """Choose the bar under the cursor."""
        self.dismiss(self.query_one(Options).cursor)
