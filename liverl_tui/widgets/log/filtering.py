"""The lines of a log that pass the filter of its view, found near the view first; and those that are new to it."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.logs.document import Document, Place
from liverl.logs.picking import EVERY_LINE, Matches, Picker
from liverl.logs.query import Needle
from liverl.logs.segment import Segment
from liverl_tui.widgets.log.frame import Filter
from liverl_tui.widgets.log.seek import reaches_end
from liverl_tui.widgets.log.viewport import Viewport


def matches_of(chosen: Filter, spared: Needle | None) -> Matches | None:
    """The lines that pass the filter, nothing of it searched yet; None if all pass. ``spared``: routine lines with it
    pass."""
    if chosen.access and not chosen.narrows:
        return None
    return Matches(chosen.query(spared=spared), marks=not chosen.narrows)


class Passing:
    """The lines that pass a filter, as far as they were searched. ``matches`` is None if all lines pass."""

    def __init__(self, chosen: Filter, spared: Needle | None = None) -> None:
        self._chosen = chosen
        self._spared = spared
        self.matches = matches_of(chosen, spared)

    @property
    def picker(self) -> Picker:
        """The lines for a ``Viewport``."""
        return EVERY_LINE if self.matches is None else self.matches

    def unread(self, view: Viewport) -> bool:
        """Whether a view that follows lacks lines because the ends of the files were not searched yet."""
        matches = self.matches
        return (
            matches is not None
            and view.follow
            and any(matches.newer(segment) is not None for segment in view.document.segments)
        )

    def to_end(self, document: Document) -> None:
        """Search from the end of the log, unless the search has nearly been there."""
        if self.matches is not None and not reaches_end(self.matches, document):
            self.matches = matches_of(self._chosen, self._spared)

    def near(self, place: Place | None, document: Document) -> None:
        """Search from ``place`` (None: the start of the log), unless the search has been there already: the lines
        around it are then among the first that it finds."""
        if self.matches is None or not document.segments:
            return
        offsets = {s: 0 if place is None else document.offset_in(s, place) for s in document.segments}
        if all(self.matches.covers(segment, offset) for segment, offset in offsets.items()):
            return
        fresh = matches_of(self._chosen, self._spared)
        if fresh is None:
            return
        for segment, offset in offsets.items():
            fresh.begin(segment, offset)
        for segment in document.segments if place is None else [place.segment]:
            fresh.step_newer(segment)
            fresh.step_older(segment)
        self.matches = fresh


def begin_in_view(matches: Matches | None, view: Viewport) -> None:
    """Start a search at the first line in view, from which it goes in both directions; while the view follows, at the
    end of the log."""
    if matches is not None and not view.follow and view.window.places:
        for segment in view.document.segments:
            matches.begin(segment, view.document.offset_in(segment, view.window.places[0]))


class NewLines:
    """Counts the lines that pass a filter and were written since the view stopped following."""

    def __init__(
        self, chosen: Filter, spared: Needle | None = None, document: Document | None = None
    ) -> None:
        self._sizes = {} if document is None else {segment: segment.size for segment in document.segments}
        self._matches = matches_of(chosen, spared)
        self._all = 0  # where all lines pass

    def grown(self, before: Mapping[Segment, int], document: Document) -> None:
        """Count what was written since the files had the sizes ``before``, in bytes, if all lines pass; else the
        search counts it."""
        if self._matches is None:
            for segment in document.segments:
                if segment.size > (size := before.get(segment, 0)):
                    self._all += segment.newlines(size, segment.size)

    def step(self, document: Document) -> bool:
        """Search one more block; False when nothing is left."""
        matches = self._begun(document)
        for segment in document.segments if matches is not None else ():
            if matches is not None and matches.newer(segment) is not None:
                matches.step_newer(segment)
                return True
        return False

    def count(self, document: Document) -> int:
        """How many were found so far."""
        matches = self._begun(document)
        if matches is None:
            return self._all
        return sum(matches.since(segment, self._sizes.get(segment, 0)) for segment in document.segments)

    def _begun(self, document: Document) -> Matches | None:
        """The search, begun in every file of the document: files that are new to it are searched whole."""
        if self._matches is not None:
            for segment in document.segments:
                self._matches.begin(segment, self._sizes.get(segment, 0))
        return self._matches
