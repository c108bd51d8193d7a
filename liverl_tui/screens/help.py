"""Every key, from the one table, and what the signs mean."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from liverl_tui.keys.bindings import SCOPE_TITLES, Scope, bindings, key_name, keys_of
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.dialogs import TypedInput
from liverl_tui.text import words
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.rows import Pane

_KEYS = 14  # columns of the keys
_LABEL = 18
_LEAST = 12  # columns in which wrapping is better than cutting

MOVING = (
    ("↑ ↓  k j", "a row up and down"),
    ("PgUp PgDn  ^b ^f", "a page"),
    ("Home End  g G", "to the first and the last row"),
    ("Esc", "clears a search or a filter; else one screen back, or out of a maximised pane"),
)
LINKS = (
    ("live", "the backend talks to us"),
    ("connecting", "it is starting, or does not answer at the moment"),
    ("lost", "it has died: what is shown comes from the files, and its services may still run (U)"),
    ("ended", "the run has ended; its files are shown"),
)
FACTS = (
    "Closing the terminal or losing the ssh connection detaches, as D does: the run goes on. Ctrl-C asks first.",
    "liverl-tui attach shows it again, from any terminal of this host. Only a typed name stops a run.",
    "The run's events say which client did what (E).",
    "What lists show is marked by a sign and a word, never by a colour alone.",
    "Histories sweep as on a heart monitor: the newest stands before the gap; one cell at a time is little to send.",
    "In tmux the mouse is off until m, so that the terminal's own selection works.",
)
STATES: dict[str, str] = {
    "waiting": "its dependencies are not met yet",
    "preparing": "environment, ports, files",
    "starting": "the process exists, it is not ready yet",
    "ready": "",
    "degraded": "alive, but a probe fails",
    "stopping": "asked to end, or its tree is being swept",
    "stopped": "ended as asked, or completed",
    "failed": "ended by itself and is not restarted",
    "backing_off": "will be started again after a delay",
    "gave_up": "too many failures",
}


def help_rows(nearest: Sequence[Scope]) -> Iterator[Row]:
    """All of it, the scopes that work where one comes from first."""
    for scope in dict.fromkeys((*nearest, *SCOPE_TITLES)):
        keys = keys_of(scope)
        if keys:
            yield Row((SCOPE_TITLES[scope], "title"))
        for key in keys:
            names = " ".join(dict.fromkeys((key.name, *map(key_name, key.keys.split(",")[1:]))))
            row = Row().add(f"  {names}", "key", width=_KEYS).add(" ").add(key.label, "text", width=_LABEL)
            yield row.add(" ").add(key.help, "dim")
    yield Row(("Moving in lists", "title"))
    yield from _pairs(MOVING, "key")
    yield Row(("States of services", "title"))
    for state, glyph in words.GLYPH.items():
        row = Row().add(f"  {glyph} {words.state_word(state)}", words.STYLE[state], width=_KEYS + _LABEL + 1)
        yield row.add(" ").add(STATES[state], "dim")
    yield Row(("The link to the backend", "title"))
    yield from _pairs(LINKS, "text")
    yield Row(("Good to know", "title"))
    for fact in FACTS:
        yield Row((f"  {fact}", "text"))


def _pairs(pairs: Iterable[tuple[str, str]], style: str) -> Iterator[Row]:
    for left, right in pairs:
        yield Row().add(f"  {left}", style, width=_KEYS + _LABEL + 1).add(" ").add(right, "dim")


def matching(rows: Sequence[Row], text: str) -> list[Row]:
    """The rows with ``text`` in them, under their headings; all for an empty text."""
    wanted = text.strip().lower()
    if not wanted:
        return list(rows)
    found: list[Row] = []
    heading: Row | None = None
    for row in rows:
        if not row.text.startswith("  "):
            heading = row
        elif wanted in row.text.lower():
            if heading is not None:
                found.append(heading)
                heading = None
            found.append(row)
    return found


def wrapped(rows: Iterable[Row], width: int) -> Iterator[Row]:
    """The rows in ``width`` columns: what does not fit goes on below, in the column in which it begins."""
    for row in rows:
        *before, (text, style) = row.spans
        column = sum(len(part) for part, _ in before)
        if column + len(text) <= width or width - column < _LEAST:
            yield row
            continue
        blank = len(text) - len(text.lstrip())
        first, *further = textwrap.wrap(text.strip(), width - column - blank)
        yield Row(*before, (" " * blank + first, style))
        for line in further:
            yield Row((" " * (column + blank), style), (line, style))


class HelpPane(Pane):
    """The text, scrolled by line."""

    title = "Help"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_by(-1)", show=False),
        Binding("down,j", "scroll_by(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", show=False),
        Binding("home,g", "scroll_by(-100000)", show=False),
        Binding("end,G", "scroll_by(100000)", show=False),
        Binding("escape", "screen.unfilter", show=False),
    ]

    def __init__(self, nearest: Sequence[Scope]) -> None:
        super().__init__(id="help")
        self._all = list(help_rows(nearest))
        self._shown = self._all
        self._top = 0

    def look_for(self, text: str) -> None:
        self._shown = matching(self._all, text)
        self._top = 0
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        lines = list(wrapped(self._shown, width))
        room = max(1, height - 1)
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        facts = (
            f"{self._top + 1}-{self._top + len(shown)} of {len(lines)}" if lines else "nothing has that in it"
        )
        return [self.title_row(width, facts), *shown]

    def action_scroll_by(self, rows: int) -> None:
        self._top += rows
        self.update()

    def action_page(self, by: int) -> None:
        self.action_scroll_by(by * max(1, self.content_size.height - 2))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_scroll_by(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_scroll_by(-3)

    def copy_line(self) -> str:
        return self.text

    def copy_all(self) -> str:
        return "\n".join(row.text.rstrip() for row in self._shown)


class FilterInput(TypedInput):
    """Esc first takes the filter away."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.unfilter", show=False),
        Binding("up", "screen.scroll_help(-1)", show=False),
        Binding("down", "screen.scroll_help(1)", show=False),
    ]


class HelpScreen(RunScreen):
    """``nearest``: the scopes of where one comes from."""

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
        yield HelpPane(self._nearest)
        yield FilterInput("only lines with ...", id="filter")
        yield KeyBar()

    @property
    def pane(self) -> HelpPane:
        return self.query_one(HelpPane)

    def action_back(self) -> None:
        self.liverl.navigation.action_back()

    def action_filter(self) -> None:
        field = self.query_one(FilterInput)
        field.display = True
        field.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Esc goes on to what closes us when there is no filter to take away
        return action != "unfilter" or any(field.display for field in self.query(FilterInput))

    def action_unfilter(self) -> None:
        field = self.query_one(FilterInput)
        field.value = ""
        field.display = False
        self.pane.focus()

    def action_pick(self) -> None:
        """Enter: read on, filtered."""
        self.pane.focus()

    def action_interrupt(self) -> None:
        self.action_unfilter()

    def action_scroll_help(self, rows: int) -> None:
        self.pane.action_scroll_by(rows)

    def on_input_changed(self, event: Input.Changed) -> None:
        for pane in self.query(HelpPane):  # it may come when the screen is being closed
            pane.look_for(event.value)
