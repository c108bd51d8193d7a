"""The help screen: every key of ``keys/table.py``, the states of services, and facts about the interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from liverl.model import Snapshot
from liverl_tui.keys.bindings import SCOPE_TITLES, Scope, bindings, find, key_name, keys_of, moves
from liverl_tui.keys.of_run import worded
from liverl_tui.keys.questions import QUESTIONS
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.dialogs import TypedInput
from liverl_tui.text import words
from liverl_tui.text.legend import sections
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.pane import WHEEL, Pane
from liverl_tui.widgets.base.wrapping import wrapped

_KEYS = 14  # columns of the keys
_LABEL = 18  # columns of the label
_MARKS = 27  # columns of marks
QUESTIONS_TITLE = "Where to look"

_BACK = ("Esc", "clear the search or filter; else go back one screen, or restore the pane")
STATES: dict[str, str] = {
    "waiting": "its dependencies are not ready yet",
    "preparing": "its environment, ports and files are being prepared",
    "starting": "the process is running, but not ready yet",
    "ready": "",
    "degraded": "the process is running, but a probe fails",
    "stopping": "the main process, or processes that outlived it, are being stopped",
    "stopped": "stopped on request, or completed",
    "failed": "exited by itself and is not restarted",
    "backing_off": "failed and is restarted after a delay",
    "gave_up": "failed too often and is not restarted",
}


def _links() -> Iterable[tuple[str, str]]:
    """How the interface can be connected to the backend, and what that means."""
    revive = find("app", "revive").mention
    return (
        ("live", "connected to the backend"),
        ("connecting", "the backend is starting, or does not answer at the moment"),
        ("lost", f"the backend has died; the files are shown; its services may still be running ({revive})"),
        ("ended", "the run has ended; its files are shown"),
    )


def _facts() -> Iterable[str]:
    """Sentences about the interface."""
    detach, events, mouse = find("app", "detach"), find("app", "events"), find("app", "mouse")
    return (
        f"Closing the terminal or losing the ssh connection detaches, as {detach.mention} does; the run keeps "
        "running. Ctrl-C asks first.",
        "liverl-tui attach shows the run again, from any terminal of this host. A run stops only if you type its "
        "name.",
        f"The events of the run ({events.mention}) name the client that sent each command.",
        "Each state has a symbol and a word; no state is shown by colour alone.",
        'History bars end at the right with the newest sample, below "now"; of a run that has ended, at its end.',
        "Keys of your own: ui.keys in the configuration; liverl-tui keys prints the names to write there.",
        f"In tmux the mouse is off until you {mouse.press}, so that tmux can select text.",
    )


def question_rows() -> Iterator[Row]:
    """Yield where the interface answers what a user wants to know."""
    yield Row((QUESTIONS_TITLE, "title"))
    width = max(len(question.asked) for question in QUESTIONS)
    for question in QUESTIONS:
        yield Row().add(f"  {question.asked}", "text", width=width + 2).add("  ").add(question.answer, "dim")


def help_rows(nearest: Sequence[Scope], snapshot: Snapshot | None = None) -> Iterator[Row]:
    """Yield the whole text: what stands on the screen, then the keys of the scopes ``nearest``, in their order. On the
    dashboard, where a newcomer is, the questions stand above them. ``snapshot``: of the run."""
    first = "dashboard" in nearest or not nearest
    if first:
        yield from question_rows()
    yield from _key_rows(nearest[:1], snapshot, rest=False)
    yield from _legend_rows(nearest or ("dashboard",))
    yield from _key_rows(nearest, snapshot, besides=nearest[:1])
    if not first:
        yield from question_rows()
    yield Row(("States of services", "title"))
    for state, glyph in words.GLYPH.items():
        row = Row().add(f"  {glyph} {words.state_word(state)}", words.STYLE[state], width=_KEYS + _LABEL + 1)
        yield row.add(" ").add(STATES[state], "dim")
    yield Row(("The link to the backend", "title"))
    yield from _pairs(_links(), "text")
    yield Row(("Good to know", "title"))
    for fact in _facts():
        yield Row((f"  {fact}", "text"))


def _legend_rows(scopes: Sequence[str]) -> Iterator[Row]:
    for title, marks in sections(scopes):
        yield Row((f"On this screen: {title}", "title"))
        yield from _pairs(((", ".join(mark.marks), mark.meaning) for mark in marks), "text", _MARKS)


def _key_rows(
    nearest: Sequence[Scope], snapshot: Snapshot | None, *, rest: bool = True, besides: Sequence[Scope] = ()
) -> Iterator[Row]:
    """Yield the keys of ``nearest`` and, with ``rest``, of all other scopes; without those of ``besides``."""
    for scope in dict.fromkeys((*nearest, *(SCOPE_TITLES if rest else ()))):
        if scope in besides:
            continue
        keys = keys_of(scope)
        if keys:
            yield Row((SCOPE_TITLES[scope], "title"))
        for key in (worded(key, snapshot) for key in keys):
            names = " ".join(dict.fromkeys((key.name, *map(key_name, key.bound[1:])))) or "no key"
            row = Row().add(f"  {names}", "key", width=_KEYS).add(" ").add(key.label, "text", width=_LABEL)
            yield row.add(" ").add(key.help, "dim")
        if scope == "moving":
            yield Row().add(f"  {_BACK[0]}", "key", width=_KEYS + _LABEL + 1).add(" ").add(_BACK[1], "dim")


def _pairs(pairs: Iterable[tuple[str, str]], style: str, width: int = _KEYS + _LABEL + 1) -> Iterator[Row]:
    """Yield a row per (word, explanation); ``style`` is that of the word, ``width`` its columns."""
    for left, right in pairs:
        yield Row().add(f"  {left}", style, width=width).add(" ").add(right, "dim")


def matching(rows: Sequence[Row], text: str) -> list[Row]:
    """Return the rows that contain ``text`` in any case, below their headings; all rows for an empty text."""
    needle = text.strip().lower()
    if not needle:
        return list(rows)
    matches: list[Row] = []
    heading: Row | None = None
    for row in rows:
        if not row.text.startswith("  "):
            heading = row
        elif needle in row.text.lower():
            if heading is not None:
                matches.append(heading)
                heading = None
            matches.append(row)
    return matches


class HelpPane(Pane):
    """The text of the help, scrolled by lines."""

    title = "Help"
    BINDINGS: ClassVar[list[BindingType]] = [
        *moves(
            "scroll_by(-1)", "scroll_by(1)", "page(-1)", "page(1)", "scroll_by(-100000)", "scroll_by(100000)"
        ),
        Binding("space", "page(1)", show=False),
        Binding("escape", "screen.unfilter", show=False),
    ]

    def __init__(self, nearest: Sequence[Scope], snapshot: Snapshot | None) -> None:
        super().__init__(id="help")
        self._all = list(help_rows(nearest, snapshot))
        self._shown = self._all
        self._top = 0

    def look_for(self, text: str) -> None:
        """Show only the lines that contain ``text``, from the first one; empty = all lines."""
        self._shown = matching(self._all, text)
        self._top = 0
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title with the visible range, and the lines from the present scroll position."""
        lines = list(wrapped(self._shown, width))
        room = max(1, height - 1)
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        facts = f"{self._top + 1}-{self._top + len(shown)} of {len(lines)}" if lines else "no line matches"
        return [self.title_row(width, facts), *shown]

    def action_scroll_by(self, rows: int) -> None:
        """Scroll by ``rows`` lines, up to the ends of the text; negative = up."""
        self._top += rows
        self.update()

    def action_page(self, by: int) -> None:
        """Scroll by ``by`` pages; one line of the old page stays visible."""
        self.action_scroll_by(by * max(1, self.content_size.height - 2))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down by ``WHEEL`` lines."""
        event.stop()
        self.action_scroll_by(WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up by ``WHEEL`` lines."""
        event.stop()
        self.action_scroll_by(-WHEEL)

    def copy_line(self) -> str:
        """Return what is on the screen: the help has no selected line."""
        return self.text

    def copy_all(self) -> str:
        """Return all lines that match the filter, not wrapped."""
        return "\n".join(row.text.rstrip() for row in self._shown)


