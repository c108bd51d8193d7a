"""A trajectory as a list of blocks: rules between turns, parts that fold, files. Pure.

A block is cheap: its text is cut into rows only when it is on the screen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from liverl.observe.trials.documents import PROXY_TRAJECTORY
from liverl.observe.trials.ending_words import TRUNCATED
from liverl.observe.trials.message_parts import Part, PartKind
from liverl.observe.trials.pairing import LastCommand, last_commands
from liverl.observe.trials.phases import acts_in
from liverl.observe.trials.trajectory import Trajectory
from liverl.observe.trials.turns import Turn
from liverl.util.plural import plural, quantity
from liverl_tui.text.reward_lines import (
    NOT_RECORDED,
    STANDS_FOR_NONE,
    UNKNOWN,
    check_lines,
    counted,
    mark_of,
    may_be_none,
    parts_words,
    reward_title,
)
from liverl_tui.text.trial_phases import rest_word
from liverl_tui.text.words import count, one_line, size
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.trial_words import replica_name
from liverl_tui.widgets.trajectory.session import KIND_WORDS, session_lines, session_summary
from liverl_tui.widgets.trajectory.text import argument_lines, clean_lines, json_spans

Form = Literal["plain", "json", "arguments"]
ABANDONED = "○ abandoned (the agent disconnected)"
_OPEN_CHECKS = 8  # failed checks that begin open
_COMMAND = 100  # characters of a command's arguments in its label
_FAULTS = 8  # rows with faults that are shown at most
LONG = 12  # lines (or 1200 characters): messages and reasoning from this length on begin closed
_LABELS: dict[PartKind, tuple[str, str]] = {
    "system": ("system", "dim"),
    "user": ("user", "info"),
    "text": ("assistant", "text"),
    "reasoning": ("reasoning", "dim"),
    "call": ("call", "accent"),
    "result": ("result", "text"),
    "error": ("failed", "bad"),
}
KINDS: tuple[PartKind, ...] = ("system", "user", "reasoning", "call", "result")  # those that can be hidden


@dataclass(frozen=True)
class Block:
    """A part of a trajectory that begins on a row of its own. ``key`` stays the same when the trajectory grows.

    ``label``: on its first row; an open block that is ``headless`` begins with its text instead. ``text``: None if
    there is nothing to open.
    """

    key: str
    turn: int  # number of its turn; 0: belongs to none
    label: tuple[Span, ...] = ()
    text: str | None = None
    style: str = "text"
    form: Form = "plain"
    opened: bool = True  # open at the beginning
    summary: str = ""  # what a closed block shows instead of the beginning of its text
    headless: bool = False  # without the label's row while it is open
    rule: bool = False  # a separator above a turn or the files
    passed: bool = False  # a rule of neither: who goes from turn to turn goes past it
    file: str | None = None  # name of a file whose text is read when the block is opened
    fixed: bool = False  # always open

    @property
    def folds(self) -> bool:
        """Whether it can be opened and closed."""
        return (self.text is not None or self.file is not None) and not self.fixed


class Body:
    """The lines of an open block. ``literal``: numbers of lines that are no JSON in a block of JSON."""

    __slots__ = ("form", "lines", "literal", "style")

    def __init__(self, block: Block) -> None:
        text = block.text or ""
        self.literal: frozenset[int] = frozenset()
        if block.form == "arguments":
            self.lines, self.literal = argument_lines(text)
        else:
            self.lines = clean_lines(text)
        self.form, self.style = block.form, block.style

    def spans(self, line: int) -> list[Span]:
        """One line in styles: JSON by token, other text in the block's style."""
        if self.form == "plain" or line in self.literal:
            return [(self.lines[line], self.style)]
        return json_spans(self.lines[line])


