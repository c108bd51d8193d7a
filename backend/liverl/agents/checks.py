"""What a verifier has looked at, one by one: ``verifier/checks.json`` of a trial.

Our own tasks write it, and any verifier may: a JSON list of objects with the fields of ``Check``. Whoever asks why a
trial got reward 0 then reads what was checked, what was expected, and what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from liverl.util.checked_path import RESOLVED
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory

FOLDER, NAME = "verifier", "checks.json"  # in a trial's directory


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a verifier has looked at. ``what``: in words; ``passed``: None if it was left out, or that is not
    known; ``expected`` and ``got``: as text, "" where there is none; ``note``: what else it says, such as a message."""

    what: str
    passed: bool | None = None
    expected: str = ""
    got: str = ""
    note: str = ""


def write_checks(directory: Path, checks: Sequence[Check]) -> None:
    """Write ``verifier/checks.json`` of the trial whose resolved directory is given.

    Raises:
        OSError: it cannot be written.
    """
    make_directory(directory / FOLDER, inside=RESOLVED)
    write_json(directory / FOLDER / NAME, msgspec.to_builtins(list(checks)), inside=RESOLVED)
