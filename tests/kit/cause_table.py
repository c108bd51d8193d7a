"""Which rows of the catalogue of causes rest on a recording, and which on text: ``python -m kit.cause_table``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from liverl.causes.catalogue import rows
from liverl.causes.signature import Signature


def table(signatures: Iterable[Signature]) -> list[str]:
    """One line per row: id, the program that prints it, role, what its text is, and its source."""
    return [
        f"{one.id:32} {one.printer:18} {one.role:12} {'recording' if one.recorded else 'text':10} {one.source}"
        for one in signatures
    ]


def totals(signatures: Iterable[Signature]) -> list[str]:
    """How many rows each program has by role, and how many of them rest on a recording."""
    all_of = list(signatures)
    counts = Counter((one.printer, one.role) for one in all_of)
    recorded = Counter((one.printer, one.role) for one in all_of if one.recorded)
    lines = [
        f"{name:18} {role:12} {counts[name, role]:4} {recorded[name, role]:4}"
        for name, role in sorted(counts)
    ]
    return [*lines, f"{'all':31} {len(all_of):4} {sum(one.recorded for one in all_of):4}"]


if __name__ == "__main__":
    print(*table(rows()), "", "program role                   rows recorded", *totals(rows()), sep="\n")
