"""One line of text, typed into a pane's own title row: no widget that has to be laid out."""

from __future__ import annotations

from typing import Literal

from textual import events

Did = Literal["changed", "kept", "cancelled", "nothing"]


class Prompt:
    """``open`` while the keys belong to it."""

    def __init__(self) -> None:
        self.text = ""
        self.open = False

    @property
    def shown(self) -> str:
        """``/text▏`` while it is typed, ``/text`` afterwards, nothing without a text."""
        if self.open:
            return f"/{self.text}▏ Enter keeps, Esc clears"
        return f"/{self.text}" if self.text else ""

    def begin(self) -> None:
        self.open = True

    def clear(self) -> None:
        self.text, self.open = "", False

    def key(self, event: events.Key) -> Did:
        """Take a key; whatever it is, no binding gets it, those with Ctrl or Alt excepted."""
        if event.key.startswith(("ctrl+", "alt+", "f1")) and event.key not in ("ctrl+h", "ctrl+u", "ctrl+w"):
            return "nothing"
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.open = False
            return "kept"
        if event.key == "escape":
            self.clear()
            return "cancelled"
        before = self.text
        if event.key in ("backspace", "ctrl+h"):
            self.text = self.text[:-1]
        elif event.key == "ctrl+u":
            self.text = ""
        elif event.key == "ctrl+w":
            self.text = self.text.rstrip().rpartition(" ")[0]
        elif event.is_printable and event.character is not None:
            self.text += event.character
        return "changed" if self.text != before else "nothing"

    def paste(self, text: str) -> None:
        self.text += " ".join(part for part in text.split() if part.isprintable())
