"""The pane of two trials: what their verifiers said, and their turns beside each other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from liverl.observe.trials.pairing import TrialPair, TurnPair
from liverl_tui.data.host import host_of
from liverl_tui.keys.bindings import bindings
from liverl_tui.text.pair_lines import PairLine, pair_lines
from liverl_tui.text.words import one_line
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.cursor_list import MOVES
from liverl_tui.widgets.base.pane import WHEEL, Pane


class PairPane(Pane):
    """Shows one pair of trials. ``take`` gives it what to show; the cursor begins at the first difference."""

    title = "Two trials"
    scope = "pair"
    BINDINGS: ClassVar[list[BindingType]] = [*MOVES, *bindings("pair")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.pair: TrialPair | None = None  # None: still being read
        self.problem = ""  # why nothing can be shown, or not the newest state
        self._opened: set[int] = set()  # numbers of the turns that were opened
        self._lines: list[PairLine] = []
        self._made: tuple[object, ...] = ()  # what ``_lines`` are of
        self._top = self._at = 0

    # -- what is shown

    def take(self, pair: TrialPair) -> None:
        """Show a pair, or its new state."""
        self.pair, self.problem = pair, ""
        self.update()

    def fail(self, problem: str) -> None:
        """Say why the trials cannot be read."""
        self.problem = problem
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title, and below it the window of lines with the cursor."""
        pair = self.pair
        if pair is None:
            text, style = (f"▲ {self.problem}", "warn") if self.problem else ("reading …", "dim")
            return [self.title_row(width), Row((text, style))]
        self._lay_out(pair, width)
        rows = [self.title_row(width, self._facts(pair), "warn" if self.problem else "dim")]
        room = max(1, height - len(rows))
        self._at = max(0, min(self._at, len(self._lines) - 1))
        self._top = max(0, min(self._top, self._at, len(self._lines) - room), self._at - room + 1)
        for number, line in enumerate(self._lines[self._top : self._top + room], self._top):
            rows.append(Row(*line.spans, cursor=number == self._at and self.has_focus))
        return rows

    def _facts(self, pair: TrialPair) -> str:
        if self.problem:
            return f"{one_line(self.problem)}; this is what was read before"
        turn = self._lines[self._at].turn if self._at < len(self._lines) else 0
        facts = [f"turn {turn}/{len(pair.turns)}"] if turn else []
        return " · ".join([*facts, f"{one_line(pair.left.task)}"])

    def _lay_out(self, pair: TrialPair, width: int) -> None:
        made = (pair, width, frozenset(self._opened))
        if made == self._made:
            return
        turn = self._lines[self._at].turn if self._lines and self._at < len(self._lines) else None
        offset = 0
        if turn is not None:
            offset = self._at - next(n for n, line in enumerate(self._lines) if line.turn == turn)
        self._lines = pair_lines(pair, width, self._is_open)
        self._made = made
        if turn is not None:
            begin = next((n for n, line in enumerate(self._lines) if line.turn == turn), 0)
            length = sum(line.turn == turn for line in self._lines)
            before, self._at = self._at, begin + min(offset, max(0, length - 1))
            self._top += self._at - before

    def _is_open(self, turns: TurnPair) -> bool:
        return turns.number in self._opened

    # -- the cursor

    def _go(self, number: int, *, to_top: bool = False) -> None:
        if self._lines:
            self._at = max(0, min(number, len(self._lines) - 1))
            self._top = self._at if to_top else self._top
            self.update()

    def action_move(self, by: int) -> None:
        """Move the cursor by lines, downwards if positive."""
        self._go(self._at + by)

    def action_page(self, by: int) -> None:
        """Move window and cursor one screen down (1) or up (-1)."""
        rows = by * max(1, self.content_size.height - 2)
        self._top = max(0, self._top + rows)
        self._go(self._at + rows)

    def action_first(self) -> None:
        """Go to the first line."""
        self._go(0)

    def action_last(self) -> None:
        """Go to the last line."""
        self._go(len(self._lines) - 1)

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: both trials were read, and differ."""
        if self.pair is None:
            return "the trials are not read" if action in ("turn", "difference", "fold", "trial") else ""
        if action == "difference" and not any(line.rule and line.parts for line in self._lines):
            return "no turn of these trials differs in its calls or results"
        return "these trials have no turn" if action in ("turn", "fold") and not self._lines else ""

    def action_turn(self, by: int) -> None:
        """Go to the next turn (1) or the one before (-1)."""
        self._to_rule(by, differing=False)

    def action_difference(self, by: int) -> None:
        """Go to the next turn (1) with different calls or results, or to the one before (-1)."""
        self._to_rule(by, differing=True)

    def _to_rule(self, by: int, *, differing: bool) -> None:
        rules = [n for n, line in enumerate(self._lines) if line.rule and (line.parts or not differing)]
        found = [n for n in rules if n > self._at] if by > 0 else [n for n in rules if n < self._at][::-1]
        if found:
            self._go(found[0], to_top=True)
        else:
            what = "turn with a difference" if differing else "turn"
            host_of(self).notifications.toast(
                f"there is no {what} {'below' if by > 0 else 'above'}", "warning"
            )

    def action_fold(self) -> None:
        """Show all of the text of the turn under the cursor, or only what differs."""
        if self._lines and (turn := self._lines[self._at].turn):
            self._opened ^= {turn}
            self.update()

    def wheel(self, by: int) -> None:
        """Move the cursor by ``WHEEL`` lines."""
        self.action_move(WHEEL * by)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the line; a double click opens or closes its turn."""
        if event.y >= 1 and self._lines:
            self._go(self._top + event.y - 1)
            if event.chain == 2:
                self.action_fold()

    def action_trial(self, side: int) -> None:
        """Open the trial on the left (0) or right (1) turn by turn."""
        pair = self.pair
        if pair is not None:
            run = host_of(self).source.run.path
            trial = (pair.left, pair.right)[side]
            host_of(self).navigation.open_trial(os.path.relpath(trial.path, run))

    # -- copying

    def copy_line(self) -> str:
        """The line under the cursor."""
        return self._lines[self._at].text if self._at < len(self._lines) else ""

    def copy_all(self) -> str:
        """All lines."""
        return "\n".join(line.text for line in self._lines)
