"""The sandboxes pane: what the trials have in Docker or Kubernetes, in a few rows below the trajectories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from liverl_tui.keys.bindings import bindings
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.lists.sandboxes import SandboxList

if TYPE_CHECKING:
    from liverl_tui.data.view import View

_MOST = 6  # containers in sight: those that are left, and the oldest; the screen has all


class SandboxesPane(SandboxList):
    """The list of the screen without the line to copy. Enter opens the screen."""

    scope = "containers"
    BINDINGS = bindings("containers")

    def show(self, view: View) -> None:
        """Show the sandboxes of a new view. Of one that has no snapshot, as after a lost connection, the last ones."""
        if view.snapshot is not None:
            super().show(view)

    @property
    def wanted_rows(self) -> int:
        """Title, heads and the first containers; two rows if there is none."""
        return 2 + min(_MOST, len(self._containers))

    @property
    def least_rows(self) -> int:
        """Title, heads and a container."""
        return min(3, self.wanted_rows)

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The list alone."""
        return RowsPane.compose_rows(self, width, height)

    def action_open(self) -> None:
        """Open the screen of the sandboxes."""
        self._app.navigation.action_sandboxes()
