"""How far progress bars have come, and which of many bars tell as much as all of them. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from operator import le

from liverl.util.late_pattern import late_pattern

DONE = late_pattern(rb"\| {0,3}(\d{1,12})/")
DONE_OF = late_pattern(rb"\| {0,3}(\d{1,12})/(\d{1,12})")


def name_of(bar: str) -> str:
    """As what a bar with this name counts the training."""
    return "bar" if bar.lower() == "training progress" else "counted"


@lru_cache(maxsize=64)
def done_of(total: bytes) -> re.Pattern[bytes]:
    """Finds how far bars of this total have come."""
    return re.compile(rb"\| {0,3}(\d{1,12})/%b \[" % total)


def turns(done: Sequence[int]) -> set[int]:
    """Of the numbers that a bar has shown, in their order, the places of those that tell as much as all of them: the
    first and the last one, the last beginning anew, the last step, and what stands before these two."""
    last = len(done) - 1
    if all(map(le, done, islice(done, 1, None))):
        step = bisect_left(done, done[last])
        return {0, max(0, step - 1), step, last}
    begun = next(place for place in range(last, 0, -1) if done[place] < done[place - 1])
    step = next((place for place in range(last, 0, -1) if done[place] > done[place - 1]), 0)
    return {0, begun - 1, begun, max(0, step - 1), step, last}


def turns_of_all(bars: Sequence[tuple[bytes, bytes]]) -> set[int]:
    """Likewise of the numbers and the totals of bars: of all bars, and of those of each total."""
    done = [int(number) for number, _ in bars]
    places = turns(done)
    of_total: dict[bytes, list[int]] = {}
    for place, (_, total) in enumerate(bars):
        of_total.setdefault(total, []).append(place)
    for those in of_total.values():
        places.update(those[turn] for turn in turns([done[place] for place in those]))
    return places
