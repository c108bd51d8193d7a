"""Two trials beside each other as lines of styled text: in two columns, or one below the other. Pure.

A turn on which both agree is one line. Of one that differs each side shows what was written, called and answered; lines
that the other side has not are marked, and of a long text the lines around the first of them are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from liverl.observe.trials.ending_words import ending_word
from liverl.observe.trials.message_parts import Part
from liverl.observe.trials.pairing import PARTING, Differs, TrialPair, TurnPair, same_in_both
from liverl.observe.trials.trajectory import Trajectory
from liverl.observe.trials.turns import Turn
from liverl.observe.trials.verifier import VerifierReport
from liverl.util.plural import quantity
from liverl.util.visible import visible
from liverl_tui.text.columns import head
from liverl_tui.text.reward_lines import check_lines, mark_of
from liverl_tui.text.words import count, duration, one_line
from liverl_tui.text.wrapping import columns, wrap_line

Spans = tuple[tuple[str, str], ...]  # text, and the name of its style

SIDES = ("A", "B")
TWO_COLUMNS = 110  # columns from which the trials stand beside each other
LINES = 8  # of one text of a closed turn
_OPEN_LINES = 1000  # of one text of an open turn
_COMPARED = 2000  # lines of one text that are compared one by one; longer ones only as a whole
_CHECKS = 3  # failed checks in the head
_ROWS = 2  # of each text of a closed turn that differs in its text only
_CONTEXT = 24  # characters of it before the first difference
_BETWEEN = " │ "
_DIFFERS: dict[Differs, tuple[str, str]] = {
    "": ("same", "dim"),
    "words": ("different text, same calls and results", "dim"),
    "calls": ("≠ different calls", "warn"),
    "results": ("≠ same calls, different results", "warn"),
    "missing": ("≠ only {side} has this turn", "warn"),
}
_LABELS = {"text": "", "reasoning": "reasons ", "call": "", "result": "→ ", "error": "failed ", "user": "user ",
           "system": "system "}  # fmt: skip
_STYLES = {"reasoning": "dim", "result": "text", "error": "bad", "call": "accent"}


@dataclass(frozen=True)
class PairLine:
    """One line. ``turn``: that it belongs to, 0: the head; ``rule``: the line above a turn; ``parts``: it is the rule
    of a turn at which the trials differ, see ``PARTING``."""

    spans: Spans
    turn: int = 0
    rule: bool = False
    parts: bool = False

    @property
    def text(self) -> str:
        """The line without styles."""
        return visible("".join(text for text, _ in self.spans)).rstrip()


def pair_lines(pair: TrialPair, width: int, opened: Callable[[TurnPair], bool]) -> list[PairLine]:
    """All lines at ``width`` columns. ``opened``: whether a turn shows all of its text."""
    room = (width - len(_BETWEEN)) // 2 if width >= TWO_COLUMNS else max(8, width - 2)
    left, right = _head_lines(SIDES[0], pair.left, room), _head_lines(SIDES[1], pair.right, room)
    lines = [PairLine(spans) for spans in _joined(left, right, width)]
    lines += [PairLine(((words, style),)) for words, style in _verdict(pair)]
    for turns in pair.turns:
        lines.append(_rule(turns, pair.first, width))
        lines += [
            PairLine(spans, turns.number) for spans in _turn_lines(pair, turns, width, room, opened(turns))
        ]
    return [replace(line, spans=_cut(line.spans, width)) for line in lines]


def _cut(spans: Spans, width: int) -> Spans:
    """``spans`` in at most ``width`` columns."""
    kept: list[tuple[str, str]] = []
    for text, style in spans:
        safe = visible(text)
        part = safe if columns(safe) <= width else head(safe, width)
        width -= columns(part)
        if part:
            kept.append((part, style))
    return tuple(kept)


def begins_open(turns: TurnPair) -> bool:
    """Whether a turn shows both sides before it was opened by hand: the trials differ there."""
    return turns.differs in PARTING


def _verdict(pair: TrialPair) -> Iterator[tuple[str, str]]:
    if pair.same_prompt is False:
        yield "▲ their prompts differ: these are not two trials of one prompt", "warn"
    if not pair.turns:
        yield "neither trial has recorded turns", "dim"
    elif pair.first is None:
        texts = next((turns.number for turns in pair.turns if turns.differs == "words"), None)
        yield "no turn differs in its calls or results", "ok" if texts is None else "text"
        if texts is not None:
            yield f"first different text: turn {texts}", "text"
    else:
        words, _ = _DIFFERS[pair.turns[pair.first - 1].differs]
        words = words.removeprefix("≠ ").format(side=_only(pair.turns[pair.first - 1]))
        yield f"≠ first difference: turn {pair.first}, {words}", "strong"


def _only(turns: TurnPair) -> str:
    return SIDES[0] if turns.right is None else SIDES[1]


def _head_lines(side: str, trial: Trajectory, width: int) -> list[Spans]:
    facts = [
        " ".join(f"{one_line(name)} {value:g}" for name, value in trial.rewards.items()) or "no reward",
        "running" if trial.running else one_line(ending_word(trial.ended_by, trial.flags)),
        quantity(max(len(trial.turns), trial.told_turns), "turn"),
        quantity(trial.tool_calls, "call"),
        f"{count(trial.completion_tokens)} tokens",
    ]
    facts += [duration(trial.seconds)] if trial.seconds is not None else []
    lines: list[Spans] = [((f"{side} ", "title"), (head(one_line(trial.name), max(1, width - 2)), "strong"))]
    lines += [((line, "text"),) for line in _wrap(" · ".join(facts), width)]
    if trial.exception:
        lines += [((line, "bad"),) for line in _wrap(f"✖ {trial.exception}", width)[:2]]
    return [*lines, *_check_lines(trial.verifier, width)]


def _check_lines(report: VerifierReport, width: int) -> Iterator[Spans]:
    failed = [check for check in report.checks if check.passed is False]
    for check in failed[:_CHECKS]:
        yield ((head(f"{mark_of(check)} {one_line(check.what)}", width), "bad"),)
        for line in check_lines(check)[:4]:
            yield ((head(f"  {visible(line)}", width), "text"),)
    if len(failed) > _CHECKS:
        yield ((f"✖ {quantity(len(failed) - _CHECKS, 'more check')} failed", "bad"),)
    for words in report.unread:
        yield ((head(f"▲ {one_line(words)}", width), "warn"),)
    if report.checks and not failed:
        yield ((f"✔ {quantity(report.passed, 'check')} passed", "ok"),)


def _rule(turns: TurnPair, first: int | None, width: int) -> PairLine:
    words, style = _DIFFERS[turns.differs]
    words = words.format(side=_only(turns)) if not _texts_only(turns) else "different text, no calls"
    here = " · first difference" if turns.number == first else ""
    spans = [
        ("── ", "rule"),
        (f"turn {turns.number}", "title"),
        (here, "strong"),
        (f" · {words}", style),
        (" ", "rule"),
    ]
    used = sum(columns(text) for text, _ in spans)
    spans.append(("─" * max(0, width - used), "rule"))
    return PairLine(tuple(spans), turns.number, True, turns.differs in PARTING)


def _turn_lines(pair: TrialPair, turns: TurnPair, width: int, room: int, opened: bool) -> Iterator[Spans]:
    if not opened and _texts_only(turns):
        texts = _flat(turns.left), _flat(turns.right)
        parting = (n for n, (one, other) in enumerate(zip(*texts, strict=False)) if one != other)
        begin = next(parting, min(map(len, texts)))
        one, other = (list(_from_difference(text, begin, room)) for text in texts)
        yield from _joined(one, other, width)
        return
    if not opened and not begins_open(turns):
        yield ((_summary(turns.left or turns.right, width), "dim"),)
        return
    left, right = _parts(turns.left), _parts(turns.right)
    names = pair.left.name, pair.right.name
    most = _OPEN_LINES if opened else LINES
    sides = (
        list(_side(left, right, names, room, most)) if turns.left is not None else _none(),
        list(_side(right, left, names[::-1], room, most)) if turns.right is not None else _none(),
    )
    yield from _joined(*sides, width)


def _texts_only(turns: TurnPair) -> bool:
    """Whether a turn differs in its text, and neither trial calls anything in it: its calls cannot stand for it."""
    both = (*_parts(turns.left), *_parts(turns.right))
    return turns.differs == "words" and not any(part.kind == "call" for part in both)


def _flat(turn: Turn | None) -> str:
    """What was written in a turn, on one line."""
    return visible(" ".join(" ".join(part.text.split()) for part in _parts(turn)))


def _from_difference(text: str, begin: int, room: int) -> Iterator[Spans]:
    """A text from a few characters before its first difference on, in ``_ROWS`` rows: what is alike is dim, the sign
    stands before the row with the difference. ``begin``: the first character that differs."""
    start = max(0, begin - min(_CONTEXT, room // 3))
    before = ("⋯" if start else "") + text[start:begin]
    rest = text[begin:] or " (ends here)"
    left = max(1, room - 2 - columns(before))
    first = head(rest, left)
    yield (("≠ ", "warn"), (before, "dim"), (first, "strong"))
    rows = _wrap(rest[len(first) :], max(1, room - 3)) if len(rest) > len(first) else []
    for number, row in enumerate(rows[: _ROWS - 1], 2):
        yield (("  ", "dim"), (row + ("…" if number == _ROWS and len(rows) > _ROWS - 1 else ""), "text"))


def _none() -> list[Spans]:
    return [(("(no such turn)", "dim"),)]


def _summary(turn: Turn | None, width: int) -> str:
    """A turn on which both agree as one line: its calls, or the first words."""
    parts = _parts(turn)
    calls = [f"{part.name} {' '.join(part.text.split())}" for part in parts if part.kind == "call"]
    words = " ".join(next((part.text for part in parts if part.kind == "text"), "").split())
    line = visible("  " + ("; ".join(calls) or words or "(empty)"))
    return line if columns(line) <= width else f"{head(line, width - 1)}…"


def _parts(turn: Turn | None) -> tuple[Part, ...]:
    return () if turn is None else tuple(p for p in (*turn.answer, *turn.after) if p.text or p.kind == "call")


def _side(
    parts: Sequence[Part], others: Sequence[Part], names: tuple[str, str], width: int, most: int
) -> Iterator[Spans]:
    """The lines of one side. ``others``: the parts of the other side; ``names``: of this trial and of the other one."""
    for part, other in zip(parts, _partners(parts, others), strict=True):
        lines = _lines_of(part)
        equal = _equal(lines, [] if other is None else _lines_of(other), names)
        if other is not None and part.name != other.name:
            equal[0] = False
        first = next((n for n, same in enumerate(equal) if not same), 0)
        begin = min(max(0, first - 2), max(0, len(lines) - most))
        label = _LABELS[part.kind] + (f"{one_line(part.name)} " if part.kind == "call" else "")
        if begin:
            yield (("  ", "dim"), (f"{label}⋯ {quantity(begin, 'line')}", "dim"))
            label = ""
        shown = 0
        for number in range(begin, len(lines)):
            if shown >= most:
                yield (("  ", "dim"), (f"⋯ {quantity(len(lines) - number, 'more line')}", "dim"))
                break
            gutter = ("  ", "dim") if equal[number] else ("≠ ", "warn")
            style = _STYLES.get(part.kind, "text")
            for row in _wrap(lines[number], max(1, width - 2 - columns(label))):
                if shown >= most:
                    break
                yield (gutter, (label, "strong" if part.kind == "call" else "dim"), (row, style))
                label = " " * columns(label) if part.kind == "result" else ""
                shown += 1


def _lines_of(part: Part) -> list[str]:
    if part.kind == "call" and part.text.count("\n") <= LINES:
        return [" ".join(part.text.split())]
    return part.text.rstrip("\n").split("\n")


def _partners(parts: Sequence[Part], others: Sequence[Part]) -> list[Part | None]:
    """For each part the one of the other side that it is compared with: the n-th of a kind with the n-th."""
    left = list(others)
    found: list[Part | None] = []
    for part in parts:
        other = next((other for other in left if other.kind == part.kind), None)
        if other is not None:
            left.remove(other)
        found.append(other)
    return found


def _equal(lines: Sequence[str], others: Sequence[str], names: tuple[str, str]) -> list[bool]:
    """Whether the other side has each line, in the same order, too."""
    one = [same_in_both(line, names[0]) for line in lines]
    two = [same_in_both(line, names[1]) for line in others]
    if max(len(one), len(two)) > _COMPARED:
        return [one == two] * len(one)
    equal = [False] * len(one)
    for begin, _, size in SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
        equal[begin : begin + size] = [True] * size
    return equal


def _joined(left: Sequence[Spans], right: Sequence[Spans], width: int) -> Iterator[Spans]:
    """Both sides in two columns, or the left one above the right one with the name of its side before each line."""
    if width < TWO_COLUMNS:
        for side, lines in zip(SIDES, (left, right), strict=True):
            for spans in lines:
                if spans and spans[0] == (f"{side} ", "title"):
                    yield spans
                else:
                    yield ((f"{side}▏", "dim"), *spans)
        return
    room = (width - len(_BETWEEN)) // 2
    for one, other in zip_longest(left, right, fillvalue=()):
        used = sum(columns(visible(text)) for text, _ in one)
        yield (*one, (" " * max(0, room - used), "text"), (_BETWEEN, "rule"), *other)


def _wrap(text: str, width: int) -> list[str]:
    """A line in rows of at most ``width`` columns, made safe for a terminal; at least one."""
    line = visible(text.expandtabs(4))
    return [line[start:end] for start, end in wrap_line(line, width)]


def plain_lines(pair: TrialPair, width: int) -> Iterable[str]:
    """The lines without styles, for a script or a terminal."""
    return (line.text for line in pair_lines(pair, width, lambda turns: False))
