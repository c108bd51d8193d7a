"""The line at the bottom of the log view in which one types a search, a filter or a time. Drawn by the pane
itself: nothing is mounted, nothing blinks, and the focus stays where it is."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl_tui.widgets.cells import Row, fit

Kind = Literal["search", "include", "exclude", "time"]
LABEL: dict[Kind, str] = {
    "search": "search /",
    "include": "only lines with /",
    "exclude": "without lines with /",
    "time": "go to time ",
}
HINT: dict[Kind, str] = {
    "search": "a regular expression; capitals matter only if you type one",
    "include": "a regular expression; empty shows all lines",
    "exclude": "a regular expression; empty shows all lines",
    "time": "5m (ago), 12:30, 12:30:15 or 2026-11-20 12:30",
}
HISTORY = 50


class Prompt(msgspec.Struct):
    """A line being typed. ``error``: what is wrong with it, until the next key."""

    kind: Kind
    text: str = ""
    cursor: int = 0
    error: str = ""
    history: list[str] = []
    _at: int | None = None  # in the history

    def __post_init__(self) -> None:
        self.cursor = len(self.text)

    def key(self, key: str, character: str | None) -> bool:
        """Take one key press; False if it means nothing here."""
        self.error = ""
        if key in ("left", "ctrl+b"):
            self.cursor = max(0, self.cursor - 1)
        elif key in ("right", "ctrl+f"):
            self.cursor = min(len(self.text), self.cursor + 1)
        elif key in ("home", "ctrl+a"):
            self.cursor = 0
        elif key in ("end", "ctrl+e"):
            self.cursor = len(self.text)
        elif key in ("backspace", "ctrl+h"):
            self._replace(max(0, self.cursor - 1), self.cursor)
        elif key in ("delete", "ctrl+d"):
            self._replace(self.cursor, self.cursor + 1)
        elif key == "ctrl+u":
            self._replace(0, self.cursor)
        elif key == "ctrl+k":
            self._replace(self.cursor, len(self.text))
        elif key == "ctrl+w":
            before = self.text[: self.cursor].rstrip()
            self._replace(before.rfind(" ") + 1, self.cursor)
        elif key in ("up", "down"):
            self._recall(-1 if key == "up" else 1)
        elif character is not None and character.isprintable():
            self.insert(character)
        else:
            return False
        return True

    def insert(self, text: str) -> None:
        """Put in what was typed or pasted, its first line."""
        lines = text.splitlines()
        typed = "".join(character for character in lines[0] if character.isprintable()) if lines else ""
        self._replace(self.cursor, self.cursor, typed)

    def _replace(self, first: int, last: int, text: str = "") -> None:
        self.text = self.text[:first] + text + self.text[last:]
        self.cursor = first + len(text)

    def _recall(self, by: int) -> None:
        at = (len(self.history) if self._at is None else self._at) + by
        if 0 <= at < len(self.history):
            self._at, self.text = at, self.history[at]
        elif at >= len(self.history) and self._at is not None:
            self._at, self.text = None, ""
        self.cursor = len(self.text)

    def remember(self) -> None:
        """Keep the text for the next time."""
        if self.text:
            if self.text in self.history:
                self.history.remove(self.text)
            self.history.append(self.text)
            del self.history[:-HISTORY]

    def row(self, width: int) -> Row:
        """The prompt in ``width`` columns; what is typed scrolls so that the cursor is seen."""
        label = LABEL[self.kind]
        row = Row((label, "key"))
        room = max(4, width - len(label))
        note, style = (f"  {self.error}", "bad") if self.error else (f"  {HINT[self.kind]}", "dim")
        if self.text and not self.error:
            note = ""
        room_for_text = max(room // 2, room - len(note)) if self.error else room
        first = max(0, self.cursor - room_for_text + 1)
        seen = f"{self.text} "[first : first + room_for_text]
        at = self.cursor - first
        row.add(seen[:at], "strong").add(seen[at : at + 1], "match").add(seen[at + 1 :], "strong")
        return row.add(fit(note, max(0, width - len(label) - len(seen))), style)
