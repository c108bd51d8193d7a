"""What preflight found, as lines: the same in ``check``, ``plan`` and ``up``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from liverl.util.plural import quantity

if TYPE_CHECKING:
    from liverl.model import Check

_STATUSES = {"fail": "failed", "warn": "warned", "skipped": "skipped", "ok": "ok"}  # the worst first
_WIDTH = 7  # of a status
GUESS = "a rule of thumb: other values may do as well"


def table(checks: Sequence[Check]) -> Iterator[str]:
    """One row for each check, the worst first; below one that is not ``ok`` its evidence, fix and patch."""
    width = max((len(check.name) for check in checks), default=0)
    yield f"{'STATUS':<{_WIDTH}}  {'CHECK':<{width}}  FOUND"
    ranks = list(_STATUSES)
    for check in sorted(checks, key=lambda check: ranks.index(check.status)):
        yield f"{check.status:<{_WIDTH}}  {check.name:<{width}}  {check.text}"
        yield from (f"{'':<{_WIDTH}}  {'':<{width}}  {line}" for line in details(check))


def details(check: Check) -> Iterator[str]:
    """Evidence, fix and patch of a check, a line each."""
    for evidence in check.evidence:
        yield f"  seen: {evidence.words}"
    if check.fix:
        yield f"  fix:  {check.fix}"
    if check.patch:
        sets = " ".join(f"--set {key}={value}" for key, value in check.patch.items())
        yield f"  set:  {sets}" + (f"  ({GUESS})" if check.guess else "")


def counted(checks: Sequence[Check]) -> str:
    """``23 checks: 1 failed, 2 skipped, 20 ok``."""
    counts: Counter[str] = Counter(check.status for check in checks)
    told = [f"{counts[status]} {word}" for status, word in _STATUSES.items() if counts[status]]
    return f"{quantity(len(checks), 'check')}: {', '.join(told) or 'none applies'}"


def warnings(checks: Sequence[Check]) -> Iterator[str]:
    """What ``up`` says of them before it starts a run: what fails, what warns, and what did not answer."""
    from liverl.preflight.running import NO_ANSWER

    for check in checks:
        hangs = check.status == "skipped" and check.text.startswith(NO_ANSWER)
        if check.status == "ok" or (check.status == "skipped" and not hangs):
            continue
        word = (
            "check failed"
            if check.status == "fail"
            else "warning"
            if check.status == "warn"
            else "check skipped"
        )
        yield f"preflight {word} ({check.name}): {check.text}"
        yield from details(check)
