"""The sums of the counters of all proxy processes of a run, from ``proxy/status.<generation>.json``.

Each generation counts from zero, and its last report stays on disk.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.proxy.runtime.refusals import OTHERS
from liverl.rundir.journal import read_object

_REPORT = re.compile(r"status\.(\d{1,9})\.json")


class ProxyCounters(msgspec.Struct, frozen=True):
    """Requests; how many of them failed, named no trial (``unattributed``), or named a model that is not served
    (``unknown``). Requests without a valid key (``refused``) are not among ``requests``.
    The others: as in ``ProxyStatus``."""

    requests: int = 0
    failures: int = 0
    unattributed: int = 0
    refused: int = 0
    unknown: int = 0
    too_large: int = 0
    unrecorded: int = 0
    turned_away: int = 0
    dropped: int = 0

    def __add__(self, other: ProxyCounters) -> ProxyCounters:
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        return ProxyCounters(*(mine + its for mine, its in pairs))


def counts_of(report: Mapping[str, Any]) -> ProxyCounters:
    """The counters in one process's report; a value that is no integer counts as 0."""
    unknown = sum(_models(report).values())
    numbers = (
        unknown if field == "unknown" else report.get(field) for field in ProxyCounters.__struct_fields__
    )
    return ProxyCounters(*(n if isinstance(n, int) else 0 for n in numbers))


def unknown_models(reports: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The models that requests named and the proxy does not have, the most frequent first."""
    requests: Counter[str] = Counter()
    for report in reports:
        requests.update(_models(report))
    names = [name for name, _ in requests.most_common()]
    return tuple(sorted(names, key=lambda name: name == OTHERS))  # OTHERS, which is no name, comes last


def _models(report: Mapping[str, Any]) -> dict[str, int]:
    counts = report.get("unknown_models")
    return {k: n for k, n in counts.items() if isinstance(n, int)} if isinstance(counts, dict) else {}


def ended_counts(folder: Path, living: Collection[int]) -> dict[int, ProxyCounters]:
    """The counters of ended proxy processes by generation: of all reports in ``folder`` but those of the ``living``
    generations. Reports that cannot be read are left out."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return {}
    counters = {}
    for name in names:
        match = _REPORT.fullmatch(name)
        if match is not None and int(match[1]) not in living:
            report = read_object(folder / name)
            if report is not None:
                counters[int(match[1])] = counts_of(report)
    return counters
