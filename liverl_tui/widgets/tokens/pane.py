"""The pane of a trial's tokens: a title, the facts of one token, and the row as text in heat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from liverl.observe.trials.token_rows import TokenRow, next_begin
from liverl.offline.trial_tokens import RowText, TrialTokens, row_shown, shown_token
from liverl_tui.data.host import host_of
from liverl_tui.keys.bindings import bindings
from liverl_tui.text.token_lines import said
from liverl_tui.text.words import one_line
from liverl_tui.widgets.base.cells import Row, fit
from liverl_tui.widgets.base.cursor_list import MOVES
from liverl_tui.widgets.base.pane import WHEEL, Pane
from liverl_tui.widgets.base.wrapping import wrapped
from liverl_tui.widgets.tokens.layout import (
    Line,
    chunk_of,
    column_of,
    fact_words,
    legend,
    line_of,
    lines_of,
    rule_row,
    text_row,
    title_facts,
    token_at,
)

_SAID = 4  # rows of warnings that are shown at most


class TokensPane(Pane):
    """Shows one row of a trial at a time. ``begin`` and ``take`` give it what to show."""

    title = "Tokens"
    scope = "tokens"
    BINDINGS: ClassVar[list[BindingType]] = [*MOVES, *bindings("tokens")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.name_of_trial = ""
        self.problem = ""  # why nothing can be shown
        self.tokens: TrialTokens | None = None  # None: still being read
        self._texts: dict[int, RowText] = {}  # by the place of their rows
        self._row = 0  # the place of the shown row in ``tokens.rows``
        self.cursor = 0  # index of a token
        # Of the cursor among the least likely tokens, if it was put there by that key
        self._rank: int | None = None
        self._worst: list[int] = []  # of the shown row
        self._lines: list[Line] = []
        self._made: tuple[int, ...] = ()  # what ``_lines`` are of
        self._top = 0  # the number of the first line that is shown

    # -- what is shown

    def take(self, tokens: TrialTokens, text: RowText | None, place: tuple[int, int]) -> None:
        """Show the tokens of a trial. ``place``: the place of a row, and the token in it to begin with; ``text``: of
        that row, None if there is no row."""
        self.tokens = tokens
        self._texts = {} if text is None else {place[0]: text}
        self._show_row(*place)

    def fail(self, problem: str) -> None:
        """Say why nothing can be shown."""
        self.problem = problem
        self.update()

    def _show_row(self, number: int, cursor: int) -> None:
        self._row, self.cursor, self._rank, self._made, self._top = number, cursor, None, (), 0
        row, tokens = self.row, self.tokens
        if row is not None and tokens is not None and number not in self._texts:
            self._texts[number] = RowText(row, tokens.texts)
        self._worst = [] if row is None else row.worst(row.sampled)
        self.update()

    @property
    def row(self) -> TokenRow | None:
        """The shown row; None without one."""
        rows = self.tokens.rows if self.tokens is not None else ()
        return rows[self._row] if 0 <= self._row < len(rows) else None

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title, facts and warnings, and below them the window of lines with the cursor."""
        row, tokens = self.row, self.tokens
        if tokens is None:
            rows = [self.title_row(width, self.name_of_trial)]
            return [
                *rows,
                *(_wrapped([self.problem], width) if self.problem else [Row(("reading …", "dim"))]),
            ]
        head = self._head(tokens, width, height)
        if row is None:
            return head
        room = max(1, height - len(head))
        self._lay_out(row, width, room)
        at = line_of(self._lines, self.cursor)
        above = at - 1 if at and not self._lines[at - 1].pieces else at  # with the rule above it
        if not self._top - 1 <= above <= at <= self._top + room:  # a jump, not a step over the edge
            self._top = at - room // 3
        self._top = max(0, min(self._top, above, max(0, len(self._lines) - room)), at - room + 1)
        cursor = self.cursor if self.has_focus else None
        for line in self._lines[self._top : self._top + room]:
            if line.reply is not None and not line.pieces:
                head.append(rule_row(row, line.reply, width))
            else:
                head.append(text_row(line, row, cursor))
        return head

    def _head(self, tokens: TrialTokens, width: int, height: int) -> list[Row]:
        row = self.row
        facts = [one_line(self.name_of_trial)]
        if row is not None:
            facts.append(title_facts(row, len(tokens.rows)))
        rows = [self.title_row(width, " · ".join(facts))]
        warnings = [tokens.note] if tokens.note else []
        if row is None:
            return [*rows, *_wrapped(warnings, width)]
        rows.append(Row((self._fact_line(row, width), "strong")))
        if self._worst:
            rows.append(legend())
        warnings += [words.removeprefix("▲ ") for words in said(row_shown(row), tokens.no_text)]
        lost = ", ".join(f"{n:,} {one_line(reason)}" for reason, n in sorted(tokens.not_trained.items()))
        warnings += [f"sampled tokens that are in no row: {lost}"] if lost else []
        most = max(1, min(_SAID, height // 8))
        told = [list(_wrapped([words], width)) for words in warnings]
        if len(warnings) <= most and sum(map(len, told)) <= height // 4:
            return [*rows, *(line for lines in told for line in lines)]
        for number, words in enumerate(warnings[:most]):
            left = len(warnings) - most
            more = f" (+{left} more)" if number == most - 1 and left > 0 else ""
            rows.append(Row((fit(f"▲ {one_line(words)}", width - len(more)).rstrip() + more, "warn")))
        return rows

    def _fact_line(self, row: TokenRow, width: int) -> str:
        token = shown_token(row.window(self.cursor, 1)[0], self._texts[self._row])
        rank = ""
        if self._rank is not None:
            rank = f"worst {self._rank + 1:,}/{len(self._worst):,}"
        line = ""
        for word in fact_words(token, rank):
            longer = f"{line} · {word}" if line else word
            if len(longer) > width:
                break
            line = longer
        return fit(line or fact_words(token, rank)[0], width).rstrip()

    def _lay_out(self, row: TokenRow, width: int, room: int) -> None:
        """Make the lines around the cursor, unless they are made. The cursor keeps its place on the screen."""
        begin, end = chunk_of(self.cursor, len(row.ids))
        made = (self._row, begin, end, width)
        if made == self._made:
            return
        before = line_of(self._lines, self.cursor) - self._top if self._made and self._lines else room // 3
        self._lines = lines_of(row, self._texts[self._row], begin, end, width)
        self._made = made
        self._top = max(0, line_of(self._lines, self.cursor) - before)

    # -- the cursor

    def _go(self, index: int, rank: int | None = None) -> None:
        row = self.row
        if row is not None:
            self.cursor, self._rank = max(0, min(index, len(row.ids) - 1)), rank
            self.update()

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: the trial has rows of tokens, and these have log-probabilities."""
        if self.tokens is None:
            missing = "the tokens are not read"
        elif self.row is None:
            missing = "this trial has no tokens"
        elif action == "worst":
            missing = "" if self._worst else "no sampled token of this row has a log-probability"
        else:
            missing = "this trial has one row of tokens" if len(self.tokens.rows) < 2 else ""
            missing = missing if action == "next_row" else ""
        return missing if action in ("worst", "turn", "step", "next_row") else ""

    def action_step(self, by: int) -> None:
        """Go to the next (1) or previous (-1) token."""
        before = self.cursor
        self._go(before + by)
        if self.cursor == before:
            host_of(self).notifications.toast(f"this is the {'last' if by > 0 else 'first'} token", "warning")

    def action_move(self, by: int) -> None:
        """Move the cursor by lines of text, downwards if positive, in its column."""
        if self.row is None or not self._lines:
            return
        at = line_of(self._lines, self.cursor)
        column, step = column_of(self._lines[at], self.cursor), 1 if by > 0 else -1
        target = at
        for _ in range(abs(by)):
            further = target + step
            while 0 <= further < len(self._lines) and not self._lines[further].pieces:
                further += step
            if not 0 <= further < len(self._lines):
                break
            target = further
        line = self._lines[target]
        index = token_at(line, column)
        if target != at and line_of(self._lines, index) == at:  # one token on both lines
            index = line.pieces[-1][0] if by > 0 else line.first
            index += step if index == self.cursor else 0
        self._go(index)

    def action_page(self, by: int) -> None:
        """Move one screen down (1) or up (-1)."""
        self.action_move(by * max(1, self.content_size.height - 5))

    def action_first(self) -> None:
        """Go to the first token."""
        self._go(0)

    def action_last(self) -> None:
        """Go to the last token."""
        if self.row is not None:
            self._go(len(self.row.ids) - 1)

    def action_worst(self, by: int) -> None:
        """Go to the least likely token; again, to the next one (1), or back (-1)."""
        if not self._worst:
            return
        rank = (0 if by > 0 else -1) if self._rank is None else self._rank + by
        rank %= len(self._worst)
        self._go(self._worst[rank], rank)

    def action_turn(self, by: int) -> None:
        """Go to the first sampled token of the next (1) or previous (-1) turn."""
        row = self.row
        begin = None if row is None else next_begin(row, self.cursor, by)
        if begin is not None:
            self._go(begin)
        else:
            host_of(self).notifications.toast(
                f"there is no {'later' if by > 0 else 'earlier'} turn", "warning"
            )

    def action_next_row(self) -> None:
        """Show the next row of the trial, after the last one the first."""
        if self.tokens is not None and len(self.tokens.rows) > 1:
            self._show_row((self._row + 1) % len(self.tokens.rows), 0)

    def wheel(self, by: int) -> None:
        """Move the cursor by ``WHEEL`` lines."""
        self.action_move(WHEEL * by)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the token."""
        if self.tokens is None or self.row is None:
            return
        above = len(self._head(self.tokens, self.content_size.width, self.content_size.height))
        number = self._top + event.y - above
        if event.y >= above and number < len(self._lines) and self._lines[number].pieces:
            self._go(token_at(self._lines[number], max(0, event.x - 2)))

    # -- copying

    def copy_line(self) -> str:
        """The facts of the token under the cursor."""
        return self._fact_line(self.row, 10_000) if self.row is not None else ""


def _wrapped(warnings: Iterable[str], width: int) -> Iterable[Row]:
    """Warnings that stand alone, whole."""
    return wrapped([Row(("▲ ", "warn"), (one_line(words), "warn")) for words in warnings], width)
