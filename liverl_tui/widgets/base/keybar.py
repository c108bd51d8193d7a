"""The keys of where one is, in one line at the bottom."""

from __future__ import annotations

from collections.abc import Iterable

from textual import events

from liverl_tui.data.view import View
from liverl_tui.keys.bindings import Key, Scope, offered
from liverl_tui.widgets.base.cells import CellPanel, Row


class KeyBar(CellPanel):
    """Shows the keys of the given scopes, the nearest scope first; cut where the line ends. None that would only
    answer that nothing can be changed."""

    DEFAULT_CSS = "KeyBar { height: 1; dock: bottom; }"

    def __init__(self) -> None:
        super().__init__(id="keybar")
        self._scopes: tuple[Scope, ...] = ()
        self._readonly = False
        self._nobody = False  # there is no backend that could be asked for anything
        self._places: list[tuple[int, int, Key]] = []

    def set_scopes(self, scopes: tuple[Scope, ...], readonly: bool) -> None:
        if (scopes, readonly) != (self._scopes, self._readonly):
            self._scopes, self._readonly = scopes, readonly
            self.update()

    def show(self, view: View) -> None:
        nobody = view.link in ("lost", "ended")
        if nobody != self._nobody:
            self._nobody = nobody
            self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        row = Row()
        self._places = []
        keys = offered(self._scopes, readonly=self._readonly or self._nobody)
        # help and quit stay visible whatever else there is
        keys.sort(key=lambda k: (k.action not in ("help", "leave"), not k.changes and k.scope == "app"))
        used = 0
        for key in keys:
            needed = len(key.name) + len(key.label) + 3
            if used + needed > width:
                continue
            self._places.append((used, used + needed, key))
            row.add(f" {key.name}", "key").add(f" {key.label} ", "dim")
            used += needed
        return [row]

    async def on_click(self, event: events.Click) -> None:
        for start, end, key in self._places:
            if start <= event.x < end:
                event.stop()
                await self.screen.run_key(key)  # type: ignore[attr-defined]
                return
