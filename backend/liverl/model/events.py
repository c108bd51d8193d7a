"""The events of a run."""

from typing import Any, Literal

import msgspec

from liverl.model.times import UnixTime

Level = Literal["debug", "info", "warning", "error"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a run: a line of ``events.jsonl``. ``seq`` grows by one per event over all attempts of the run."""

    seq: int
    at: UnixTime
    kind: str
    text: str
    level: Level = "info"
    service: str | None = None
    data: dict[str, Any] = {}
