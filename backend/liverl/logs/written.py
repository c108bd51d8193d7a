"""When a log was last written to, by its own time stamps: the time of its file is that of the copy, if it is one. Pure.

All times here are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from liverl.logs.no_work import shows_no_work
from liverl.logs.prefix_chain import split_prefixes
from liverl.logs.prefixes import colourless
from liverl.logs.zones import has_stamp
from liverl.util.late_pattern import late_pattern

LATE_S = 120.0  # by which the file of a log may be younger than its last line: a buffer, two clocks
QUIET_S = 900.0  # the same where lines without a stamp stand behind the last one that has one,
QUIET_STEPS = 5.0  # and so many times what a step takes, where the steps of a training do
# Lines without a stamp that the process may have written at once: the end of a traceback, a farewell
FEW = 20
LONGEST = 600  # characters of a line that are looked at
_STEP = late_pattern(r"\bstep:\d+ - ")
_SECONDS = late_pattern(r"\b(?:timing_s/step|perf/time_per_step):(\d+(?:\.\d+)?)")
_BAR = late_pattern(r"\|[^|\n]{0,200}\| *\d{1,9}/\d{1,9} \[")


def last_written(tail: str, last: float | None, modified: float, unsure: float = 0.0) -> float:
    """When a log was last written to.

    ``tail``: its last bytes; ``last``: the time of its last stamp, None without one; ``modified``: the time of its
    file; ``unsure``: seconds by which the last stamp may be later, as nobody says its zone. The file counts unless the
    log has a stamp near its end, and all behind it was written long before: steps of a training say how long they took,
    the end of a traceback takes no time, and of polls or of other lines nobody knows.
    """
    if last is None or modified - last <= LATE_S + unsure:
        return modified
    lines = _behind(tail)
    if lines is None:
        return modified
    took, longest, others = 0.0, 0.0, 0
    for text in lines:
        if _STEP.search(text) is not None:
            seconds = _SECONDS.search(text)
            if seconds is None:
                return modified
            took, longest = took + float(seconds[1]), max(longest, float(seconds[1]))
        elif text[:1].isspace() or _BAR.search(text[:LONGEST]) is not None:
            continue
        elif shows_no_work(text[:LONGEST]):
            return modified
        else:
            others += 1
    if others > FEW:
        return modified
    slack = max(QUIET_S, QUIET_STEPS * longest) if lines else LATE_S
    return last + took if modified - last - took > slack + unsure else modified


def _behind(tail: str) -> list[str] | None:
    """The lines behind the last one with a stamp, the last one first and without what stands before the text of each;
    None if none has a stamp."""
    lines: list[str] = []
    for line in _backwards(tail):
        if has_stamp(line):
            return lines
        lines.append(split_prefixes(colourless(line)).text)
    return None


def _backwards(tail: str) -> Iterator[str]:
    return (line for line in reversed(tail.replace("\r", "\n").split("\n")) if line.strip())
