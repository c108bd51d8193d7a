"""A dialog that finds one thing by a part of its name: an input, and under it the list of what fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from liverl_tui.screens.dialogs import Dialog, Options, TypedInput, Wrapped
from liverl_tui.widgets.base.cells import Row

QUERY_MOST = 40  # characters; a fuzzy matcher tries every way in which they could be spread

T = TypeVar("T")


class Choices(Options):
    """What fits. The keys are typed into the input above, which keeps the focus; the cursor is shown all the same."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(())
        self._query = ""

    def find(self, query: str) -> None:
        """Have ``keys`` be those that fit."""
        raise NotImplementedError

    def look_for(self, query: str) -> None:
        if query == self._query:
            return
        self._query = query
        self.find(query)
        self._go(0)
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        rows = list(super().compose_rows(width, height))
        place = 1 + self._at - self._top  # below the line
        if self._cursor is not None and place < len(rows):
            rows[place].cursor = True
        return rows


class Finder(Dialog[T]):
    """``answer`` is what Enter gives."""

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

    def answer(self) -> T | None:
        """What is under the cursor."""
        raise NotImplementedError

    def parts(self) -> ComposeResult:
        yield Wrapped(self._title, "title")
        yield TypedInput(self._placeholder, id="query")
        yield self._choices

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._choices.is_attached:  # it may come when the dialog is being closed
            self._choices.look_for(event.value)

    def action_move(self, by: int) -> None:
        self._choices.action_move(by)

    def action_page(self, by: int) -> None:
        self._choices.action_page(by)

    def action_pick(self) -> None:
        # News of the newest letters may still be on its way when Enter comes right behind them.
        self._choices.look_for(self.query_one(TypedInput).value)
        answer = self.answer()
        if answer is not None:
            self.dismiss(answer)
