"""The top of the dashboard."""

from __future__ import annotations

from collections.abc import Iterable

from liverl_tui.view import View
from liverl_tui.widgets.cells import CellPanel, Row


class Header(CellPanel):
    DEFAULT_CSS = "Header { height: 2; }"

    def __init__(self) -> None:
        super().__init__(id="header")
        self._view = View()

    def show(self, view: View) -> None:
        self._view = view
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        snapshot = self._view.snapshot
        if snapshot is None:
            return [Row((self._view.why or "connecting", "dim"))]
        return [Row((snapshot.run, "strong"), ("  ", "text"), (snapshot.phase, "info"))]
