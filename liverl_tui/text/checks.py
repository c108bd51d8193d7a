"""What preflight found, in words: the same in lines and in the interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from liverl.util.plural import quantity

if TYPE_CHECKING:
    from liverl.model import Check

STATUSES = {"fail": "failed", "warn": "warned", "skipped": "skipped", "ok": "ok"}  # the worst first
GUESS = "a rule of thumb: other values may do as well"


def worst_first(checks: Sequence[Check]) -> list[Check]:
    """The checks by their status; those of one status stay in their order."""
    ranks = list(STATUSES)
    return sorted(checks, key=lambda check: ranks.index(check.status))


def details(check: Check) -> Iterator[str]:
    """Evidence, fix and patch of a check, a line each."""
    for evidence in check.evidence:
        yield f"  seen: {evidence.words}"
    if check.fix:
        yield f"  fix:  {check.fix}"
    if check.patch:
        sets = " ".join(f"--set {key}={value}" for key, value in check.patch.items())
        yield f"  set:  {sets}" + (f"  ({GUESS})" if check.guess else "")


def suggested(checks: Sequence[Check]) -> dict[str, str]:
    """Key -> the value that failed or warning checks suggest; where two name one key, that of the first one holds."""
    values: dict[str, str] = {}
    for check in worst_first(checks):
        if check.status in ("fail", "warn"):
            values = {**check.patch, **values}
    return values


def sentence(check: Check) -> str:
    """The name of a check, what it found, and what to do about it, in one line."""
    return f"{check.name}: {finding(check)}"


def finding(check: Check) -> str:
    """What a check found, and what to do about it, in one line."""
    return check.text + (f". To correct it: {check.fix}" if check.fix else "")


def counted(checks: Sequence[Check]) -> str:
    """``23 checks: 1 failed, 2 skipped, 20 ok``."""
    counts: Counter[str] = Counter(check.status for check in checks)
    told = [f"{counts[status]} {word}" for status, word in STATUSES.items() if counts[status]]
    return f"{quantity(len(checks), 'check')}: {', '.join(told) or 'none applies'}"
