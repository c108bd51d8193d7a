"""A line of input for a search, a filter or a time.

The pane draws the line itself, at its bottom or in its title: no widget is mounted, and the pane keeps the focus.
"""

from __future__ import annotations

from typing import Literal

from textual import events

from liverl_tui.widgets.base.cells import Row, fit

Kind = Literal["search", "include", "exclude", "time"]
LABEL: dict[Kind, str] = {
    "search": "search /",
    "include": "show lines with /",
    "exclude": "hide lines with /",
    "time": "go to time ",
}
HINT: dict[Kind, str] = {
    "search": "a regular expression; case matters only if you type a capital",
    "include": "a regular expression; empty shows all lines",
    "exclude": "a regular expression; empty shows all lines",
    "time": "5m (ago), 12:30, 12:30:15 or 2026-11-20 12:30",
}
HISTORY = 50  # texts that are remembered
Did = Literal["changed", "kept", "cancelled", "nothing"]  # what a key did to a ``TitlePrompt``


class Line:
    """A line of text with a cursor, edited by keys; ``cursor`` is the index of the character after it. ``selected``:
    the whole text is, as where it was there before: what is typed takes its place, Backspace and Delete remove it, and
    any other key that edits keeps it."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.cursor = len(text)
        self.selected = False

    def edit(self, key: str, character: str | None) -> bool:
        """Apply one key press (Textual's name and its character); False if the key does not edit."""
        if self.selected and key in ("backspace", "ctrl+h", "delete", "ctrl+d"):
            self.replace(0, len(self.text))
        elif key in ("left", "ctrl+b"):
            self.cursor = max(0, self.cursor - 1)
        elif key in ("right", "ctrl+f"):
            self.cursor = min(len(self.text), self.cursor + 1)
        elif key in ("home", "ctrl+a"):
            self.cursor = 0
        elif key in ("end", "ctrl+e"):
            self.cursor = len(self.text)
        elif key in ("backspace", "ctrl+h"):
            self.replace(max(0, self.cursor - 1), self.cursor)
        elif key in ("delete", "ctrl+d"):
            self.replace(self.cursor, self.cursor + 1)
        elif key == "ctrl+u":
            self.replace(0, self.cursor)
        elif key == "ctrl+k":
            self.replace(self.cursor, len(self.text))
        elif key == "ctrl+w":
            before = self.text[: self.cursor].rstrip()
            self.replace(before.rfind(" ") + 1, self.cursor)
        elif character is not None and character.isprintable():
            self.insert(character)
        else:
            return False
        self.selected = False
        return True

    def insert(self, text: str) -> None:
        """Insert the first line of ``text`` at the cursor, or in place of a selected text, without control
        characters."""
        lines = text.splitlines()
        typed = "".join(character for character in lines[0] if character.isprintable()) if lines else ""
        self.replace(*((0, len(self.text)) if self.selected else (self.cursor, self.cursor)), typed)
        self.selected = False

    def replace(self, first: int, last: int, text: str = "") -> None:
        """Replace the characters from ``first`` to before ``last``, and move the cursor behind ``text``."""
        self.text = self.text[:first] + text + self.text[last:]
        self.cursor = first + len(text)


class Prompt(Line):
    """The line of input in the bottom row of a pane, with a history. ``error``: shown until the next key."""

    def __init__(self, kind: Kind, text: str = "", *, history: list[str] | None = None) -> None:
        super().__init__(text)
        self.selected = bool(text)
        self.kind = kind
        self.error = ""
        self.history = [] if history is None else history
        self._at: int | None = None  # index in the history; None while a new text is typed

    def key(self, key: str, character: str | None) -> bool:
        """Apply one key press: up and down recall older texts, others edit. False if the key does nothing."""
        self.error = ""
        if key in ("up", "down"):
            self._recall(-1 if key == "up" else 1)
            return True
        return self.edit(key, character)

    def _recall(self, by: int) -> None:
        at = (len(self.history) if self._at is None else self._at) + by
        if 0 <= at < len(self.history):
            self._at, self.text = at, self.history[at]
        elif at >= len(self.history) and self._at is not None:
            self._at, self.text = None, ""
        self.cursor, self.selected = len(self.text), False

    def remember(self) -> None:
        """Add the text to the end of the history, which keeps the newest ``HISTORY`` texts."""
        if self.text:
            if self.text in self.history:
                self.history.remove(self.text)
            self.history.append(self.text)
            del self.history[:-HISTORY]

    def row(self, width: int) -> Row:
        """The prompt in ``width`` columns: label, text, and an error or, before anything is typed, a hint. A long text
        is scrolled to show the cursor."""
        label = LABEL[self.kind]
        row = Row((label, "key"))
        room = max(4, width - len(label))
        note, style = (f"  {self.error}", "bad") if self.error else (f"  {HINT[self.kind]}", "dim")
        if self.text and not self.error:
            note = ""
        room_for_text = max(room // 2, room - len(note)) if self.error else room
        first = max(0, self.cursor - room_for_text + 1)
        visible = f"{self.text} "[first : first + room_for_text]
        at = self.cursor - first
        row.add(visible[:at], "match" if self.selected else "strong").add(visible[at : at + 1], "match").add(
            visible[at + 1 :], "strong"
        )
        return row.add(fit(note, max(0, width - len(label) - len(visible))), style)


class TitlePrompt(Line):
    """A filter in a pane's title row. The filter applies while it is typed and after that; ``open`` is True while keys
    go to it. The text that it has when it is opened is selected."""

    def __init__(self) -> None:
        super().__init__()
        self.open = False

    @property
    def shown(self) -> str:
        """The filter for the title: ``/text▏`` and a hint while it is typed, ``/text`` afterwards; empty without
        a text."""
        if self.open and self.selected:
            return f"/[{self.text}]▏ type to replace it, ← edits it, Esc clears"
        if self.open:
            return f"/{self.text[: self.cursor]}▏{self.text[self.cursor :]} Enter applies, Esc clears"
        return f"/{self.text}" if self.text else ""

    def begin(self) -> None:
        """Open the prompt with the present text selected, and the cursor at its end."""
        self.open, self.cursor = True, len(self.text)
        self.selected = bool(self.text)

    def clear(self) -> None:
        """Remove the filter and close the prompt."""
        self.text, self.cursor, self.open, self.selected = "", 0, False, False

    def key(self, event: events.Key) -> Did:
        """Apply a key and return what it did. Bindings do not get the key, except Ctrl, Alt and F1 keys that edit
        nothing."""
        before = self.text
        if event.key == "enter":
            self.open = self.selected = False
        elif event.key == "escape":
            self.clear()
        elif not self.edit(event.key, event.character) and event.key.startswith(("ctrl+", "alt+", "f1")):
            return "nothing"
        event.stop()
        event.prevent_default()
        if event.key in ("enter", "escape"):
            return "kept" if event.key == "enter" else "cancelled"
        return "changed" if self.text != before else "nothing"

    def paste(self, text: str) -> None:
        """Insert a pasted text, with its lines joined by blanks."""
        self.insert(" ".join(part for part in text.split() if part.isprintable()))
