"""The screen of two trials of one prompt beside each other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl.observe.trials.dumped_trajectory import reader_of
from liverl.observe.trials.pairing import pair_of
from liverl_tui.keys.bindings import Scope
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.pair.pane import PairPane

if TYPE_CHECKING:
    from textual.dom import DOMNode

POLL_S = 2.0  # seconds between two reads of the trials' files, while one of them runs


class PairScreen(RunScreen):
    """One pane. Its keys are those of the scope ``pair``. The trials are read when the screen is opened, and again
    while one of them runs."""

    scope = "pair"
    AUTO_FOCUS = "#pair"
    DEFAULT_CSS = """
    PairScreen { layout: vertical; }
    PairScreen PairPane { width: 1fr; height: 1fr; }
    """

    def __init__(self, left: str, right: str) -> None:
        """``left``, ``right``: the trials' directories, relative to the run's; the better trial is on the left."""
        super().__init__()
        self.paths = left, right
        self._reading = False

    def compose(self) -> ComposeResult:
        """The trials, above the key bar."""
        yield Header()
        yield PairPane(id="pair")
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """Return the pane for the scope ``pair``, also while it has no focus; then this screen, then the app."""
        return self.scopes_of(PairPane)

    @property
    def pane(self) -> PairPane:
        """The widget that shows the trials."""
        return self.query_one(PairPane)

    def on_mount(self) -> None:
        """Read the trials now, and again every ``POLL_S`` seconds while one of them runs."""
        super().on_mount()
        self._readers = [reader_of(self.liverl.source.run.path / path) for path in self.paths]
        self._poll()
        self.set_interval(POLL_S, self._poll)

    def _poll(self) -> None:
        pair = self.pane.pair
        if not self._reading and (pair is None or pair.left.running or pair.right.running):
            self._reading = True
            self.run_worker(self._read(), group="pair")

    async def _read(self) -> None:
        left, right = self._readers
        try:
            pair = await asyncio.to_thread(lambda: pair_of(left.read(), right.read()))
        except OSError as error:
            self.pane.fail(f"cannot read these trials: {error.strerror or error}")
            return
        finally:
            self._reading = False
        self.pane.take(pair)
