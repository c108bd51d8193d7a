"""The base of every pane: a panel that can have the focus, with a title row."""

from __future__ import annotations

from typing import ClassVar

from textual import events

from liverl_tui.keys.bindings import Scope
from liverl_tui.term.private import QuietFocus
from liverl_tui.widgets.base.cells import CellPanel, Row, fit

WHEEL = 3  # rows per step of the mouse wheel


class Pane(CellPanel, QuietFocus, can_focus=True):
    """A focusable panel whose first row is its title. The title is highlighted while the pane has the focus, which
    costs fewer bytes than a border."""

    scope: ClassVar[Scope]
    further_scopes: ClassVar[tuple[Scope, ...]] = ()  # of keys that it has beside those of ``scope``
    title: ClassVar[str]
    number: ClassVar[str] = ""  # the key that jumps here

    def title_row(self, width: int, facts: str = "", style: str = "dim") -> Row:
        """The first row, in ``width`` columns: ``1 GPUs  facts ─────``. ``style``: that of ``facts``."""
        name = f" {self.number} {self.title} " if self.number else f" {self.title} "
        row = Row((name, "title_focus" if self.has_focus else "title"))
        used = len(name)
        if facts:
            text = fit(facts, min(len(facts), max(0, width - used - 2)))
            row.add(" ").add(text, style).add(" ")
            used += len(text) + 2
        return row.add("─" * max(0, width - used), "rule")

    def watch_has_focus(self, has_focus: bool) -> None:
        """Highlight the title and the cursor, or stop."""
        # Not in on_focus and on_blur: they run before Textual sets has_focus.
        super().watch_has_focus(has_focus)
        self.refocus()

    def refocus(self) -> None:
        """Draw title and cursor again: the pane has got the focus or lost it, and nothing else has changed."""
        self.update()

    def wheel(self, by: int) -> None:
        """Called for each step of the mouse wheel: ``by`` is 1 downwards, -1 upwards. Does nothing here."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Call ``wheel(1)``; no parent scrolls."""
        event.stop()
        self.wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Call ``wheel(-1)``; no parent scrolls."""
        event.stop()
        self.wheel(-1)

    def copy_line(self) -> str:
        """The text that the key `copy` copies; empty if there is none."""
        return ""

    def copy_all(self) -> str:
        """The text that the key `copy all` copies: what the pane shows, unless a subclass gives more."""
        return self.text
