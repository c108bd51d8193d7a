"""Dialogs: a question with answers, a list to choose from, a name to type. Each ends with one answer, or None for
*nothing is to be done*."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from liverl_tui.keys.bindings import bindings, find
from liverl_tui.widgets.base.cells import CellPanel, Row
from liverl_tui.widgets.base.rows import RowsPane

T = TypeVar("T")

WIDTH = 74  # columns of a dialog, where there is room
_LINES = 4  # rows that a dialog keeps free of its list: border and margin


class Wrapped(CellPanel):
    """Some text, wrapped to the width there is."""

    def __init__(self, text: str, style: str = "text", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.words = text
        self.style = style

    def say(self, text: str, style: str = "text") -> None:
        """Something else, in as many rows."""
        self.words, self.style = text, style
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        return [Row((line, self.style)) for line in textwrap.wrap(self.words, max(1, width))]

    def rows_at(self, width: int) -> int:
        return len(textwrap.wrap(self.words, max(1, width)))


@dataclass(frozen=True)
class Option:
    """One answer. ``key``: how its key is written."""

    answer: str
    key: str
    label: str
    about: str = ""


class Options(RowsPane):
    """The answers, one under the cursor."""

    scope = "dialog"
    title = ""

    def __init__(self, options: Sequence[Option]) -> None:
        super().__init__(id="options")
        self._options = {o.answer: o for o in options}

    def facts(self) -> tuple[str, str]:
        return f"{find('dialog', 'pick').name} chooses, {find('dialog', 'cancel').name} closes", "dim"

    def title_row(self, width: int, facts: str = "", style: str = "dim") -> Row:
        """Only a line: the dialog has a title."""
        return Row(("─" * max(0, width - len(facts) - 1), "rule"), (f" {facts}" if facts else "", style))

    def keys(self) -> Sequence[str]:
        return list(self._options)

    def row(self, key: str, width: int) -> Row:
        option = self._options[key]
        row = Row()
        if any(o.key for o in self._options.values()):
            row.add(f" {option.key}", "key", width=6)
        else:
            row.add(" ")
        return row.add(f" {option.label}", "text").add(f"  {option.about}" if option.about else "", "dim")

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        if event.y >= 1:
            self.call_next(self.screen.run_action, "pick")


class Dialog(ModalScreen[T], Generic[T]):
    """A box in the middle. ``parts`` gives its panels; those of ``Wrapped`` and ``Options`` get the rows that they
    need."""

    ALLOW_SELECT = False
    BINDINGS = bindings("dialog")
    widest = WIDTH
    DEFAULT_CSS = """
    Dialog { align: center middle; background: transparent; }
    Dialog > #box {
        height: auto; max-height: 100%; padding: 0 1; border: round $primary; background: $background;
    }
    Dialog Input { padding: 0 1; background: $surface; }
    """

    def parts(self) -> ComposeResult:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield from self.parts()

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self, _event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        """Give everything the place that it needs."""
        width = max(10, min(self.widest, self.app.size.width - 2))
        self.query_one("#box").styles.width = width
        used = _LINES + len(self.query(Input))
        for words in self.query(Wrapped):
            rows = words.rows_at(width - 4)
            words.styles.height = rows
            used += rows
        for options in self.query(Options):
            options.styles.height = max(2, min(1 + len(options.keys()), self.app.size.height - used))

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_interrupt(self) -> None:
        self.action_cancel()

    def action_pick(self) -> None:
        """What Enter does."""

    def action_answer(self, answer: str) -> None:
        """What an answer's own key does; nothing where it is not one of the answers."""


class Question(Dialog[str]):
    """A question, why it is asked, and answers. ``cursor``: the answer that Enter gives at first."""

    def __init__(self, question: str, why: str, options: Sequence[Option], cursor: str) -> None:
        super().__init__()
        self._question, self._why, self._options, self._cursor = question, why, options, cursor

    def parts(self) -> ComposeResult:
        yield Wrapped(self._question, "title")
        if self._why:
            yield Wrapped(self._why)
        options = Options(self._options)
        options.select(self._cursor)
        yield options

    def action_pick(self) -> None:
        answer = self.query_one(Options).cursor
        self.dismiss(None if answer == "no" else answer)

    def action_answer(self, answer: str) -> None:
        if any(o.answer == answer for o in self._options):
            self.dismiss(None if answer == "no" else answer)


def _key(answer: str) -> str:
    return find("dialog", f"answer('{answer}')").name


class Confirm(Question):
    """Yes or no; ``yes`` says what is done then. Enter means yes, unless ``safe``. The answer is *yes* or None."""

    def __init__(self, question: str, why: str, yes: str, *, safe: bool = False) -> None:
        options = (Option("yes", _key("yes"), yes), Option("no", _key("no"), "cancel"))
        super().__init__(question, why, options, "no" if safe else "yes")


class Quit(Question):
    """What becomes of the run. The answer is *detach*, *stop* or None."""

    def __init__(self, run: str, phase: str) -> None:
        options = (
            Option(
                "detach", _key("detach"), "detach", "the run keeps running; liverl-tui attach shows it again"
            ),
            Option("stop", _key("stop"), "stop the run", "asks for its name"),
            Option("no", find("dialog", "cancel").name, "stay"),
        )
        super().__init__("Quit?", f"{run}: {phase}" if phase else run, options, "detach")

    def action_interrupt(self) -> None:
        self.dismiss("detach")  # who presses Ctrl-C twice wants to get out, and nothing is harmed


class Choose(Dialog[str]):
    """One of several names, each with words about it."""

    def __init__(self, question: str, items: Mapping[str, str]) -> None:
        super().__init__()
        self._question, self._items = question, items

    def parts(self) -> ComposeResult:
        width = max(map(len, self._items))
        yield Wrapped(self._question, "title")
        yield Options([Option(n, "", n.ljust(width), about) for n, about in self._items.items()])

    def action_pick(self) -> None:
        self.dismiss(self.query_one(Options).cursor)


class TypedInput(Input):
    """An input in one row: Ctrl-C and Enter are its screen's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "screen.interrupt", show=False),
        Binding("enter", "screen.pick", show=False),
    ]

    def __init__(self, placeholder: str = "", *, id: str | None = None) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True)
        self.cursor_blink = False  # each blink would send bytes


class TypeName(Dialog[bool]):
    """Do something for which a name has to be typed. The answer is True or None."""

    def __init__(self, question: str, why: str, name: str) -> None:
        super().__init__()
        self._question, self._why, self._wanted = question, why, name

    def parts(self) -> ComposeResult:
        yield Wrapped(self._question, "title")
        yield Wrapped(self._why)
        yield Wrapped(self._hint, "dim", id="hint")
        yield TypedInput(id="name")

    @property
    def _hint(self) -> str:
        return f"Type {self._wanted} and press Enter to confirm; Esc cancels."

    def on_input_changed(self) -> None:
        for hint in self.query("#hint").results(Wrapped):  # it may come when the dialog is being closed
            hint.say(self._hint, "dim")

    def action_pick(self) -> None:
        typed = self.query_one(TypedInput).value.strip()
        if typed == self._wanted or typed.endswith(f"/{self._wanted}"):  # with its project is as good
            self.dismiss(True)
        else:
            self.query_one("#hint", Wrapped).say(f"The name is not {self._wanted}; nothing was done.", "bad")
