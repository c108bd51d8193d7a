"""The line at the bottom that shows the keys which work now."""

from __future__ import annotations

from collections.abc import Iterable

from textual import events

from liverl.model import Snapshot
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import Key, Scope, find, offered
from liverl_tui.keys.of_run import unusable, worded
from liverl_tui.widgets.base.cells import CellPanel, Row

# The keys that help most at the first start, and what they do there.
_HINTS: tuple[tuple[Scope, str, str], ...] = (
    ("app", "help", "help"),
    ("dashboard", "next_pane", "next pane"),
    ("replicas", "select", "open row"),
    ("app", "alerts", "alerts"),
    ("app", "leave", "quit"),
)
_APPLY = "alerts.apply"


def hint_row(width: int) -> Row:
    """The keys to begin with, which stand in the key bar until any key is pressed at the first start."""
    row = Row((" First start: ", "info"))
    used = len(row.text)
    for scope, action, words in _HINTS:
        name = find(scope, action).name
        if not name:
            continue
        used += len(name) + len(words) + 4
        if used <= width:
            row.add(f" {name} ", "key").add(f"{words}  ", "text")
    return row


class KeyBar(CellPanel):
    """Shows the keys of the active scopes; a key that does not fit into the line is left out. Keys that change the
    run are not shown in a read-only interface or without a live backend, but the one that resumes a run with other
    values is."""

    DEFAULT_CSS = "KeyBar { height: 1; dock: bottom; }"

    def __init__(self) -> None:
        super().__init__(id="keybar")
        self._scopes: tuple[Scope, ...] = ()
        self._readonly = False
        self._no_backend = False
        self._lasting: tuple[str, ...] = ()  # ids of keys that change a run which has ended
        self._useless: tuple[str, ...] = ()  # ids of keys that have nothing to do in this run
        self._idle: frozenset[str] = frozenset()  # and where one is now
        self._snapshot: Snapshot | None = None
        self._places: list[tuple[int, int, Key]] = []

    def set_scopes(
        self, scopes: tuple[Scope, ...], readonly: bool, idle: frozenset[str] = frozenset()
    ) -> None:
        """Show the keys of these scopes, the nearest first; ``readonly``: without those that change the run; ``idle``:
        the ids of those that have nothing to do now, which are left out."""
        if (scopes, readonly, idle) != (self._scopes, self._readonly, self._idle):
            self._scopes, self._readonly, self._idle = scopes, readonly, idle
            self.update()

    def show(self, view: View) -> None:
        """Hide the keys that change the run while its backend is lost or has ended, and the one that applies an alert's
        fix while no alert has any, and those that can do nothing in this run."""
        no_backend = view.link in ("lost", "ended")
        symptoms = view.snapshot.symptoms if view.snapshot is not None else ()
        # Other values can also be given to a run that has ended: it is resumed with them.
        patched = any(s.patch for s in symptoms)
        lasting = (_APPLY,) if patched and view.link == "ended" else ()
        useless: tuple[str, ...] = () if patched or any(s.action is not None for s in symptoms) else (_APPLY,)
        useless += tuple(unusable(view.snapshot))
        carrier = view.snapshot.carrier if view.snapshot is not None else None
        before = self._snapshot.carrier if self._snapshot is not None else None
        self._snapshot = view.snapshot
        if (no_backend, lasting, useless, carrier) != (
            self._no_backend,
            self._lasting,
            self._useless,
            before,
        ):
            self._no_backend, self._lasting, self._useless = no_backend, lasting, useless
            self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """One row: help and quit, then the keys of the nearest scopes, then those of the app."""
        self._places = []
        if getattr(self.app, "hints", False):
            return [hint_row(width)]
        row = Row()
        offers = offered(self._scopes, readonly=self._readonly)
        if self._no_backend:
            offers = [key for key in offers if not key.changes or key.id in self._lasting]
        keys = [worded(key, self._snapshot) for key in offers]
        # help and quit come first, so that they are always visible
        keys.sort(key=lambda k: (k.action not in ("help", "leave"), not k.changes and k.scope == "app"))
        used = 0
        for key in keys:
            if key.id in self._useless or key.id in self._idle:
                continue
            needed = len(key.name) + len(key.label) + 3
            if used + needed > width:
                continue
            self._places.append((used, used + needed, key))
            row.add(f" {key.name}", "key").add(f" {key.label} ", "dim")
            used += needed
        return [row]

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the clicked key."""
        for start, end, key in self._places:
            if start <= event.x < end:
                event.stop()
                await self.screen.run_key(key)  # type: ignore[attr-defined]
                return
