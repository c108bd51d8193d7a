"""What several runs do not have in common, in words: how they ended, configuration, curves, alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl.util.plural import plural, quantity
from liverl_tui.text.comparison import NONE, different, lines_beside_curves
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.scroll import ScrollPane

if TYPE_CHECKING:
    from liverl.offline.compare import Comparison
    from liverl_tui.text.comparison import Effects


class DifferencesPane(ScrollPane):
    """The lines of ``liverl-tui compare``, what differs first."""

    title = "Differences"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._comparison: Comparison | None = None
        self._effects = NONE
        self.why = ""  # which run was chosen for the user, as a phrase

    def take(self, comparison: Comparison, effects: Effects = NONE) -> None:
        """Show these runs. ``effects``: see ``compare_with_series``."""
        self._comparison, self._effects = comparison, effects
        self.update()

    def heading(self) -> tuple[str, str]:
        """Which run is A (see ``screens.runs.oldest_first``) or was chosen, and how many keys differ."""
        if self._comparison is None:
            return "", ""
        count = len(different(self._comparison, self._effects))
        keys = f"{quantity(count, 'key')} {plural(count, 'differs', 'differ')}"
        return "", f"{self.why or 'A is the oldest run'} · {keys}"

    def lines(self, width: int, height: int) -> list[Row]:
        """All lines."""
        if self._comparison is None:
            return []
        return [
            Row((f" {line}", "text" if line.startswith("  ") else "strong" if line.endswith(":") else "text"))
            for line in lines_beside_curves(self._comparison, max(40, width - 2), self._effects)
        ]
