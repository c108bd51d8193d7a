"""What all proxy processes of a run have counted together, from ``proxy/status.<generation>.json``.

Each generation counts from zero, and leaves its last report behind.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.supervise.journal import read_object

_REPORT = re.compile(r"status\.(\d{1,9})\.json")


class Counts(msgspec.Struct, frozen=True):
    """Requests, how many of them failed, and how many named no trial."""

    requests: int = 0
    failures: int = 0
    unattributed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.requests + other.requests,
            self.failures + other.failures,
            self.unattributed + other.unattributed,
        )


def counts_of(report: Mapping[str, Any]) -> Counts:
    """Those of one process; what is no number counts as none."""
    numbers = (report.get(field) for field in Counts.__struct_fields__)
    return Counts(*(n if isinstance(n, int) else 0 for n in numbers))


def ended_counts(folder: Path, living: Collection[int]) -> dict[int, Counts]:
    """By generation, of those that are not among ``living``. Reports that cannot be read are left out."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return {}
    found = {}
    for name in names:
        match = _REPORT.fullmatch(name)
        if match is not None and int(match[1]) not in living:
            report = read_object(folder / name)
            if report is not None:
                found[int(match[1])] = counts_of(report)
    return found
