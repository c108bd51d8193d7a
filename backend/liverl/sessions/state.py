"""What a session's journal says: the rows, the counters, and the replies that no client has received. It changes by the
journal's entries only, live and when a journal is read again after a restart."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from liverl.sessions.counters import Counters
from liverl.sessions.journal import DamagedJournal, Delivered, Entry, Finished, Recorded
from liverl.sessions.segments import SessionRows


class Kept(msgspec.Struct):
    """A recorded reply that no client has received. ``told``: whether it was reported; a turn that was read from a
    journal may have been recorded and not reported."""

    recorded: Recorded
    told: bool


class SessionState:
    """The state of one session, as its journal has it."""

    def __init__(self, prefix_match: int = 256) -> None:
        """``prefix_match``: see ``SessionRows``."""
        self.rows = SessionRows(prefix_match)
        self.counters = Counters()
        self.finished = False
        self._unreceived: dict[bytes, Kept] = {}  # by the digest of the request

    def replay(self, session: str, entries: Sequence[Entry]) -> None:
        """Take over the entries of a journal, without its first one. ``session``: its id.

        Raises:
            DamagedJournal: an entry contradicts itself or those before it.
        """
        for entry in entries:
            if isinstance(entry, Recorded):
                try:
                    self.record(entry, told=False)
                except ValueError as error:
                    raise DamagedJournal(f"the journal of session {session}: {error}") from None
            elif isinstance(entry, Delivered):
                self.deliver(entry.request)
            elif isinstance(entry, Finished):
                self.finished = True

    def record(self, recorded: Recorded, *, told: bool = True) -> int:
        """Take over a recorded turn; return the index of its segment. ``told``: see ``Kept``.

        Raises:
            ValueError: see ``SessionRows.apply``.
        """
        index = self.rows.apply(recorded.turn)
        self.counters = msgspec.structs.replace(recorded.counters)
        self._unreceived[recorded.request] = Kept(recorded, told)
        return index

    def unreceived(self, request: bytes) -> Kept | None:
        """The reply to a request, if it was recorded and no client has received it. ``request``: its digest."""
        return self._unreceived.get(request)

    def deliver(self, request: bytes) -> bool:
        """A client has received the reply to a request; whether none had before."""
        return self._unreceived.pop(request, None) is not None
