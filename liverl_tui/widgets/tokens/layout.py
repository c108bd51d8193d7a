"""The lines of a row of tokens: a rule above each turn, and its tokens wrapped. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from liverl.observe.trials.token_rows import Reply, Token, TokenRow
from liverl.offline.trial_tokens import RowText, TokenShown
from liverl.util.plural import quantity
from liverl_tui.text.token_lines import Piece, chance, place_words, quoted, step_of, wrapped
from liverl_tui.text.wrapping import columns
from liverl_tui.widgets.base.cells import Row, Span

CHUNK = 8_000  # tokens: the lines of the chunk with the cursor, and of its neighbours, are made at a time
GUTTER = {True: ("┃ ", "info"), False: ("  ", "dim"), None: ("? ", "warn")}
# Before a token of each step of heat: the less likely it was, the higher, so that no hue is needed to read it.
MARKS = ("", "▁", "▃", "▅", "█")
STYLES = ("text", "info", "warn", "bad", "alarm")
LEGEND = ("≥ 90 %", "≥ 50 %", "≥ 10 %", "≥ 1 %", "less")
CURSOR = "title_focus"


class Line(NamedTuple):
    """``first``: the index of its first token, of a rule that of the token behind it; ``pieces``: empty for a rule;
    ``sampled``: of its tokens; ``reply``: the reply that a rule is above, from 0."""

    first: int
    pieces: Sequence[Piece] = ()
    sampled: bool | None = None
    reply: int | None = None


def place_of(rows: Sequence[TokenRow], turn: int) -> tuple[int, int]:
    """Where a turn begins: the place of its row, and its first sampled token; without such a turn the beginning of the
    last row, which is that of the conversation."""
    places = (
        (number, reply.begin)
        for number, row in reversed([*enumerate(rows)])
        for reply in row.replies
        if reply.turn == turn
    )
    return next(places, (max(0, len(rows) - 1), 0))


def chunk_of(index: int, total: int) -> tuple[int, int]:
    """The tokens whose lines are made while the cursor is on ``index``."""
    begin = max(0, (index // CHUNK - 1) * CHUNK)
    return begin, min(total, begin + 3 * CHUNK)


def lines_of(row: TokenRow, text: RowText, begin: int, end: int, width: int) -> list[Line]:
    """The lines of the tokens ``begin`` to ``end``. A line has tokens of one kind only: sampled ones, or given ones."""
    lines: list[Line] = []
    for first, last, sampled, reply in _stretches(row):
        here, there = max(first, begin), min(last, end)
        if here >= there:
            continue
        if reply is not None and here == first:
            lines.append(Line(first, reply=reply))
        tokens = ((token.index, _marked(token, text)) for token in row.window(here, there - here))
        lines += [Line(pieces[0][0], pieces, sampled) for pieces in wrapped(tokens, max(8, width - 2))]
    return lines


def _stretches(row: TokenRow) -> Iterator[tuple[int, int, bool | None, int | None]]:
    """(begin, end, sampled, the reply that a rule above it is for) of tokens of one kind."""
    at = 0
    for number, reply in enumerate(row.replies):
        if at < reply.begin:
            yield at, reply.begin, False, number
        yield reply.begin, reply.end, True, None if at < reply.begin else number
        at = reply.end
    if row.mask is None and at < row.prompt:
        yield at, row.prompt, False, None
        at = row.prompt
    yield at, len(row.ids), None if row.mask is None else False, None


def _marked(token: Token, text: RowText) -> str:
    step = step_of(token.logprob)
    return text.shown(token.index) if step is None else MARKS[step] + text.shown(token.index)


def line_of(lines: Sequence[Line], index: int) -> int:
    """The number of the first line of text that has the token."""
    at = bisect_right(lines, index, key=lambda line: line.first) - 1
    while at > 0 and (not lines[at].pieces or (lines[at].first == index and _has(lines[at - 1], index))):
        at -= 1
    return max(0, at)


def _has(line: Line, index: int) -> bool:
    return any(number == index for number, _ in line.pieces)


def column_of(line: Line, index: int) -> int:
    """Where a token begins in a line, in columns; 0 if it is not in it."""
    used = 0
    for number, piece in line.pieces:
        if number == index:
            return used
        used += columns(piece)
    return 0


def token_at(line: Line, column: int) -> int:
    """The token at a column of a line of text, or its last one."""
    used = 0
    for number, piece in line.pieces:
        used += columns(piece)
        if column < used:
            return number
    return line.pieces[-1][0]


def text_row(line: Line, row: TokenRow, cursor: int | None) -> Row:
    """A line of text. ``cursor``: the token under it; None: the pane has no focus."""
    found = {token.index: token for token in row.window(line.first, line.pieces[-1][0] - line.first + 1)}
    shown = Row(GUTTER[line.sampled])
    for number, piece in line.pieces:
        step = step_of(found[number].logprob)
        style = "dim" if line.sampled is False else "text" if step is None else STYLES[step]
        shown.add(piece, CURSOR if number == cursor else style)
    return shown


def rule_row(row: TokenRow, number: int, width: int) -> Row:
    """``── turn 2 · 28 given · 38 sampled · mean log-prob -0.213 · policy v3 ──``"""
    reply = row.replies[number]
    before = row.replies[number - 1].end if number else 0
    name = f"turn {reply.turn}" if reply.turn is not None else f"reply {number + 1}"
    facts: list[Span] = [
        (f"{reply.begin - before:,} given", "dim"),
        (f"{reply.end - reply.begin:,} sampled", "dim"),
    ]
    mean = _mean(row, reply)
    facts.append(("no log-probs", "warn") if mean is None else (f"mean log-prob {mean:.3f}", "dim"))
    version = row.window(reply.begin, 1)[0].version
    if version is not None:
        facts.append((f"policy v{version}", "dim"))
    if reply.healed:
        facts.append(("▲ healed", "warn"))
    shown = Row(("── ", "rule"), (name, "title"))
    for fact in facts:
        shown.add(" · ", "dim").add(*fact)
    shown.add(" ", "rule")
    return shown.add("─" * max(0, width - columns(shown.text)), "rule")


def _mean(row: TokenRow, reply: Reply) -> float | None:
    values = [
        value for index in range(reply.begin, reply.end) if (value := row.logprob(index, reply)) is not None
    ]
    return math.fsum(values) / len(values) if values else None


def fact_words(token: TokenShown, rank: str) -> list[str]:
    """The facts of the token under the cursor, the most important first. ``rank``: among the least likely ones."""
    name = "" if token.text is None or token.id is None else f"{token.id} "
    words = [f"{name}{quoted(token.text, token.id)}"]
    if token.logprob is not None:
        words += [f"log-prob {token.logprob:.3f}", chance(token.probability), rank]
    elif token.sampled:
        words.append("log-prob not recorded")
    words.append({True: "sampled", False: "given", None: "sampled or given: not recorded"}[token.sampled])
    words.append(place_words(token))
    words.append(f"token {token.index:,}")
    words.append("id hidden" if token.id is None else "")
    if token.bytes is not None:
        words.append(f"bytes {token.bytes}")
    if token.version is not None:
        words.append(f"policy v{token.version}")
    return [word for word in words if word]


def legend() -> Row:
    """What the marks mean."""
    shown = Row(("heat: ", "dim"))
    for mark, style, words in zip(MARKS, STYLES, LEGEND, strict=True):
        shown.add(f"{mark} {words}".strip(), style).add("  ", "dim")
    return shown.add("┃", "info").add(" sampled", "dim")


def title_facts(row: TokenRow, rows: int) -> str:
    """``row 1 of 2 (main) · 286 tokens, 132 sampled``"""
    return f"row {row.number} of {rows} ({row.kind}) · {quantity(len(row.ids), 'token')}, {row.sampled:,} sampled"
