"""What the log of a service that runs said in the last minutes. Data only."""

from __future__ import annotations

import msgspec

from liverl.causes.signature import Signature

WINDOW_S = 300.0  # seconds over which is counted


class Sighting(msgspec.Struct, frozen=True):
    """A line in a log. ``log``: path relative to the run directory; ``offset``: byte in it; ``at``: Unix time at which
    it was written, to about a second."""

    log: str
    offset: int
    text: str
    at: float


class Counted(msgspec.Struct, frozen=True):
    """How often something was seen within ``WINDOW_S``: pairs of Unix time and number, oldest first."""

    times: tuple[tuple[float, int], ...] = ()

    def since(self, at: float) -> int:
        """How often it was seen at this Unix time and later."""
        return sum(number for when, number in self.times if when >= at)


class FailedRequests(msgspec.Struct, frozen=True):
    """Requests that failed alike. ``status``: 400..599; ``request``: method and path; ``message``: why, as far as the
    log says, "" if it does not; ``ours``: the program that wrote the log has sent them, and another one refused."""

    status: int
    request: str
    message: str
    counted: Counted
    last: Sighting
    ours: bool = False


class Complaint(msgspec.Struct, frozen=True):
    """A signature of the catalogue of causes that records of a log match. ``groups``: what the newest match captured;
    ``healthy_since``: the log shows a sign of health behind the last match."""

    signature: str
    groups: dict[str, str]
    counted: Counted
    last: Sighting
    healthy_since: bool = False
    row: Signature | None = None  # None: of our catalogue, by its id


class LiveLog(msgspec.Struct, frozen=True):
    """A log of one service, over the last ``WINDOW_S``. ``answered``: requests that were answered with 2xx;
    ``healthy_at``: Unix time of the last sign of health, None without one; ``left_out``: bytes that were not read,
    because the log grew faster than it is read; ``undated``: requests that failed before the first look at the log,
    which was in this time, and of which nothing says when they did."""

    service: str
    failed: tuple[FailedRequests, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    answered: Counted = Counted()
    healthy_at: float | None = None
    left_out: int = 0
    undated: int = 0
