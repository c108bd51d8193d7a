"""What is known of an actor's death from the words that Ray's API gives, without a log. Pure."""

from __future__ import annotations

from liverl.causes.finding import Explanation
from liverl.causes.match import Matcher, whole
from liverl.causes.verdict.words import explained
from liverl.logs.record import Record


def is_consequence(cause: str, matcher: Matcher | None = None) -> bool:
    """Whether a row (its id) says that something failed, and not why: a log may tell more."""
    row = (matcher or whole()).by_id.get(cause)
    return row is not None and row.role == "consequence"


def of_death(words: str) -> Explanation | None:
    """The row of the catalogue that Ray's words name; None without one."""
    found = whole().of(Record(0, len(words), words))
    match = next((one for one in found if one.signature.role != "noise" and one.signature.fix), None)
    return None if match is None else explained(match, ())
