"""How long a search for a row of the catalogue takes: ``python tests/bench/slow_patterns.py [SECONDS]``.

A text of 32 KiB is made of a near miss of the row, again and again, with the row's needle: its example cut short, half
of it, its near miss, and the needle alone. A row is named with its seconds of CPU per MB if they are more than SECONDS
(0.2). That each search takes linear time is proven by the patterns' structure (tests/unit/test_causes_catalogue.py);
this measures the constants, and its exit code is 1 if twice the text takes over three times as long. About a minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from liverl.causes.catalogue import rows
from liverl.causes.match import find
from liverl.causes.signature import Signature

SIZE = 2**15  # characters
MB = 2**20
SLOW = 0.2  # seconds of CPU per MB


def near_misses(row: Signature) -> Iterator[tuple[str, str]]:
    """Yield what a text is made of, and what stands at its end, so that the row is asked at all."""
    half = row.fires[: len(row.fires) // 2]
    for part in (row.fires[:-1], half, row.spares, f"{row.needle}\n"):
        end = "" if row.needle in part else row.needle
        if part.strip() and find(row, part * 3) is None and find(row, part + end) is None:
            yield part, end


def seconds(row: Signature, text: str) -> float:
    """The CPU time of one search, the least of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        find(row, text)
        best = min(best, time.process_time() - start)
    return best


def main() -> int:
    slow = float(sys.argv[1]) if sys.argv[1:] else SLOW
    found, over, quadratic = [], 0, False
    for place, row in enumerate(rows()):
        if sys.stderr.isatty() and place % 20 == 0:
            print(f"\r{place} of {len(rows())}", end="", file=sys.stderr)
        texts = [part * (SIZE // len(part)) + end for part, end in near_misses(row)]
        worst = max(((seconds(row, text) * MB / len(text), text) for text in texts), default=(0.0, ""))
        over += worst[0] > 0.05
        if worst[0] > slow:
            grows = seconds(row, worst[1] * 2) > 3 * seconds(row, worst[1])
            quadratic |= grows
            found.append((worst[0], f"{row.printer}: {row.id}{', quadratic' if grows else ''}"))
    for rate, name in sorted(found, reverse=True):
        print(f"{rate:.2f} s/MB {name}")
    print(f"{len(rows())} rows, {over} over 0.05 s/MB, {len(found)} over {slow:g} s/MB")
    return 1 if quadratic else 0


if __name__ == "__main__":
    sys.exit(main())
