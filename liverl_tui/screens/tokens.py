"""The tokens screen: the rows of one trial as text, with mask and log-probabilities on the tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl.observe.trials.dumped_trajectory import reader_of
from liverl.offline.trial_tokens import RowText, TrialTokens, load
from liverl_tui.keys.bindings import Scope
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.tokens.layout import place_of
from liverl_tui.widgets.tokens.pane import TokensPane

if TYPE_CHECKING:
    from textual.dom import DOMNode


class TokensScreen(RunScreen):
    """One pane. Its keys are those of the scope ``tokens``, whose actions the pane has. The trial is read once, when
    the screen is opened: its rows are written at its end, and do not change."""

    scope = "tokens"
    AUTO_FOCUS = "#tokens"
    DEFAULT_CSS = """
    TokensScreen { layout: vertical; }
    TokensScreen TokensPane { width: 1fr; height: 1fr; }
    """

    def __init__(self, path: str, turn: int = 0) -> None:
        """``path``: the trial's directory, relative to the run's. ``turn``: the one to begin with; 0: the beginning."""
        super().__init__()
        self.path = path
        self._turn = turn

    def compose(self) -> ComposeResult:
        """The tokens, above the key bar."""
        pane = TokensPane(id="tokens")
        pane.name_of_trial = self.path.rpartition("/")[2]
        yield Header()
        yield pane
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """Return the pane for the scope ``tokens``, also while it has no focus, then the app."""
        return self.scopes_of(TokensPane)

    @property
    def pane(self) -> TokensPane:
        """The widget that shows the tokens."""
        return self.query_one(TokensPane)

    def on_mount(self) -> None:
        """Read the trial."""
        super().on_mount()
        self.run_worker(self._read(), group="tokens")

    async def _read(self) -> None:
        try:
            read = await asyncio.to_thread(_load, self.liverl.source.run.path, self.path, self._turn)
        except OSError as error:
            self.pane.fail(f"cannot read this trial: {error.strerror or error}")
            return
        self.pane.take(*read)


def _load(run_dir: Path, path: str, turn: int) -> tuple[TrialTokens, RowText | None, tuple[int, int]]:
    """The tokens of a trial, the place of a turn in them, and the text of the row that has it. Blocking.

    Raises:
        OSError: the storage failed.
    """
    tokens = load(run_dir, path, reader_of(run_dir / path).read())
    place = place_of(tokens.rows, turn)
    text = RowText(tokens.rows[place[0]], tokens.texts) if tokens.rows else None
    return tokens, text, place
