"""The events screen: the events of the run, the newest last; older ones are loaded from its files."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl.control.history import read_events
from liverl.model import Event
from liverl_tui.data.last_visit import news
from liverl_tui.keys.bindings import Scope
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.lists.events import EventList

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from liverl_tui.data.view import View

PAGE = 2000  # events that are loaded each time the user moves above the first one


def events_before(run_dir: Path, seq: int, most: int | None) -> tuple[list[Event], bool]:
    """Return the newest ``most`` events (None = all) with a number below ``seq``, oldest first, and whether there is
    none before these. Blocking: reads the events file from its start."""
    newest: deque[Event] = deque(maxlen=most)
    count = 0
    for event in read_events(run_dir):
        if event.seq >= seq:
            break
        newest.append(event)
        count += 1
    return list(newest), count == len(newest)


class EventsScreen(RunScreen):
    """One list of events. Its keys are those of the scope ``events``, whose actions the list has."""

    scope = "events"
    DEFAULT_CSS = """
    EventsScreen { layout: vertical; }
    EventsScreen EventList { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """The list of events, above the key bar; at the first look it begins where the last visit ended."""
        liverl = self.liverl
        visit, fresh = liverl.last_visit, bool(liverl.absence)
        liverl.absence = ""
        yield Header()
        yield EventList(self._load, visit=visit, told=self._told(liverl.view), fresh=fresh, id="events")
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """Return the list for the scope ``events``, also while it has no focus, then the app."""
        return self.scopes_of(EventList)

    @property
    def pane(self) -> EventList:
        """The list of events."""
        return self.query_one(EventList)

    def on_mount(self) -> None:
        """Focus the list."""
        super().on_mount()
        self.pane.focus()

    def show(self, view: View) -> None:
        """Add the events of ``view`` that are not in the list yet."""
        super().show(view)
        if self._composed:
            self.pane.tell(self._told(view))
            self.pane.take(view.events)

    def _told(self, view: View) -> str:
        """What has happened since the last visit; empty without one."""
        visit = self.liverl.last_visit
        return ", ".join(news(visit, view)) if visit is not None else ""

    def _load(self, everything: bool) -> None:
        """Load a page of older events into the list; ``everything``: all of them."""
        self.run_worker(self._read(None if everything else PAGE), group="events")

    async def _read(self, most: int | None) -> None:
        pane = self.pane
        first = pane.first_known
        older, complete = await asyncio.to_thread(
            events_before, self.liverl.source.run.path, first if first is not None else 1 << 62, most
        )
        pane.take_older(older, complete)
