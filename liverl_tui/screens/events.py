"""The events screen: what happened in the run, from its beginning."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl.control.history import read_events
from liverl.model import Event
from liverl_tui.keys.bindings import Scope
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.lists.events import EventList

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from liverl_tui.data.view import View

PAGE = 2000  # events that are read at once when somebody goes above the first


def events_before(run_dir: Path, seq: int, most: int | None) -> tuple[list[Event], bool]:
    """The newest ``most`` events before number ``seq``, oldest first, and whether these are all that there are."""
    found: deque[Event] = deque(maxlen=most)
    count = 0
    for event in read_events(run_dir):
        if event.seq >= seq:
            break
        found.append(event)
        count += 1
    return list(found), count == len(found)


class EventsScreen(RunScreen):
    scope = "events"
    DEFAULT_CSS = """
    EventsScreen { layout: vertical; }
    EventsScreen EventList { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        yield EventList(self._load, id="events")
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        panes: list[tuple[Scope, DOMNode]] = [("events", pane) for pane in self.query(EventList)]
        return [*panes, ("app", self.app)]

    @property
    def pane(self) -> EventList:
        return self.query_one(EventList)

    def on_mount(self) -> None:
        super().on_mount()
        self.pane.focus()

    def show(self, view: View) -> None:
        super().show(view)
        if self._composed:
            self.pane.take(view.events)

    def _load(self, everything: bool) -> None:
        self.run_worker(self._read(None if everything else PAGE), group="events")

    async def _read(self, most: int | None) -> None:
        pane = self.pane
        first = pane.first_known
        found, complete = await asyncio.to_thread(
            events_before, self.liverl.source.run.path, first if first is not None else 1 << 62, most
        )
        pane.take_older(found, complete)
