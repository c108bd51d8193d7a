"""What ``clean`` has removed of a run, kept in ``cleaned.json`` so that whoever misses it is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import msgspec

from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.plural import plural, quantity
from liverl.util.regular_file import read_regular


class Removal(msgspec.Struct, frozen=True):
    """One call of ``clean``. ``at``: Unix seconds; ``attempts``: whose logs were removed, empty for trials."""

    what: Literal["logs", "trials"]
    at: float
    files: int
    bytes: int
    attempts: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """``the logs of attempt 1 were removed by liverl-tui clean (12 files, 2026-11-28 01:02)``."""
        of = f" of {plural(len(self.attempts), 'attempt')} {', '.join(map(str, self.attempts))}"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.at))
        whose = of if self.attempts else ""
        return f"the {self.what}{whose} were removed by liverl-tui clean ({quantity(self.files, 'file')}, {when})"


def read_cleaned(run_dir: Path) -> tuple[Removal, ...]:
    """What was removed of the run, oldest first; empty if the record is missing or damaged."""
    try:
        return decode_json(read_regular(RunDir(run_dir).cleaned), type=tuple[Removal, ...])
    except (OSError, *BAD_JSON):
        return ()


def add_cleaned(run_dir: Path, removals: tuple[Removal, ...]) -> None:
    """Add to the record. The caller holds the run's lock.

    Raises:
        OSError: it cannot be written.
    """
    data = msgspec.json.encode([*read_cleaned(run_dir), *removals])
    write_atomic(RunDir(run_dir).cleaned, msgspec.json.format(data), inside=run_dir)
