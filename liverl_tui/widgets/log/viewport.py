"""Which lines of a document are in view, and which one is selected. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from liverl.logs.document import Document, Place
from liverl.logs.picking import EVERY_LINE, Picker

Rows = Callable[[Place], int]  # rows of the screen that a line takes


class Window(msgspec.Struct, frozen=True):
    """The lines in view, oldest first. ``skip``: rows of the first line that are above the top edge. ``complete``: if
    the lines do not fill the height, no others exist; otherwise a search may still find some."""

    places: tuple[Place, ...] = ()
    skip: int = 0
    complete: bool = True


class Viewport:
    """A position in a document. While it follows, the newest line is at the bottom; moving up ends that until
    ``end``. Changes take effect in the next ``build``."""

    def __init__(self, document: Document, rows: Rows) -> None:
        self.document = document
        self.rows = rows
        self.picker: Picker = EVERY_LINE
        self.height = 24
        self.follow = True
        self.cursor: Place | None = None
        self.window = Window()
        self._top: Place | None = None
        self._skip = 0

    def build(self) -> Window:
        """Determine the lines in view for the present content of the files, and keep the cursor on one of them."""
        if self._top is not None and self._top.segment not in self.document.segments:
            self._top, self._skip = None, 0
        if self.follow:
            self.window = self._bottom(None)
            self.cursor = self.window.places[-1] if self.window.places else None
        else:
            self.window = self._from_top()
            self._keep_cursor()
        self._top = self.window.places[0] if self.window.places else self._top
        self._skip = self.window.skip
        return self.window

    def _bottom(self, before: Place | None) -> Window:
        """The window whose last line is the one before ``before`` (None: the newest)."""
        places, complete = self.document.back(before, self.height, self.picker)
        rows, kept = 0, len(places)
        while kept and rows < self.height:
            kept -= 1
            rows += self.rows(places[kept])
        return Window(tuple(places[kept:]), max(0, rows - self.height), complete or rows >= self.height)

    def _from_top(self) -> Window:
        places, complete = self.document.forward(self._top, self.height, self.picker)
        rows = -self._skip if places and places[0] == self._top else 0
        skip = -rows
        kept = 0
        while kept < len(places) and rows < self.height:
            rows += self.rows(places[kept])
            kept += 1
        places = places[:kept]
        if rows >= self.height or (not complete and places):
            return Window(tuple(places), skip, complete or rows >= self.height)
        # Too few lines from the top on: fill the height with lines above.
        rows += skip
        skip = 0
        earlier, complete_above = self.document.back(
            places[0] if places else self._top, self.height, self.picker
        )
        while earlier and rows < self.height:
            places.insert(0, earlier.pop())
            rows += self.rows(places[0])
        return Window(
            tuple(places), max(0, rows - self.height), (complete and complete_above) or rows >= self.height
        )

    def _keep_cursor(self) -> None:
        places = self.window.places
        if not places or self.cursor in places:
            return
        if self.cursor is not None and not self.window.complete:
            return  # its line may be found yet
        if self.cursor is None or self.cursor.segment not in self.document.segments:
            self.cursor = places[0] if self._top is None else places[-1]
            return
        key = self.document.key(self.cursor)
        self.cursor = next((place for place in places if self.document.key(place) >= key), places[-1])

    # -- moving

    def pause(self) -> None:
        """Stop following; the view stays where it is."""
        self.follow = False

    def end(self) -> None:
        """Follow: the newest line is at the bottom."""
        self.follow = True

    def first(self) -> None:
        """Go to the first line and select it."""
        self.follow = False
        self._top, self._skip = None, 0
        places = self.document.forward(None, 1, self.picker).places
        self.cursor = places[0] if places else None

    def move(self, by: int) -> None:
        """Select the line ``by`` lines below (above if negative) and scroll to it. Downwards it does nothing while
        following."""
        if self.cursor is None or (self.follow and by > 0):
            return
        self.follow = False
        if by > 0:
            places = self.document.forward(self.cursor, by + 1, self.picker).places
            self.cursor = places[-1] if places else self.cursor
        else:
            places = self.document.back(self.cursor, -by, self.picker).places
            self.cursor = places[0] if places else self.cursor
        self.reveal()

    def reveal(self) -> None:
        """Scroll by as few rows as bring the whole selected line into view."""
        places = self.window.places
        if self.cursor is None or not places:
            return
        key = self.document.key(self.cursor)
        if key < self.document.key(places[0]) or (self.cursor == places[0] and self.window.skip):
            self._top, self._skip = self.cursor, 0
            return
        rows = -self.window.skip
        for place in places:
            rows += self.rows(place)
            if place == self.cursor and (rows <= self.height or place == places[0]):
                return
        following = self.document.forward(self.cursor, 2, EVERY_LINE).places
        window = self._bottom(following[1] if len(following) > 1 else None)
        if window.places:
            self._top, self._skip = window.places[0], window.skip

    def scroll(self, by: int) -> None:
        """Move the view by rows, downwards if positive; the cursor stays on its line while that is in view."""
        if not self.window.places or (self.follow and by > 0):
            return
        self.follow = False
        top, skip = self.window.places[0], self.window.skip + by
        while skip < 0:
            earlier = self.document.back(top, min(self.height, 1 - skip), self.picker).places
            if not earlier:
                skip = 0
            while earlier and skip < 0:
                top = earlier.pop()
                skip += self.rows(top)
        while skip >= self.rows(top):
            following = self.document.forward(top, 2, self.picker).places
            if len(following) < 2:
                skip = 0
                break
            skip -= self.rows(top)
            top = following[1]
        self._top, self._skip = top, skip

    def page(self, by: int) -> None:
        """Move one screen down (1) or up (-1); the cursor keeps its row on the screen, at an end it goes to the first
        or last line."""
        if not self.window.places or (self.follow and by > 0):
            return
        before = self.window
        at = before.places.index(self.cursor) if self.cursor in before.places else 0
        self.scroll(by * max(1, self.height - 1))
        places = self.build().places
        if (places[:1], self.window.skip) == (before.places[:1], before.skip):  # already at that end
            at = 0 if by < 0 else len(places) - 1
        self.cursor = places[min(at, len(places) - 1)] if places else None

    def go(self, place: Place) -> None:
        """Select a line; if it is not in view, scroll it to a third of the height."""
        self.follow = False
        self.cursor = place
        if place in self.window.places[1:-1]:
            return
        third, rows, top = self.height // 3, 0, place
        above = self.document.back(place, third, self.picker).places
        while above and rows < third:
            top = above.pop()
            rows += self.rows(top)
        self._top, self._skip = top, max(0, rows - third)
