"""Whether the rules of a site can be used, which explain the run's logs beside ours."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.causes.row_files import RowsError
from liverl.causes.site.reading import read_rules
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.util.plural import quantity

NAME = "rules"
_FIX = "mend the files of diagnosis.rules; liverl-tui rules check FILE says what is wrong with them"


def checks(plan: Plan) -> Iterator[Check]:
    """Nothing for a run without such rules."""
    files = plan.settings.rules
    if not files:
        return
    try:
        rules = read_rules(files)
    except RowsError as error:
        for number, fault in enumerate(error.faults, 1):
            yield Check(NAME, "fail", str(fault), fix=_FIX if number == len(error.faults) else "")
        return
    yield Check(NAME, "ok", f"{quantity(len(rules.own), 'rule')} of {', '.join(files)}")
