"""The directories of steps below ``trials``, in the order of their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable

_STEP = re.compile(r"step_([0-9]{1,18})")


def step_number(name: str) -> int | None:
    """The number of the step with this directory; None if the name is of no step."""
    match = _STEP.fullmatch(name)
    return None if match is None else int(match[1])


def newest_first(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are of a step, by number: ``step_10000`` is newer than ``step_9999``."""
    numbers = {name: number for name in names if (number := step_number(name)) is not None}
    return sorted(numbers, key=lambda name: numbers[name], reverse=True)
