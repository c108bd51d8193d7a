"""A search in a log: its hits, and the jump to a hit, which waits until enough has been searched."""

from __future__ import annotations

import msgspec

from liverl.logs.document import Document, Merged, Place
from liverl.logs.picking import Matches
from liverl.logs.query import Needle, Query
from liverl_tui.widgets.log.frame import Search
from liverl_tui.widgets.log.viewport import Window

NEAR = 1 << 20  # bytes around the view that are searched in advance: some pages
FRESH = 1 << 20  # bytes at the end of a file that may be unsearched in a finished search


class Jump(msgspec.Struct, frozen=True):
    """A jump to the next hit (``by`` 1) or the one before (-1) from ``origin``; None: from the start or end of the
    document.

    ``first``: a hit at ``origin`` itself counts. ``wrapped``: the note to show if the search has gone over an end.
    """

    by: int
    origin: Place | None
    first: bool = False
    wrapped: str = ""


class Seeker:
    """One search. ``step`` searches one block; ``resolve`` gives the target of ``jump`` once it is certain."""

    def __init__(self, needle: Needle, query: Query) -> None:
        """``query``: the filter of the view and the needle."""
        self.needle = needle
        self.hits = Matches(query)
        self.jump: Jump | None = None
        self.note = ""  # about the last jump, for the title: "not found"

    def step(self, document: Document) -> bool:
        """Search one more block; False when everything was searched."""
        jump = self.jump
        older_first = jump is not None and jump.by < 0 and not self._gap(document, jump.origin)
        return search(self.hits, document, older_first=older_first)

    def resolve(self, document: Document) -> Place | None:
        """The hit that the jump leads to. None while that is not certain, and if there is no hit; in the second case
        ``jump`` is None too and ``note`` says so."""
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
        """Whether bytes between ``origin`` and the searched bytes before it were not searched, so that a search
        backwards could miss hits."""
        if origin is None:
            return False
        edges = ((segment, self.hits.newer(segment)) for segment in document.segments)
        return any(edge is not None and edge < document.offset_in(segment, origin) for segment, edge in edges)

    def state(self, document: Document, cursor: Place | None) -> Search:
        """The state of the search for the title. ``cursor``: the selected line."""
        number = None
        if cursor is not None and self._is_hit(cursor):
            before = [self.hits.number(s, document.offset_in(s, cursor)) for s in document.segments]
            counts = [count for count in before if count is not None]
            number = sum(counts) + 1 if len(counts) == len(before) else None
        total = self.hits.total(document.segments)
        return Search(self.needle, total, number, unfinished(self.hits, document), self.jump is not None)

    def _is_hit(self, place: Place) -> bool:
        return place.offset >= 0 and self.hits.after(place.segment, place.offset, 1).offsets == [place.offset]


def search(matches: Matches, document: Document, *, older_first: bool = False) -> bool:
    """Search one more block of a document; False when all is searched."""
    newer = [segment for segment in document.segments if matches.newer(segment) is not None]
    older = [segment for segment in document.segments if matches.older(segment) is not None]
    # Of merged files the one searched least far: lines beyond its searched part cannot be shown yet.
    merged = isinstance(document, Merged)
    if newer and not (older_first and older):
        matches.step_newer(
            min(newer, key=lambda s: s.times.time_at(matches.newer(s) or 0)) if merged else newer[0]
        )
        return True
    if older:
        matches.step_older(
            max(older, key=lambda s: s.times.time_at((matches.older(s) or 1) - 1)) if merged else older[-1]
        )
        return True
    return False


def search_near(matches: Matches, document: Document, window: Window) -> bool:
    """Search one more block less than ``NEAR`` bytes away from the lines in view; False when all were searched."""
    if not window.places:
        return False
    first, last = window.places[0], window.places[-1]
    for segment in document.segments:
        newer, older = matches.newer(segment), matches.older(segment)
        if newer is not None and newer < document.offset_in(segment, last) + NEAR:
            matches.step_newer(segment)
            return True
        if older is not None and older > document.offset_in(segment, first) - NEAR:
            matches.step_older(segment)
            return True
    return False


def unfinished(matches: Matches | None, document: Document) -> float | None:
    """The ratio 0..1 of the bytes that were searched; None when done or without ``matches``.

    Up to ``FRESH`` new bytes at the end of a file do not count: a file that grows always has some.
    """
    if matches is None:
        return None
    if reaches_end(matches, document) and not any(
        matches.older(segment) is not None for segment in document.segments
    ):
        return None
    return min(0.99, matches.progress(document.segments))


def reaches_end(matches: Matches, document: Document) -> bool:
    """Whether the ends of the files were searched, but for at most ``FRESH`` bytes of each."""
    edges = ((segment.size, matches.newer(segment)) for segment in document.segments)
    return all(edge is None or size - edge <= FRESH for size, edge in edges)
