"""A change of a configuration, shown as a diff, and the question whether to make it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import chop_cells
from textual.app import ComposeResult

from liverl.util.visible import visible
from liverl_tui.data.config_change import Line
from liverl_tui.screens.dialogs import Confirm, Wrapped
from liverl_tui.widgets.base.cells import Row

SHOWN = 12  # lines of a diff; a patch has a few keys
_STYLES = {"-": "bad", "+": "ok"}


class Diff(Wrapped):
    """Removed lines behind ``-``, new ones behind ``+``; a long line goes on in the next row."""

    def __init__(self, lines: Sequence[Line]) -> None:
        left = len(lines) - SHOWN
        more = [Line(" ", f"and {left} more lines")] if left > 0 else []
        self._diff_lines = [*lines[:SHOWN], *more]
        super().__init__("\n".join(f"{line.sign} {line.text}" for line in self._diff_lines))

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The lines in their colours."""
        return self._diff_rows(width)

    def rows_at(self, width: int) -> int:
        """See ``Wrapped.rows_at``."""
        return len(self._diff_rows(width))

    def _diff_rows(self, width: int) -> list[Row]:
        rows = []
        for line in self._diff_lines:
            style = _STYLES.get(line.sign, "dim")
            for index, part in enumerate(chop_cells(visible(line.text), max(2, width - 4)) or [""]):
                rows.append(Row((f" {' ' if index else line.sign} {part}", style)))
        return rows


class ConfirmChange(Confirm):
    """Yes or no to a change. ``title``: the question; ``where``: what the diff is of; ``why``: what follows from it;
    ``yes``: the words for what is then done."""

    def __init__(self, title: str, where: str, lines: Sequence[Line], why: str, yes: str) -> None:
        super().__init__(title, why, yes)
        self._where, self._diff = where, lines

    def parts(self) -> ComposeResult:
        """The question, the diff, what follows, and the answers."""
        title, *rest = super().parts()
        yield title
        yield Wrapped(self._where, "dim")
        yield Diff(self._diff)
        yield from rest
