"""Two trials of one prompt beside each other: which turns agree, and where they part. Pure.

Turn n stands beside turn n. What a model writes differs nearly always, what it does often only from some turn on: a
turn that calls other tools, or is told something else by them, parts the trials, other words do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Literal

import msgspec

from liverl.model import TrialHead
from liverl.observe.trials.groups import group_of
from liverl.observe.trials.message_parts import Part
from liverl.observe.trials.trajectory import Trajectory
from liverl.observe.trials.turns import Turn

# How the turns of two trials differ: not at all, in words only, in the calls, in what the tools answered, or one of
# the trials has no such turn.
Differs = Literal["", "words", "calls", "results", "missing"]
PARTING: tuple[Differs, ...] = ("calls", "results", "missing")
_SAME_NAME = "\0trial\0"  # in place of a trial's own name, which its prompt and its commands may have
_SHORTEST_NAME = 6  # characters: a shorter name may stand in any text
_COMMANDS = 3  # last ones that are shown
_RESULT_LINES = 12


class TurnPair(msgspec.Struct, frozen=True):
    """Turn ``number`` (from 1) of both trials; None where one has no such turn."""

    number: int
    left: Turn | None
    right: Turn | None
    differs: Differs = ""


class TrialPair(msgspec.Struct, frozen=True):
    """Two trials. ``first``: number of the turn at which they part, see ``PARTING``; None if they do not;
    ``same_prompt``: what they were asked agrees, but for their names; None where one has no turn."""

    left: Trajectory
    right: Trajectory
    turns: tuple[TurnPair, ...]
    first: int | None
    same_prompt: bool | None


class LastCommand(msgspec.Struct, frozen=True):
    """A call of a tool near the end of a trial. ``result``: the last lines of what the tool answered; None: it was not
    answered."""

    turn: int
    name: str
    arguments: str
    result: str | None
    failed: bool = False


def pair_of(left: Trajectory, right: Trajectory) -> TrialPair:
    """The turns of two trials beside each other."""

    def lasts(number: int) -> tuple[bool, bool]:
        return number == len(left.turns), number == len(right.turns)

    turns = tuple(
        TurnPair(number, one, other, _differs(one, other, (left.name, right.name), lasts(number)))
        for number, (one, other) in enumerate(zip_longest(left.turns, right.turns), 1)
    )
    first = next((turn.number for turn in turns if turn.differs in PARTING), None)
    same = None
    if left.turns and right.turns:
        same = _said(left.turns[0].before, left.name) == _said(right.turns[0].before, right.name)
    return TrialPair(left, right, turns, first, same)


def _differs(
    left: Turn | None, right: Turn | None, names: tuple[str, str], last_turns: tuple[bool, bool]
) -> Differs:
    if left is None or right is None:
        return "missing"
    sides = ((left, names[0]), (right, names[1]))
    calls, results, words = (
        [_said([part for part in parts(turn) if part.kind in kinds], name) for turn, name in sides]
        for parts, kinds in (
            (lambda turn: turn.answer, ("call",)),
            (lambda turn: turn.after, ("result", "error")),
            (lambda turn: (*turn.answer, *turn.after), ("system", "user", "text", "reasoning")),
        )
    )
    if calls[0] != calls[1] or left.success != right.success:
        return "calls"
    # What came back for the calls of a last turn is in no later request, so that it is not known.
    if results[0] != results[1] and all(
        known or not last for known, last in zip(results, last_turns, strict=True)
    ):
        return "results"
    return "words" if words[0] != words[1] else ""


def _said(parts: Iterable[Part], name: str) -> list[tuple[str, str, str]]:
    """What parts of a trial say, with the same word for the trial's own name."""
    return [(part.kind, part.name, same_in_both(part.text, name)) for part in parts]


def same_in_both(text: str, name: str) -> str:
    """``text`` of a trial as it is compared: with the same word for the trial's own name."""
    return text.replace(name, _SAME_NAME) if len(name) >= _SHORTEST_NAME else text


def best_and_worst(heads: Iterable[TrialHead]) -> tuple[TrialHead, TrialHead] | None:
    """The trial with the highest and that with the lowest reward of ``heads``, which are of one prompt; if all
    rewards are equal, the one with the fewest and the one with the most turns. None where fewer than two have a
    reward."""
    rewarded = [head for head in heads if head.reward is not None]
    if len(rewarded) < 2:
        return None
    best = _best(rewarded)
    return best, _worst(head for head in rewarded if head is not best)


def opposite(heads: Iterable[TrialHead], path: str) -> tuple[TrialHead, TrialHead] | None:
    """The trial at ``path`` and the other one of its prompt that it is to be compared with, the better one first: the
    best of them, for the best trial itself the worst. None if ``path`` is not among ``heads``, or no other trial of
    its prompt has a reward."""
    every = list(heads)
    own = next((head for head in every if head.path == path), None)
    if own is None:
        return None
    group = [head for head in every if group_of(head) == group_of(own)]
    others = [head for head in group if head.path != path and head.reward is not None]
    if not others:
        return None
    best = _best(others)
    if own.reward is None or (best.reward or 0.0) > own.reward:
        return best, own
    return own, _worst(others)


def _best(heads: Iterable[TrialHead]) -> TrialHead:
    return min(heads, key=lambda head: (-(head.reward or 0.0), head.turns, head.path))


def _worst(heads: Iterable[TrialHead]) -> TrialHead:
    return min(heads, key=lambda head: (head.reward or 0.0, -head.turns, head.path))


def last_commands(turns: Sequence[Turn], most: int = _COMMANDS) -> tuple[LastCommand, ...]:
    """The last calls of tools in ``turns``, the newest last, with the end of what was answered."""
    found: list[LastCommand] = []
    for turn in reversed(turns):
        calls = [part for part in turn.answer if part.kind == "call"]
        answers = [part for part in turn.after if part.kind == "result"]
        by_id = {part.call_id: part for part in answers if part.call_id}
        for place, call in reversed(list(enumerate(calls))):
            answer = by_id.get(call.call_id)
            if answer is None and not by_id and place < len(answers):
                answer = answers[place]
            result = None if answer is None else "\n".join(answer.text.rstrip().split("\n")[-_RESULT_LINES:])
            failed = call.failed or (answer is not None and answer.failed)
            found.append(LastCommand(turn.number, call.name, call.text, result, failed))
            if len(found) == most:
                return tuple(reversed(found))
    return tuple(reversed(found))
