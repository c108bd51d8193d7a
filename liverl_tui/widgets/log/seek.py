"""A search in a log: its hits, and the jump that waits until enough has been searched."""

from __future__ import annotations

import msgspec

from liverl.logs.document import Document, Merged, Place
from liverl.logs.picking import Matches
from liverl.logs.query import Needle, Query
from liverl_tui.widgets.log.frame import Search

FRESH = 1 << 20  # bytes


class Jump(msgspec.Struct, frozen=True):
    """To the next hit (``by`` 1) or the one before (-1), from ``origin`` (None: from the end that it comes from).

    ``first``: the origin itself counts. ``wrapped``: what to say about having gone over an end.
    """

    by: int
    origin: Place | None
    first: bool = False
    wrapped: str = ""


class Seeker:
    """One search. ``step`` searches a little, ``resolve`` says where to go once that is known."""

    def __init__(self, needle: Needle, query: Query) -> None:
        """``query``: what the filter lets through and the needle."""
        self.needle = needle
        self.hits = Matches(query)
        self.jump: Jump | None = None
        self.note = ""  # how the last jump went

    def step(self, document: Document) -> bool:
        """Search one more block; False when all is searched."""
        jump = self.jump
        older_first = jump is not None and jump.by < 0 and not self._gap(document, jump.origin)
        return search(self.hits, document, older_first=older_first)

    def resolve(self, document: Document) -> Place | None:
        """The hit that the jump is for; None while it is not known, or when there is none."""
        while self.jump is not None:
            jump, origin = self.jump, self.jump.origin
            if origin is not None and origin.segment not in document.segments:
                origin = None
            if jump.by > 0:
                if origin is not None and not jump.first:
                    origin = Place(origin.segment, origin.offset + 1)
                places, complete = document.forward(origin, 1, self.hits)
            elif self._gap(document, origin):
                return None
            else:
                places, complete = document.back(origin, 1, self.hits)
            if places:
                self.jump, self.note = None, jump.wrapped
                return places[0]
            if not complete:
                return None
            self.jump = self._over_the_end(jump)
            self.note = "" if self.jump is not None else "not found"
        return None

    @staticmethod
    def _over_the_end(jump: Jump) -> Jump | None:
        if jump.origin is None or jump.wrapped:
            return None
        if jump.first:
            return Jump(-1, jump.origin, wrapped="last match above")
        return Jump(jump.by, None, wrapped="continued at the top" if jump.by > 0 else "continued at the end")

    def _gap(self, document: Document, origin: Place | None) -> bool:
        """Whether a search backwards would jump over bytes that are not searched yet."""
        if origin is None:
            return False
        edges = ((segment, self.hits.newer(segment)) for segment in document.segments)
        return any(edge is not None and edge < document.offset_in(segment, origin) for segment, edge in edges)

    def state(self, document: Document, cursor: Place | None) -> Search:
        """For the title."""
        number = None
        if cursor is not None and self._is_hit(cursor):
            before = [self.hits.number(s, document.offset_in(s, cursor)) for s in document.segments]
            known = [count for count in before if count is not None]
            number = sum(known) + 1 if len(known) == len(before) else None
        total = self.hits.total(document.segments)
        return Search(self.needle, total, number, unfinished(self.hits, document), self.jump is not None)

    def _is_hit(self, place: Place) -> bool:
        return place.offset >= 0 and self.hits.after(place.segment, place.offset, 1).offsets == [place.offset]


def search(matches: Matches, document: Document, *, older_first: bool = False) -> bool:
    """Search one more block of a document; False when all is searched."""
    newer = [segment for segment in document.segments if matches.newer(segment) is not None]
    older = [segment for segment in document.segments if matches.older(segment) is not None]
    if newer and not (older_first and older):
        matches.step_newer(newer[0])
        return True
    if older:
        # Merged files evenly: what can be shown ends where the first of them is not searched yet.
        merged = isinstance(document, Merged)
        matches.step_older(
            max(older, key=lambda s: s.times.time_at((matches.older(s) or 1) - 1)) if merged else older[-1]
        )
        return True
    return False


def unfinished(matches: Matches | None, document: Document) -> float | None:
    """The share that has been searched, as long as that is not everything. What is being written just now does
    not count: there will always be some."""
    if matches is None:
        return None
    edges = [(segment.size, matches.newer(segment)) for segment in document.segments]
    if all(edge is None or size - edge <= FRESH for size, edge in edges) and not any(
        matches.older(segment) is not None for segment in document.segments
    ):
        return None
    return min(0.99, matches.progress(document.segments))
