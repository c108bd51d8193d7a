"""A second user of the host: the table of ``tests/bench/second_user.py``, each row a fault. Needs root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import second_user

from fault_cases.base import Outcome, Part, Shared


def cases() -> Iterator[Shared]:
    """Everything on a run of toys."""
    yield Shared("a second user", _all, 200)


def _all(folder: Path) -> list[Part]:
    """In a place that others can enter, unlike the folder of a case."""
    place = Path(f"/tmp/liverl-second-{os.getpid()}")
    place.mkdir()
    try:
        rows = second_user.attempt(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return [
        Part(f"{row.kind}: {row.what}", Outcome(leaked=int(not row.ok), note="" if row.ok else row.got))
        for row in rows
    ]
