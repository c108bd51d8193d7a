"""Dialogs: a question with answers, a list to choose from, a name to type. Each is dismissed with an answer, or with
None if nothing is to be done."""

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

from liverl_tui.data.host import host_of
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.term.see_through import SeenThrough
from liverl_tui.text.words import cut
from liverl_tui.widgets.base.cells import CellPanel, Row
from liverl_tui.widgets.base.cursor_list import CursorList

T = TypeVar("T")

WIDTH = 74  # columns of a dialog; less in a narrower terminal
_BORDER = 2  # rows of the border of a dialog
_MARGIN = 2  # rows above and below a dialog, where there is room
_LEAST = 4  # rows of a list of answers, with its head, for which the texts above give way


class Wrapped(CellPanel):
    """A text, wrapped to the width of the widget. ``words`` is the text, ``style`` the name of its style."""

    def __init__(self, text: str, style: str = "text", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.words = text
        self.style = style

    def say(self, text: str, style: str = "text") -> None:
        """Replace the text. The height stays: a text that needs more rows is cut."""
        self.words, self.style = text, style
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The text, wrapped; what there are no rows for is cut, with a sign."""
        lines = textwrap.wrap(self.words, max(1, width))
        if 0 < height < len(lines):
            lines = [*lines[: height - 1], cut(f"{lines[height - 1]} {lines[height]}", width)]
        return [Row((line, self.style)) for line in lines]

    def rows_at(self, width: int) -> int:
        """Return how many rows the text needs in ``width`` columns; 0 for an empty text."""
        return len(textwrap.wrap(self.words, max(1, width)))


@dataclass(frozen=True)
class Option:
    """One answer of a dialog.

    ``answer``: what the dialog is dismissed with. ``key``: its key as people write it; empty if it has none.
    ``label``: the answer in words. ``about``: an explanation beside it.
    """

    answer: str
    key: str
    label: str
    about: str = ""


class Options(CursorList):
    """The list of answers, one of them under the cursor. A click chooses an answer."""

    scope = "dialog"
    title = ""

    def __init__(self, options: Sequence[Option]) -> None:
        super().__init__(id="options")
        self._options = {o.answer: o for o in options}

    def facts(self) -> tuple[str, str]:
        """The keys that choose and close, and the style of these words."""
        return f"{find('dialog', 'pick').mention} chooses, {find('dialog', 'cancel').mention} closes", "dim"

    def title_row(self, width: int, facts: str = "", style: str = "dim") -> Row:
        """Return a line with ``facts`` at its right end; the title is the dialog's."""
        return Row(("─" * max(0, width - len(facts) - 1), "rule"), (f" {facts}" if facts else "", style))

    def keys(self) -> Sequence[str]:
        """The answers, in their order."""
        return list(self._options)

    @property
    def most_rows(self) -> int:
        """How many answers there may be; the list gets the height for them."""
        return len(self.keys())

    def row(self, key: str, width: int) -> Row:
        """Key, label and explanation of one answer; no column for keys if no answer has one."""
        option = self._options[key]
        row = Row()
        if any(o.key for o in self._options.values()):
            row.add(f" {option.key}", "key", width=6)
        else:
            row.add(" ")
        return row.add(f" {option.label}", "text").add(f"  {option.about}" if option.about else "", "dim")

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked answer."""
        super().on_click(event)
        if event.y >= 1:
            self.call_next(self.screen.run_action, "pick")


class Dialog(SeenThrough[T], ModalScreen[T], Generic[T]):
    """A box in the middle of the screen, dismissed with an answer of type ``T`` or None.

    A subclass gives its widgets by ``parts``; ``Wrapped`` and ``Options`` among them get the rows that they need.
    ``widest``: columns of the box in a terminal that is wide enough.
    """

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
        """Yield the widgets of the box, from top to bottom. A subclass implements this."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """The box around ``parts``."""
        with Vertical(id="box"):
            yield from self.parts()

    def on_mount(self) -> None:
        """Fit the box to the terminal."""
        self._fit()

    def on_screen_resume(self) -> None:
        """What was answered to keys of the screen behind goes."""
        host_of(self).notifications.screen_changed()

    def on_resize(self, _event: events.Resize) -> None:
        """Fit the box to the new size of the terminal."""
        self._fit()

    def _fit(self) -> None:
        """Set the width of the box, and the heights of texts and lists, by the size of the terminal."""
        width = max(10, min(self.widest, self.app.size.width - 2))
        self.query_one("#box").styles.width = width
        inside = self.app.size.height - _BORDER
        fields, lists = len(self.query(Input)), list(self.query(Options))
        kept = sum(min(1 + options.most_rows, max(_LEAST, inside // 2)) for options in lists)
        room = max(1, inside - fields - kept)  # for the texts: the answers are always seen
        texts = 0
        for words in self.query(Wrapped):
            words.styles.height = rows = min(words.rows_at(width - 4), room - texts)
            texts += rows
        for options in lists:
            options.styles.height = max(
                2, min(1 + options.most_rows, max(kept, inside - _MARGIN - fields - texts))
            )

    def action_cancel(self) -> None:
        """Dismiss with None."""
        self.dismiss(None)

    def action_interrupt(self) -> None:
        """Ctrl-C, Ctrl-Q or q: as ``action_cancel``."""
        self.action_cancel()

    def action_pick(self) -> None:
        """Enter: dismiss with the chosen answer. A subclass implements this; here nothing happens."""

    def action_switch(self) -> None:
        """Switch the item under the cursor, in a dialog with items that are on or off; here nothing happens."""

    def action_answer(self, answer: str) -> None:
        """The key of ``answer``: dismiss with it, if the dialog has this answer; here nothing happens."""


class Question(Dialog[str]):
    """A question, ``why`` it is asked (may be empty), and answers; the answer *no* gives None.

    ``cursor``: the answer under the cursor at first.
    """

    def __init__(self, question: str, why: str, options: Sequence[Option], cursor: str) -> None:
        super().__init__()
        self._question, self._why, self._options, self._cursor = question, why, options, cursor

    def parts(self) -> ComposeResult:
        """Question, reason and answers."""
        yield Wrapped(self._question, "title")
        if self._why:
            yield Wrapped(self._why)
        options = Options(self._options)
        options.select(self._cursor)
        yield options

    def action_pick(self) -> None:
        """Dismiss with the answer under the cursor."""
        answer = self.query_one(Options).cursor
        self.dismiss(None if answer == "no" else answer)

    def action_answer(self, answer: str) -> None:
        """Dismiss with ``answer`` if it is one of the answers."""
        if any(o.answer == answer for o in self._options):
            self.dismiss(None if answer == "no" else answer)


def _key(answer: str) -> str:
    """Return the key of an answer, as people write it."""
    return find("dialog", f"answer('{answer}')").name


class Confirm(Question):
    """Yes or no. The answer is *yes* or None. Enter means no at first: what was typed before the dialog appeared must
    not stop or repeat work.

    ``yes``: the words for what is then done.
    """

    def __init__(self, question: str, why: str, yes: str) -> None:
        options = (Option("yes", _key("yes"), yes), Option("no", _key("no"), "cancel"))
        super().__init__(question, why, options, "no")


class Quit(Question):
    """Asks what to do with the run when the interface quits. The answer is *detach*, *stop* or None (stay).

    ``run``: its name; ``phase``: what it is doing, may be empty.
    """

    def __init__(self, run: str, phase: str) -> None:
        options = (
            Option("detach", _key("detach"), "detach", "the run keeps running"),
            Option("stop", _key("stop"), "stop the run", "asks for its name"),
            Option("no", find("dialog", "cancel").name, "stay"),
        )
        state = f"{run}: {phase}" if phase else run
        super().__init__("Quit?", f"{state}. liverl-tui attach shows it again", options, "detach")

    def action_interrupt(self) -> None:
        """Ctrl-C, Ctrl-Q or q a second time: detach, which changes nothing in the run."""
        self.dismiss("detach")


class Choose(Dialog[str]):
    """A list to choose one name from; ``items``: name -> explanation, at least one. The answer is the name or None."""

    def __init__(self, question: str, items: Mapping[str, str]) -> None:
        super().__init__()
        self._question, self._items = question, items

    def parts(self) -> ComposeResult:
        """Question and list."""
        width = max(map(len, self._items))
        yield Wrapped(self._question, "title")
        yield Options([Option(n, "", n.ljust(width), about) for n, about in self._items.items()])

    def action_pick(self) -> None:
        """Dismiss with the name under the cursor."""
        self.dismiss(self.query_one(Options).cursor)


class TypedInput(Input):
    """An input in one row. Ctrl-C and Enter run the actions ``interrupt`` and ``pick`` of its screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "screen.interrupt", show=False),
        Binding("enter", "screen.pick", show=False),
    ]

    def __init__(self, placeholder: str = "", *, id: str | None = None) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True)
        self.cursor_blink = False  # each blink would send bytes to the terminal


