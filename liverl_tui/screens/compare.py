"""Two to six runs side by side: their curves in one chart each, and what they do not have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding

from liverl_tui.keys.bindings import Scope, bindings
from liverl_tui.screens.base import RunScreen
from liverl_tui.text.comparison import NONE, lines
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.runs.curves import CurvesPane
from liverl_tui.widgets.runs.differences import DifferencesPane

if TYPE_CHECKING:
    from textual import events
    from textual.binding import BindingType
    from textual.dom import DOMNode

    from liverl.offline.compare import Comparison

_KEYS: list[BindingType] = [*bindings("compare"), Binding("escape", "back", show=False)]
BOTH_FROM = 34  # rows of the terminal from which both panes are shown; below it, the focused one


class CompareScreen(RunScreen):
    """Curves above, differences below. They are read once, when the screen opens. ``runs``: their directories;
    ``why``: which of them was chosen for the user, as a phrase; empty where the user has chosen all."""

    scope = "compare"
    BINDINGS = _KEYS
    AUTO_FOCUS = "#curves"
    DEFAULT_CSS = """
    CompareScreen { layout: vertical; }
    CompareScreen CurvesPane { width: 1fr; height: 3fr; }
    CompareScreen DifferencesPane { width: 1fr; height: 2fr; }
    """

    def __init__(self, runs: Sequence[Path], why: str = "") -> None:
        super().__init__()
        self._why = why
        self._runs = tuple(runs)
        self._comparison: Comparison | None = None
        self._effects = NONE

    def compose(self) -> ComposeResult:
        """Both panes, above the key bar."""
        differences = DifferencesPane(id="differences")
        differences.display = self.app.size.height >= BOTH_FROM
        curves = CurvesPane(id="curves")
        curves.why = differences.why = self._why
        yield curves
        yield differences
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """The keys that move in the differences while they have the focus, then those of this screen and the app."""
        return self.moving_and_own(moves=isinstance(self.focused, DifferencesPane))

    def on_mount(self) -> None:
        """Read the runs."""
        super().on_mount()
        self.run_worker(self._read(), group="compare")

    async def _read(self) -> None:
        from liverl.offline.compare import compare_with_series, runs_of, seconds_of

        comparison, series, effects = await asyncio.to_thread(compare_with_series, runs_of(self._runs))
        self._comparison, self._effects = comparison, effects
        self.query_one(CurvesPane).take(comparison, series, [seconds_of(one) for one in series])
        self.query_one(DifferencesPane).take(comparison, effects)
        if not comparison.curves:  # there is nothing to draw: the words have the screen
            self.set_focus(self.query_one(DifferencesPane))
        self._place(self.size.height)
        self.refresh_keys()

    def on_resize(self, event: events.Resize) -> None:
        """Show both panes, or in a low terminal the focused one."""
        self._place(event.size.height)

    def _place(self, height: int) -> None:
        drawn = self._comparison is None or bool(self._comparison.curves)
        both = height >= BOTH_FROM and not self.query_one(CurvesPane).alone and drawn
        words = isinstance(self.focused, DifferencesPane)
        self.query_one(DifferencesPane).display = both or words
        self.query_one(CurvesPane).display = both or not words

    def exporters(self) -> dict[str, Callable[[], str]]:
        """See ``RowsPane.exporters``: what ``compare --json`` prints, or the lines of ``compare``."""
        found = self._comparison
        if found is None:
            return {}
        return {
            "json": lambda: msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n",
            "txt": lambda: "\n".join(lines(found, 200, self._effects)) + "\n",
        }

    # -- keys

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: the runs have metrics to draw."""
        if action not in ("select", "alone", "axis", "log_scale", "next_pane"):
            return ""
        if self._comparison is None:
            return "the runs are still being read"
        return "" if self._comparison.curves else "these runs have no metrics to draw"

    def action_next_pane(self) -> None:
        """Go to the other pane."""
        curves, words = self.query_one(CurvesPane), self.query_one(DifferencesPane)
        target = curves if self.focused is words else words
        target.display = True
        self.set_focus(target)
        self._place(self.size.height)
        self.refresh_keys()

    def action_select(self, across: int, down: int) -> None:
        """See ``CurvesPane``."""
        self.query_one(CurvesPane).action_select(across, down)

    def action_alone(self) -> None:
        """See ``CurvesPane``."""
        self.query_one(CurvesPane).action_alone()
        self._place(self.size.height)

    def action_axis(self) -> None:
        """See ``CurvesPane``."""
        self.query_one(CurvesPane).action_axis()

    def action_log_scale(self) -> None:
        """See ``CurvesPane``."""
        self.query_one(CurvesPane).action_log_scale()

    def action_back(self) -> None:
        """Show all charts again; else close the screen."""
        if self.query_one(CurvesPane).alone:
            self.action_alone()
        else:
            self.app.pop_screen()
