"""What preflight found, as lines: the same in ``check``, ``plan`` and ``up``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from liverl_tui.text.checks import details, worst_first

if TYPE_CHECKING:
    from liverl.model import Check

_WIDTH = 7  # of a status


def table(checks: Sequence[Check]) -> Iterator[str]:
    """One row for each check, the worst first; below one that is not ``ok`` its evidence, fix and patch."""
    width = max((len(check.name) for check in checks), default=0)
    yield f"{'STATUS':<{_WIDTH}}  {'CHECK':<{width}}  FOUND"
    for check in worst_first(checks):
        yield f"{check.status:<{_WIDTH}}  {check.name:<{width}}  {check.text}"
        yield from (f"{'':<{_WIDTH}}  {'':<{width}}  {line}" for line in details(check))


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