class TypeName(Dialog[bool]):
    """Confirms an action by a typed ``name``. The answer is True or None."""

    def __init__(self, question: str, why: str, name: str) -> None:
        super().__init__()
        self._question, self._why, self._name_to_type = question, why, name

    def parts(self) -> ComposeResult:
        """Question, reason, hint and input."""
        yield Wrapped(self._question, "title")
        yield Wrapped(self._why)
        yield Wrapped(self._hint, "dim", id="hint")
        yield TypedInput(id="name")

    @property
    def _hint(self) -> str:
        return f"Type {self._name_to_type} and press Enter to confirm; Esc cancels."

    def on_input_changed(self) -> None:
        """Show the hint again, in place of the message about a wrong name."""
        for hint in self.query("#hint").results(Wrapped):  # none while the dialog closes
            hint.say(self._hint, "dim")

    def action_pick(self) -> None:
        """Dismiss with True if the name was typed, alone or behind its project; else say that it is wrong."""
        typed = self.query_one(TypedInput).value.strip()
        if typed == self._name_to_type or typed.endswith(
            f"/{self._name_to_type}"
        ):  # <project>/<name> is accepted too
            self.dismiss(True)
        else:
            self.query_one("#hint", Wrapped).say(
                f"The typed name is not {self._name_to_type}; nothing was done.", "bad"
            )
