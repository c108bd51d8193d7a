"""What several runs do not have in common, in words: how they ended, configuration, curves, alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl.util.plural import quantity
from liverl_tui.text.comparison import lines_beside_curves
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.scroll import ScrollPane

if TYPE_CHECKING:
    from liverl.offline.compare import Comparison


class DifferencesPane(ScrollPane):
    """The lines of ``liverl-tui compare``, what differs first."""

    title = "Differences"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._comparison: Comparison | None = None

    def take(self, comparison: Comparison) -> None:
        """Show these runs."""
        self._comparison = comparison
        self.update()

    def heading(self) -> tuple[str, str]:
        """Which run is A (see ``screens.runs.oldest_first``), and how many keys of the configurations differ."""
        if self._comparison is None:
            return "", ""
        return (
            "",
            f"A is the oldest run · {quantity(len(self._comparison.config), 'key')} of the configuration",
        )

    def lines(self, width: int, height: int) -> list[Row]:
        """All lines."""
        if self._comparison is None:
            return []
        return [
            Row((f" {line}", "text" if line.startswith("  ") else "strong" if line.endswith(":") else "text"))
            for line in lines_beside_curves(self._comparison, max(40, width - 2))
        ]
