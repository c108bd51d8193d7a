"""What a session's journal says: the rows, the counters, and the replies that no client has received. It changes by the
journal's entries only, live and when a journal is read again after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from liverl.sessions.counters import Counters
from liverl.sessions.journal import Counted, Delivered, Doubted, Entry, Finished, Recorded
from liverl.sessions.messages import Api, Chat, Message
from liverl.sessions.segments import PREFIX_MATCH, SessionRows


class Unreceived(msgspec.Struct):
    """A recorded reply that no client has received. ``told``: whether it was reported; a turn that was read from a
    journal may have been recorded and not reported; ``chat``, ``api``: its request, if this process has sampled it."""

    recorded: Recorded
    told: bool
    chat: Chat | None = None
    api: Api = "openai"


class SessionState:
    """The state of one session, as its journal has it."""

    def __init__(self, prefix_match: int = PREFIX_MATCH) -> None:
        """``prefix_match``: see ``SessionRows``."""
        self.rows = SessionRows(prefix_match)
        self.counters = Counters()
        self.finished = False
        self._light: list[
            Recorded
        ] = []  # the turns, without what the rows have of them, and without their text
        self.answers: list[str] = []  # ids of the replies, in the order of the turns
        self._unreceived: dict[bytes, list[Unreceived]] = {}  # by the digest of the request

    def replay(self, entries: Sequence[Entry]) -> str:
        """Take over the entries of a journal, without its first one, up to the first one that contradicts itself or
        those before it; return in what, "" if none does."""
        for entry in entries:
            if isinstance(entry, Recorded):
                try:
                    self.record(entry, told=False)
                except ValueError as error:
                    return str(error)
            elif isinstance(entry, Delivered):
                self.deliver(entry.request, entry.answer)
            elif isinstance(entry, Counted):
                self.counters = msgspec.structs.replace(entry.counters)
            elif isinstance(entry, Doubted):
                self.rows.doubt(entry.turns)
            elif isinstance(entry, Finished):
                self.finished = True
        return ""

    def entries(self) -> Iterator[Entry]:
        """A journal, without its first entry, that says what this state is."""
        kept = {
            each.recorded.answer.id: each.recorded for every in self._unreceived.values() for each in every
        }
        for number, light in enumerate(self._light):
            whole = kept.get(light.answer.id)
            turn = self.rows.whole(number, light.turn)
            yield whole if whole is not None else msgspec.structs.replace(light, turn=turn)
        for light in self._light:
            if light.answer.id not in kept:
                yield Delivered(light.request, light.answer.id)
        if self.rows.doubted:
            yield Doubted(sorted(self.rows.doubted))
        yield Counted(self.counters)
        if self.finished:
            yield Finished()

    def record(self, recorded: Recorded, *, told: bool = True) -> Unreceived:
        """Take over a recorded turn. ``told``: see ``Unreceived``.

        Raises:
            ValueError: see ``SessionRows.apply``.
        """
        self.rows.apply(recorded.turn)
        self._light.append(_lightened(recorded))
        self.answers.append(recorded.answer.id)
        self.counters = msgspec.structs.replace(recorded.counters)
        unreceived = Unreceived(recorded, told)
        self._unreceived.setdefault(recorded.request, []).append(unreceived)
        return unreceived

    @property
    def ours(self) -> list[int]:
        """The turns whose prompts have ids of our tokenizer that were not compared with the engine's."""
        return [number for number, light in enumerate(self._light) if light.turn.ours]

    def unreceived(self, request: bytes) -> list[Unreceived]:
        """The replies to a request that were recorded and that no client has received. ``request``: its digest."""
        return self._unreceived.get(request, [])

    @property
    def untold(self) -> list[Unreceived]:
        """The turns that may not have been reported, in the order in which they were recorded."""
        untold = [each for kept in self._unreceived.values() for each in kept if not each.told]
        return sorted(untold, key=lambda each: self.answers.index(each.recorded.answer.id))

    def deliver(self, request: bytes, answer: str = "") -> bool:
        """A client has received the reply with the id ``answer`` to a request ("": any); whether none had before."""
        kept = self._unreceived.get(request, [])
        found = next((each for each in kept if answer in ("", each.recorded.answer.id)), None)
        if found is None:
            return False
        kept.remove(found)
        if not kept:
            del self._unreceived[request]
        return True


_NO_COUNTERS = Counters()
_NO_MESSAGE = Message("assistant")


def _lightened(recorded: Recorded) -> Recorded:
    turn = msgspec.structs.replace(recorded.turn, given=(), ids=(), logprobs=())
    answer = msgspec.structs.replace(recorded.answer, message=_NO_MESSAGE, logprobs=None)
    return msgspec.structs.replace(recorded, turn=turn, answer=answer, counters=_NO_COUNTERS)
