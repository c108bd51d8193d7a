"""Which rows of the catalogue of causes rest on a recording, and which on text: ``python -m kit.cause_table``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from liverl.causes.catalogue import SIGNATURES
from liverl.causes.signature import Signature


def table(signatures: Iterable[Signature]) -> list[str]:
    """One line per row: id, component, role, what its text is, and its source."""
    return [
        f"{one.id:32} {one.component:8} {one.role:12} {'recording' if one.recorded else 'text':10} {one.source}"
        for one in signatures
    ]


def totals(signatures: Iterable[Signature]) -> list[str]:
    """How many rows each component has by role, and how many of them rest on a recording."""
    rows = list(signatures)
    counts = Counter((one.component, one.role) for one in rows)
    recorded = Counter((one.component, one.role) for one in rows if one.recorded)
    lines = [
        f"{name:8} {role:12} {counts[name, role]:4} {recorded[name, role]:4}" for name, role in sorted(counts)
    ]
    return [*lines, f"{'all':21} {len(rows):4} {sum(one.recorded for one in rows):4}"]


if __name__ == "__main__":
    print(*table(SIGNATURES), "", "component role         rows recorded", *totals(SIGNATURES), sep="\n")
