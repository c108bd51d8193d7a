"""The replicas pane."""

from __future__ import annotations

from collections.abc import Sequence

from liverl_tui.keymap import bindings
from liverl_tui.view import View
from liverl_tui.widgets.cells import Row
from liverl_tui.widgets.rows import RowsPane


class ReplicasPane(RowsPane):
    scope = "replicas"
    title = "Replicas"
    number = "2"
    BINDINGS = bindings("replicas")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()

    def show(self, view: View) -> None:
        self._view = view
        self.update()

    def keys(self) -> Sequence[str]:
        snapshot = self._view.snapshot
        return [r.name for r in snapshot.replicas.items] if snapshot else ()

    def row(self, key: str, width: int) -> Row:
        return Row((key, "text"))
