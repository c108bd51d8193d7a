"""The trajectories pane."""

from __future__ import annotations

from collections.abc import Sequence

from liverl_tui.keymap import bindings
from liverl_tui.view import View
from liverl_tui.widgets.cells import Row
from liverl_tui.widgets.rows import RowsPane


class TrialsPane(RowsPane):
    scope = "trials"
    title = "Trajectories"
    number = "4"
    BINDINGS = bindings("trials")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()

    def show(self, view: View) -> None:
        self._view = view
        self.update()

    def keys(self) -> Sequence[str]:
        return ()

    def row(self, key: str, width: int) -> Row:
        return Row((key, "text"))
