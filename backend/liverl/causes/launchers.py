"""What launchers report of a child that a signal ended: torchrun, DeepSpeed, Ray's jobs, ray start. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_ENDED = re.compile(
    r"\(exitcode: -(\d{1,2})\)|exitcode  : -(\d{1,2}) |exits with return code = -(\d{1,2})\b"
    r"|command failed with exit code -(\d{1,2})\b|\[exit code=-(\d{1,2})\]"
)


class Reported(NamedTuple):
    """``number``: of the signal; ``line``: which says so."""

    number: int
    line: str


def reported_signal(text: str) -> Reported | None:
    """The first signal that a launcher reports in ``text``."""
    found = _ENDED.search(text)
    if found is None:
        return None
    line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
    return Reported(next(int(number) for number in found.groups() if number), line)
