"""What panes with services tell the dashboard."""

from __future__ import annotations

from textual.message import Message


class ServiceSelected(Message):
    """The user has moved the cursor to a service or replica, ``name``; None: to a row of none."""

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self.name = name


class Unfolded(Message):
    """Rows of a pane were unfolded or folded, so it needs another number of rows."""
