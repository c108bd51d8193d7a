"""Progress bars of tqdm in a log: they end without a newline, so what is printed next stands behind them. Pure."""

from __future__ import annotations

import re

# "[00:08<00:02,  2.83s/it, loss=0.3]", "[00:00, 251231.07 examples/s]"
_BAR = re.compile(r"\[(?:\d{1,4}:)?\d\d:\d\d[<,][^\[\]\n]{1,200}\](?=\S)")


def behind_bar(text: str) -> int:
    """Where in a line the text begins that stands directly behind a progress bar; 0 if there is none."""
    if "/s" not in text and "s/" not in text:  # every bar has a rate; this is quick
        return 0
    return max((bar.end() for bar in _BAR.finditer(text)), default=0)
