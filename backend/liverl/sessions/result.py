"""What is left of a session at its end."""

from __future__ import annotations

import msgspec

from liverl.sessions.counters import Counters
from liverl.sessions.segments import Row

# Reason for tokens that are not trained: in rows beyond ``session_proxy.rows_per_trial``
MANY_ROWS = "many_rows"


class SessionResult(msgspec.Struct, frozen=True):
    """``rows``: to train on, at the end that with the newest reply of the main conversation; ``not_trained``: the
    sampled tokens that are in no row, by the reason (``SessionRows.not_trained``, and ``MANY_ROWS``); ``counters``: of
    the whole session."""

    rows: list[Row]
    not_trained: dict[str, int] = {}
    counters: Counters = msgspec.field(default_factory=Counters)
