"""Where the directories of trials are: ``trials/step_NNNN/TRIAL``, or ``trials/TRIAL`` for a trial of no step."""

from __future__ import annotations

import os
from pathlib import Path

_STEP = "step_"


def steps(trials: Path) -> list[str]:
    """The names of the directories of steps in ``trials``, the newest step first; none if there is no ``trials``.

    Raises:
        OSError: it cannot be read.
    """
    try:
        names = os.listdir(trials)
    except FileNotFoundError:
        return []
    numbers = ((name.removeprefix(_STEP), name) for name in names if name.startswith(_STEP))
    found = [(int(number), name) for number, name in numbers if number.isascii() and number.isdigit()]
    return [name for _, name in sorted(found, reverse=True)]