def build(
    trajectory: Trajectory,
    *,
    why: Collection[str] = (),
    hidden: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> list[Block]:
    """The blocks of a trajectory. ``why``: sentences that explain why the trial has no tool calls; ``hidden``: kinds
    of parts to leave out; ``names``: replica names by root address; ``files``: texts of opened files by name."""
    blocks = [_note(f"why:{n}", 0, sentence, n == 0) for n, sentence in enumerate(why)]
    if trajectory.note:
        blocks.append(_note("note", 0, trajectory.note))
    if trajectory.overridden:
        asked = ", ".join(trajectory.overridden)
        blocks.append(
            _note("sampling", 0, f"sampling is the trainer's; the agent asked for other values: {asked}")
        )
    if trajectory.session is not None:
        faults = trajectory.session.faults
        blocks += [
            _note(f"fault:{n}", 0, f"{PROXY_TRAJECTORY}: {fault}") for n, fault in enumerate(faults[:_FAULTS])
        ]
        acted = acts_in(trajectory.kind, trajectory.tool_calls, len(trajectory.turns))
        text = "\n".join(session_lines(trajectory.session, rest_word(trajectory.kind, acted=acted)))
        blocks.append(
            Block(
                "session",
                0,
                (("session", "info"),),
                text,
                opened=False,
                summary=session_summary(trajectory.session),
            )
        )
    blocks += reward_blocks(trajectory)
    for turn in trajectory.turns:
        if turn.note:
            blocks.append(
                _note(f"{turn.number}:note", turn.number, f"before turn {turn.number}: {turn.note}")
            )
        blocks += _parts(turn, turn.before, "before", hidden)
        blocks.append(Block(f"{turn.number}:rule", turn.number, _rule(turn, names or {}), rule=True))
        if turn.resembles:
            looks = " and ".join(turn.resembles)
            text = f"no tool call was parsed from this text, which looks like {looks}"
            blocks.append(_note(f"{turn.number}:raw", turn.number, text))
        blocks += _parts(turn, turn.answer, "answer", hidden)
        blocks += _parts(turn, turn.after, "after", hidden)
    if trajectory.torn:
        blocks.append(_note("torn", 0, "the last record is incomplete; its writer died or the disk was full"))
    if trajectory.bad_records:
        blocks.append(_note("bad", 0, f"{quantity(trajectory.bad_records, 'record')} could not be read"))
    if trajectory.files:
        blocks.append(Block("files", 0, (("files of this trial", "title"),), rule=True))
        blocks += [_file(file.name, file.size, files or {}) for file in trajectory.files]
    return blocks


def reward_blocks(trajectory: Trajectory) -> list[Block]:
    """Why the trial got its reward: the parts of the reward, the checks that failed with what was expected and found,
    the others in one block, the end of the verifier's output, the last commands. None while it runs, and of one that
    has neither a reward nor a word of its verifier."""
    report, rewards = trajectory.verifier, trajectory.rewards
    if trajectory.running or (trajectory.dumped and not report.known) or not (rewards or report.known):
        return []
    failed = [check for check in report.checks if check.passed is not True]
    good = bool(report.checks) and not failed
    facts = [fact for fact in (parts_words(rewards), counted(report)) if fact]
    title: list[Span] = [(reward_title(rewards), "title")]
    for fact in facts:
        title += [(" · ", "dim"), (fact, "bad" if report.failed and fact == facts[-1] else "dim")]
    blocks = [Block("reward:rule", 0, tuple(title), rule=True, passed=True)]
    none = may_be_none(rewards, trajectory.outcome, trajectory.exception is not None)
    if none:
        blocks.append(Block("reward:none", 0, text=STANDS_FOR_NONE, style="dim", headless=True, fixed=True))
    for number, check in enumerate(failed):
        style = "bad" if check.passed is False else "dim"
        label: tuple[Span, ...] = ((f"{mark_of(check)} ", style), (one_line(check.what), "strong"))
        text = "\n".join(check_lines(check)) or None
        blocks.append(Block(f"check:{number}", 0, label, text, opened=number < _OPEN_CHECKS))
    passed = [check for check in report.checks if check.passed is True]
    if passed:
        label = (("✔ ", "ok"), (f"{quantity(len(passed), 'check')} passed", "text"))
        text = "\n".join(f"{mark_of(check)} {one_line(check.what)}" for check in passed)
        blocks.append(Block("checks:passed", 0, label, text, opened=False))
    for number, words in enumerate(report.unread):
        key = f"reward:unread:{number}"
        blocks.append(Block(key, 0, text=one_line(words), style="warn", headless=True, fixed=True))
    if report.output:
        label = (("output ", "dim"), (one_line(report.output_file), "text"))
        blocks.append(Block("reward:output", 0, label, report.output, opened=not report.checks))
    if not report.known and not none:
        blocks.append(Block("reward:unknown", 0, text=UNKNOWN, style="dim", headless=True, fixed=True))
    if not good:
        blocks += [
            Block(f"command:{number}", 0, _command_label(command))
            for number, command in enumerate(last_commands(trajectory.turns))
        ]
    return blocks


def _command_label(command: LastCommand) -> tuple[Span, ...]:
    """``command of turn 3: bash {"cmd": "make"} → 2 errors``: one row, as its turn below has the whole of it."""
    words = one_line(" ".join(command.arguments.split()))
    answer = NOT_RECORDED if command.result is None else one_line(command.result.rpartition("\n")[2])
    return (
        (f"  command of turn {command.turn} ", "dim"),
        *((("✖ ", "bad"),) if command.failed else ()),
        (one_line(command.name), "strong"),
        (f" {words[:_COMMAND]}", "text"),
        (f" → {answer or '(empty)'}", "dim"),
    )


def raw_blocks(turn: Turn, text: str) -> list[Block]:
    """The record of one turn as it is in the file. ``text``: that record, as JSON."""
    label = ((f"turn {turn.number}", "title"), (f" · record, {size(turn.size or len(text))}", "dim"))
    return [
        Block("raw:rule", turn.number, label, rule=True),
        Block("raw", turn.number, (("record", "text"),), text, form="json", headless=True),
    ]


def _parts(turn: Turn, parts: tuple[Part, ...], where: str, hidden: Collection[str]) -> list[Block]:
    return [
        _part(part, f"{turn.number}:{where}:{index}", turn)
        for index, part in enumerate(parts)
        if part.kind not in hidden
    ]


def _part(part: Part, key: str, turn: Turn) -> Block:
    word, style = _LABELS[part.kind]
    label: tuple[Span, ...] = ((word, style),)
    if part.kind in ("call", "result") and part.name:
        name = (one_line(part.name), "strong" if part.kind == "call" else "text")
        label = (name,) if part.kind == "call" else ((f"{word} ", "dim"), name)
    if part.failed:
        what = "not a JSON object" if part.kind == "call" else "error"
        label = (("✖ ", "bad"), *label, (f" ({what})", "bad"))
    if part.kind == "error":
        label = ((ABANDONED, "dim"),) if turn.abandoned else (("✖ ", "bad"), *label)
    folded = part.kind in ("call", "result")
    if part.kind in ("system", "user", "reasoning"):
        folded = part.text.count("\n") >= LONG or len(part.text) > LONG * 100
    return Block(
        key,
        turn.number,
        label,
        part.text,
        style="dim" if part.kind in ("system", "reasoning") else "text",
        form="arguments" if part.kind == "call" and not part.failed else "plain",
        opened=not folded,
        headless=part.kind == "text",
    )


def _file(name: str, length: int, texts: Mapping[str, str]) -> Block:
    label: tuple[Span, ...] = ((one_line(name), "text"), (f"  {size(length)}", "dim"))
    return Block(f"file:{name}", 0, label, texts.get(name), opened=False, file=name)


def _note(key: str, turn: int, text: str, no_tools: bool = False) -> Block:
    text, style = (f"✖ NO TOOLS: {text}", "alarm") if no_tools else (f"▲ {text}", "warn")
    return Block(key, turn, text=one_line(text), style=style, headless=True, fixed=True)


def _rule(turn: Turn, names: Mapping[str, str]) -> tuple[Span, ...]:
    """``turn 3 · assistant · 900 → 412 tokens · 1.2 s · finish tool_calls · r0``"""
    facts: list[Span] = [("assistant", "dim")]
    if turn.kind not in ("", "main"):
        facts.append((one_line(KIND_WORDS.get(turn.kind, turn.kind)), "info"))
    if turn.completion_tokens is not None:
        prompt = f"{count(turn.prompt_tokens)} → " if turn.prompt_tokens is not None else ""
        facts.append((f"{prompt}{turn.completion_tokens} {plural(turn.completion_tokens, 'token')}", "dim"))
    if turn.seconds is not None:
        facts.append((f"{turn.seconds:.1f} s", "dim"))
    if turn.abandoned:
        facts.append((ABANDONED, "dim"))
    elif not turn.success:
        facts.append(("✖ failed", "bad"))
    elif turn.finish_reason in TRUNCATED:
        facts.append((f"▲ finish {turn.finish_reason}: cut off", "warn"))
    elif turn.finish_reason is not None:
        facts.append((f"finish {one_line(turn.finish_reason)}", "dim"))
    if turn.replica:
        facts.append((one_line(replica_name(turn.replica, names)), "dim"))
    if turn.moved_from:
        facts.append((f"moved from {one_line(replica_name(turn.moved_from, names))}", "warn"))
    spans: list[Span] = [(f"turn {turn.number}", "title")]
    for fact in facts:
        spans += [(" · ", "dim"), fact]
    return tuple(spans)


# -- rows


def head_row(block: Block, width: int, opened: bool) -> Row:
    """The first row of a block. That of a closed block has the beginning of its text, and its length."""
    if block.rule:
        row = Row(("── ", "rule"), *block.label, (" ", "rule"))
        return row.add("─" * max(0, width - len(row.text)), "rule")
    if not block.folds:
        return Row(*block.label)
    row = Row(("▾ " if opened else "▸ ", "dim"), *block.label)
    if opened or block.text is None:
        return row
    lines = block.text.count("\n") + (not block.text.endswith("\n"))
    length = f" ({lines} {plural(lines, 'line')}, {size(len(block.text))})"
    room = width - len(row.text) - len(length) - 1
    begin = block.summary or one_line(" ".join(block.text[: 4 * width].split()))
    if block.form == "arguments":
        begin = begin.replace("{ ", "{", 1).removesuffix(" }") + "}" * begin.endswith(" }")
    if room > 0:
        row.add(" ").add(fit(begin, min(room, len(begin))), "dim")
    return row.add(length, "dim")
