"""The base of dialogs that find one item by a part of its name: an input, and below it the list of matches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from liverl_tui.screens.dialogs import Dialog, Options, TypedInput, Wrapped
from liverl_tui.widgets.base.cells import Row

# Characters of a query that count: a fuzzy matcher tries every way to spread them over a name.
QUERY_MOST = 40

T = TypeVar("T")


class Choices(Options):
    """The list of matches. The input above keeps the focus; the cursor of the list is shown all the same."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(())
        self._query = ""

    def find(self, query: str) -> None:
        """Make ``keys`` return the matches of ``query``, the best first. A subclass implements this."""
        raise NotImplementedError

    def look_for(self, query: str) -> None:
        """List the matches of ``query``, with the cursor on the first; do nothing if it has not changed."""
        if query == self._query:
            return
        self._query = query
        self.find(query)
        self._go(0)
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The list, with its cursor drawn although the list has no focus."""
        rows = list(super().compose_rows(width, height))
        place = 1 + self._at - self._top  # row 0 is the line
        if self._cursor is not None and place < len(rows):
            rows[place].cursor = True
        return rows


class Finder(Dialog[T]):
    """Up, down and paging move in the list while the user types; Enter dismisses the dialog with ``answer``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,ctrl+p", "move(-1)", show=False),
        Binding("down,ctrl+n", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]
    DEFAULT_CSS = "Finder { align: center top; }"

    def __init__(self, title: str, placeholder: str, choices: Choices) -> None:
        super().__init__()
        self._title, self._placeholder, self._choices = title, placeholder, choices
        self._due = False  # the list is to be brought up to what is typed

    def answer(self) -> T | None:
        """Return what the dialog is dismissed with: the item under the cursor; None if there is no match. A subclass
        implements this."""
        raise NotImplementedError

    def parts(self) -> ComposeResult:
        """Title, input and list."""
        yield Wrapped(self._title, "title")
        yield TypedInput(self._placeholder, id="query")
        yield self._choices

    def on_input_changed(self, _event: Input.Changed) -> None:
        """List the matches of the typed text, once a frame: letters that come at once are one search."""
        if not self._due:
            self._due = True
            self.call_after_refresh(self._look)

    def _look(self) -> None:
        self._due = False
        if self._choices.is_attached:  # not while the dialog closes
            text = self.query_one(TypedInput).value
            self._choices.look_for(text)
            self.looked(text)

    def looked(self, text: str) -> None:
        """Called when the matches of ``text`` are listed. Subclasses say more of it."""

    def action_move(self, by: int) -> None:
        """Move the cursor of the list by ``by`` rows."""
        self._choices.action_move(by)

    def action_page(self, by: int) -> None:
        """Move the cursor of the list by ``by`` pages."""
        self._choices.action_page(by)

    def action_pick(self) -> None:
        """Dismiss the dialog with the answer; stay open if nothing matches."""
        # The Changed message of the last letters may not be handled yet if Enter follows them at once.
        self._choices.look_for(self.query_one(TypedInput).value)
        answer = self.answer()
        if answer is not None:
            self.dismiss(answer)
