"""Which patterns of the catalogue are slow on a near miss of 256 KiB: ``python tests/bench/slow_patterns.py``.

That each search takes linear time is proven by the patterns' structure (tests/unit/test_causes_catalogue.py); this
measures the constants. A pattern is named if it takes over half a second of CPU, and quadratic if half of the text
takes less than a third of that. About a minute.
"""

from __future__ import annotations

import re
import sys
import time

from liverl.causes.catalogue import rows

SIZE = 2**18  # characters
SLOW = 0.5  # seconds of CPU


def searched(pattern: re.Pattern[str], text: str) -> float:
    start = time.process_time()
    pattern.search(text)
    return time.process_time() - start


def main() -> int:
    slow = []
    for place, signature in enumerate(rows()):
        if sys.stderr.isatty() and place % 20 == 0:
            print(f"\r{place} of {len(rows())}", end="", file=sys.stderr)
        pattern = re.compile(signature.pattern)
        for text in (signature.fires[:-1], signature.fires[: len(signature.fires) // 2], signature.spares):
            if not text or pattern.search(text * 3):
                continue
            count = SIZE // len(text)
            whole = min(searched(pattern, text * count) for _ in range(2))
            if whole > SLOW:
                half = min(searched(pattern, text * (count // 2)) for _ in range(2))
                slow.append((signature.id, whole, whole > 3 * half))
    for name, seconds, quadratic in slow:
        print(f"{name}: {seconds:.1f} s{', quadratic' if quadratic else ''}")
    print(f"{len(rows())} patterns, {len(slow)} slow")
    return 1 if any(quadratic for _, _, quadratic in slow) else 0


if __name__ == "__main__":
    sys.exit(main())