class FilterInput(TypedInput):
    """The input of the filter: Esc removes the filter, the arrow keys scroll the text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.unfilter", show=False),
        Binding("up", "screen.scroll_help(-1)", show=False),
        Binding("down", "screen.scroll_help(1)", show=False),
    ]


class HelpScreen(RunScreen):
    """``nearest``: the scopes whose keys worked where the help was opened; these are shown first."""

    scope = "help"
    BINDINGS = bindings("help")
    AUTO_FOCUS = "#help"
    DEFAULT_CSS = """
    HelpScreen { layout: vertical; }
    HelpScreen #help { height: 1fr; }
    HelpScreen #filter { display: none; background: $surface; }
    """

    def __init__(self, nearest: Sequence[Scope] = ()) -> None:
        super().__init__()
        self._nearest = nearest

    def compose(self) -> ComposeResult:
        """The text, the hidden input of the filter, and the key bar."""
        yield HelpPane(self._nearest, self.liverl.view.snapshot)
        yield FilterInput("show lines that contain ...", id="filter")
        yield KeyBar()

    @property
    def pane(self) -> HelpPane:
        """The widget that shows the text."""
        return self.query_one(HelpPane)

    def action_back(self) -> None:
        """Close this screen, as Esc does on other screens."""
        self.liverl.navigation.action_back()

    def action_filter(self) -> None:
        """Show the input of the filter and type into it."""
        field = self.query_one(FilterInput)
        field.display = True
        field.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse ``unfilter`` while there is no filter: Esc then reaches the binding that closes this screen."""
        return action != "unfilter" or any(field.display for field in self.query(FilterInput))

    def action_unfilter(self) -> None:
        """Remove the filter, hide its input and go back to the text."""
        field = self.query_one(FilterInput)
        field.value = ""
        field.display = False
        self.pane.focus()

    def action_pick(self) -> None:
        """Enter in the filter: go to the text, and keep the filter."""
        self.pane.focus()

    def action_interrupt(self) -> None:
        """Ctrl-C in the filter: remove the filter."""
        self.action_unfilter()

    def action_scroll_help(self, rows: int) -> None:
        """Scroll the text by ``rows`` lines while the filter keeps the focus."""
        self.pane.action_scroll_by(rows)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only the lines that contain the typed text."""
        for pane in self.query(HelpPane):  # none while the screen closes
            pane.look_for(event.value)
