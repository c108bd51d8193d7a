"""The catalogue of causes of a run that goes on: ours, with the rules that its plan names."""

from __future__ import annotations

from collections.abc import Callable

from liverl.causes.catalogue import hold
from liverl.causes.match import Matcher, whole
from liverl.causes.row_files import RowsError
from liverl.causes.site.reading import read_rules
from liverl.plan.spec import Plan


def matcher_of(plan: Plan, cannot_read: Callable[[str], None]) -> Matcher:
    """What the logs of the run are looked up in. Its rules were checked before the start; if they cannot be used any
    more, ``cannot_read`` is told why, and ours are used alone."""
    if not plan.settings.rules:
        hold()  # as it is now: a run can outlive an upgrade
        return whole()
    try:
        return Matcher(read_rules(plan.settings.rules).rows)
    except RowsError as error:
        for fault in error.faults:
            cannot_read(f"rules of diagnosis.rules are not used: {fault}")
        return whole()
