"""The ids that alerts can have, to check those that a user names. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase

from liverl.causes.catalogue import by_id
from liverl.diagnose.catalogue.rules import RULES
from liverl.util.nearest import did_you_mean

# The first part of the ids of alerts that a line of a log raises; the second is the signature's
OF_LOGS = "log"


def kinds() -> tuple[str, ...]:
    """The ids of alerts without what follows the first colon, each once; ``*`` stands for any text."""
    return tuple(dict.fromkeys(name for rule in RULES for name in rule.ids))


def unknown(alerts: Iterable[str], rows: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Those of the ids that no alert can have, each with ``did you mean X?``, or "" where none is similar. ``rows``:
    the ids of another catalogue of causes than ours."""
    names = kinds()
    for alert in alerts:
        kind, _, rest = alert.partition(":")
        if kind == OF_LOGS:
            signatures = list(by_id() if rows is None else rows)
            name = rest.partition(":")[0]
            if rest and name not in signatures:
                hint = did_you_mean(name, signatures)
                yield alert, hint.replace("did you mean ", f"did you mean {OF_LOGS}:")
        elif not any(fnmatchcase(kind, name) for name in names):
            yield alert, did_you_mean(kind, [name for name in names if "*" not in name])
