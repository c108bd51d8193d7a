"""The catalogue of causes for the files of a run: ours, with the rules that its configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from liverl.causes.match import Matcher, whole
from liverl.causes.row_files import RowsError
from liverl.causes.site.reading import read_rules
from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular


class RunCatalogue(NamedTuple):
    """``problems``: why the rules of the run are not used, empty if they are."""

    matcher: Matcher
    problems: tuple[str, ...] = ()


def catalogue_of(run: RunDir | None, given: Sequence[str] = ()) -> RunCatalogue:
    """The catalogue with the rules of a run, and those of the files that were ``given`` besides. Where the run's cannot
    be used any more, because they have gone or have changed, it is the catalogue without them.

    Raises:
        RowsError: the given ones cannot be used.
    """
    own = () if run is None else _planned(run)
    base = Matcher(read_rules(given).rows) if given else whole()
    if not own:
        return RunCatalogue(base)
    try:
        return RunCatalogue(Matcher(read_rules([*own, *given]).rows))
    except RowsError as error:
        return RunCatalogue(base, tuple(map(str, error.faults)))


def _planned(run: RunDir) -> tuple[str, ...]:
    try:
        return decode_json(read_regular(run.plan), type=Plan).settings.rules
    except (OSError, *BAD_JSON):
        return ()  # there is no plan to read: what else is wrong with it is told otherwise
