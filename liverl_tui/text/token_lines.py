"""Tokens as lines of text: wrapped for a pane, and as a report for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from liverl.offline.trial_tokens import RowShown, TokenShown, TokensShown
from liverl.util.plural import quantity
from liverl.util.visible import visible
from liverl_tui.text.columns import head
from liverl_tui.text.table import aligned
from liverl_tui.text.words import one_line
from liverl_tui.text.wrapping import columns

NEWLINE = "↵"  # at the end of a line that a token ends
EMPTY = "∅"  # a token without text
_FACTS = {"trainer_logprob": "the trainer's own log-probability (its mismatch with the engine's)"}
Piece = tuple[int, str]  # index of a token, and a part of its text as it is shown

# The least log-probability of each of five steps of heat, by how likely the model found its own token: probabilities of
# 90 %, 50 %, 10 % and 1 %, which a reader would call sure, likely, open and unlikely; what is below is a surprise.
HEAT = (-0.10536, -0.69315, -2.30259, -4.60517, float("-inf"))


def step_of(logprob: float | None) -> int | None:
    """The step of heat, 0 to 4, of a log-probability; None without one."""
    if logprob is None:
        return None
    return next((step for step, least in enumerate(HEAT) if logprob >= least), len(HEAT) - 1)


def shown_parts(text: str) -> list[str]:
    """A token's text as it is shown, in the lines that it has: newlines are ``NEWLINE`` and end a line; what a terminal
    would obey is visible."""
    if not text:
        return [EMPTY]
    lines = text.split("\n")
    parts = [visible(line) + NEWLINE for line in lines[:-1]]
    return [*parts, visible(lines[-1])] if lines[-1] or not parts else [*parts, ""]


def wrapped(tokens: Iterable[tuple[int, str]], width: int) -> Iterator[list[Piece]]:
    """Tokens (index, text) in lines of at most ``width`` columns. Each has at least one piece; it is cut only where it
    does not fit a line of its own."""
    line: list[Piece] = []
    used = 0
    for index, text in tokens:
        parts = shown_parts(text)
        for number, part in enumerate(parts):
            size = columns(part)
            if used and used + size > width:
                yield line
                line, used = [], 0
            while size > width:
                begin = head(part, width) or part[:1]
                yield [(index, begin)]
                part = part[len(begin) :]
                size = columns(part)
            if part:
                line.append((index, part))
                used += size
            if number < len(parts) - 1:
                yield line
                line, used = [], 0
    if line:
        yield line


def quoted(text: str | None, token: int | None) -> str:
    r"""A token in a fact: ``'\n'``; its id where its text is not known."""
    return f"<{token}>" if text is None else f"'{visible(text)}'"


def chance(probability: float | None) -> str:
    """A probability for people: ``37 %``, ``0.4 %``, ``< 0.01 %``."""
    if probability is None:
        return "not known"
    share = 100 * probability
    if 0 < share < 0.01:
        return "< 0.01 %"
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.2g} %"


def place_words(token: TokenShown) -> str:
    """Where a token is: ``turn 2``, or the reply of its row where the turn is not known."""
    if token.turn is not None:
        return f"turn {token.turn}"
    return f"reply {token.reply} of its row" if token.reply else "behind the last reply"


def row_words(row: RowShown, rows: int) -> str:
    """``row 2 of 2 (main): 169 tokens, 59 of the prompt, 96 sampled in 2 replies, mean log-probability -1.14``"""
    words = [
        quantity(row.tokens, "token"),
        f"{row.prompt:,} of the prompt",
        f"{row.sampled:,} sampled in {quantity(len(row.replies), 'reply', 'replies')}",
    ]
    if row.mean_logprob is not None:
        words.append(f"mean log-probability {row.mean_logprob:.3f}")
    return f"row {row.number} of {rows} ({one_line(row.kind)}): {', '.join(words)}"


def said(row: RowShown, no_text: str) -> Iterator[str]:
    """What must be known about a row before its numbers are believed. ``no_text``: why ids have no text, if so."""
    if row.why:
        yield f"a row of its own: {row.why}"
    if row.missing:
        yield f"▲ {row.missing}"
    for fault in row.faults:
        yield f"▲ {one_line(fault)}"
    healed = [reply for reply in row.replies if reply.healed]
    for reply in healed:
        yield (
            f"turn {reply.turn} was healed: the text of the reply before it has other ids; the row keeps those that "
            "were sampled"
        )
    if no_text:
        yield f"ids are shown, not their text: {one_line(no_text)}"


def not_recorded(names: Sequence[str]) -> str:
    """What no file says of tokens, in words."""
    return " and ".join(_FACTS.get(name, name) for name in names)


def token_report(shown: TokensShown, begin: int, width: int) -> list[str]:
    """``trials show --tokens``. ``begin``: the first token that was asked for."""
    lines = [f"trial:     {one_line(shown.trial)}"]
    for row in shown.rows:
        lines.append(f"{'→' if row.number == shown.row else ' '} {row_words(row, len(shown.rows))}")
    lost = ", ".join(f"{n:,} {one_line(reason)}" for reason, n in sorted(shown.not_trained.items()))
    if lost:
        lines.append(f"sampled tokens that are in no row: {lost}")
    if shown.note:
        lines.append(f"▲ {one_line(shown.note)}")
    chosen = next((row for row in shown.rows if row.number == shown.row), None)
    if chosen is None:
        return lines
    lines += said(chosen, shown.no_text)
    lines.append(f"not recorded of tokens: {not_recorded(shown.not_recorded)}")
    worst = {token.index for token in shown.worst}
    for _, group in groupby(shown.tokens, lambda token: (token.reply, token.sampled)):
        several = list(group)
        lines += ["", _head(several), *_block(several, worst, width)]
    left = chosen.tokens - begin - len(shown.tokens)
    if left > 0:
        lines += ["", f"{left:,} more: --from {begin + len(shown.tokens)} shows them"]
    if shown.worst:
        lines += ["", "least likely sampled tokens:", *_worst(shown.worst)]
    return lines


def _head(tokens: Sequence[TokenShown]) -> str:
    first, last = tokens[0], tokens[-1]
    what = {True: "sampled", False: "given", None: "sampled or given: not recorded"}[first.sampled]
    version = f", policy v{first.version}" if first.version is not None else ""
    return f"tokens {first.index} to {last.index}, {place_words(first)}, {what}{version}"


def _block(tokens: Sequence[TokenShown], worst: set[int], width: int) -> Iterator[str]:
    mark = {True: "> ", False: "  ", None: "? "}[tokens[0].sampled]

    def text(token: TokenShown) -> str:
        plain = f"<{token.id}>" if token.text is None else token.text
        return f"«{plain}»" if token.index in worst else plain

    for line in wrapped(((token.index, text(token)) for token in tokens), max(8, width - len(mark))):
        yield f"{mark}{''.join(piece for _, piece in line)}".rstrip()


def _worst(tokens: Sequence[TokenShown]) -> Iterator[str]:
    cells = [
        (
            str(token.index),
            f"{token.logprob:.3f}" if token.logprob is not None else "-",
            chance(token.probability),
            place_words(token),
            "hidden" if token.id is None else str(token.id),
            quoted(token.text, token.id),
        )
        for token in tokens
    ]
    rows = [("TOKEN", "LOG-PROB", "PROBABILITY", "TURN", "ID", "TEXT"), *cells]
    yield from aligned(rows, right=(0, 1, 2, 4), gap="   ")
