"""What launchers report of a child that a signal ended: torchrun, DeepSpeed, Ray's jobs, ray start, srun. Pure."""

from __future__ import annotations

import signal
from typing import NamedTuple

from liverl.util.late_pattern import late_pattern

_ENDED = late_pattern(
    r"\(exitcode: -(\d{1,2})\)|exitcode  : -(\d{1,2}) |exits with return code = -(\d{1,2})\b"
    r"|command failed with exit code -(\d{1,2})\b|\[exit code=-(\d{1,2})\]"
    r"|command terminated with exit code (1(?:29|3\d|4[0-3]))\b"
    r"|srun: error: \S{1,80}: tasks? [\d,-]{1,80}: (Aborted|Segmentation fault|Bus error|Killed)\b"
)
# The names by which shells and srun report signals
NAMED = {
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Aborted": signal.SIGABRT,
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
}


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
    told = next(number for number in found.groups() if number)
    number = int(NAMED.get(told) or told)
    return Reported(number - 128 if number > 128 else number, line)  # kubectl reports as shells do
