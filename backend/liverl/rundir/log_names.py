"""The names of logs: of a service, and the number of the process that wrote it (``replica-0.2.log``)."""

from __future__ import annotations

import re
from typing import NamedTuple

from liverl.util.late_pattern import late_pattern

_NAME = late_pattern(r"(?P<service>.+)\.(?P<generation>\d{1,9})\.log", re.DOTALL)


class LogName(NamedTuple):
    """``generation``: the number of the service's process, from 1; ``service`` with the folders before it."""

    service: str
    generation: int

    def __str__(self) -> str:
        return f"{self.service}.{self.generation}.log"


def read_log_name(name: str | None) -> LogName | None:
    """Which process of which service wrote the log of this name or path; None if it is named otherwise."""
    match = _NAME.fullmatch(name or "")
    return None if match is None else LogName(match["service"], int(match["generation"]))
