"""The tokens of a trial's rows, one by one: id, whether it was sampled, its log-probability, its reply and turn. Pure.

A row may have 10^5 tokens: it is kept as its lists, and tokens are made for a window of it (``TokenRow.window``).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from liverl.observe.trials.rows import (
    FILLED,
    IDS,
    LOGPROBS,
    MASK,
    PROMPT,
    kind_of_row,
    row_faults,
    row_objects,
)
from liverl.observe.trials.turns import Turn

MOST = 1_000_000  # ids of a row; the longest contexts of models
_MOST_ID = (1 << 31) - 1
_ROUNDING = 1e-3  # a log-probability that is no more than this above 0 was rounded
_LARGEST = 1e30  # of a log-probability, or of a bit of the mask: sums of these are numbers, too
# Why rows other than the conversation's own are rows of their own (``sessions.segments``).
SPLITS = {
    "main": "",
    "rewrite": "the history before it was changed (compaction, or an edit), so it could not go on in the row before",
    "sub": "a conversation of a sub-agent, beside the trial's own",
    "aside": "a single reply beside the conversation",
}
# Facts on tokens that no file of a trial has.
NOT_RECORDED = ("entropy", "trainer_logprob")


class Reply(msgspec.Struct, frozen=True):
    """Tokens that were sampled in one piece: ``begin`` to ``end`` of the row's ids. ``measured``: its
    log-probabilities are no filling; ``turn``: its number in the trial, None: not known; ``healed``: see ``Turn``."""

    begin: int
    end: int
    measured: bool
    turn: int | None = None
    healed: bool = False


class Token(msgspec.Struct, frozen=True):
    """``index``: in its row, from 0. ``sampled``: None where the row does not say. ``logprob``: natural, of the engine
    that sampled it; None where nothing was measured. ``reply``: the number of the reply in its row, from 1, that it is
    of, or that comes next; 0: none does. ``turn``: that reply's. ``version``: of the weights; None: not known."""

    index: int
    id: int
    sampled: bool | None
    logprob: float | None
    reply: int
    turn: int | None
    version: int | None

    @property
    def probability(self) -> float | None:
        """0 to 1; None without a log-probability, or with one that is none."""
        if self.logprob is None or self.logprob > _ROUNDING:
            return None
        return math.exp(min(0.0, self.logprob))


class TokenRow(msgspec.Struct, frozen=True):
    """A row. ``number``: from 1; ``why``: why it is a row of its own, "" for the conversation's first; ``prompt``: how
    many of ``ids`` came before the first reply; ``mask``, ``logprobs``: behind the prompt, None where they are missing
    or do not fit; ``versions``: (version, sampled tokens) in sequence; ``faults``: in words."""

    number: int
    kind: str
    why: str
    prompt: int
    ids: Sequence[int]
    mask: Sequence[bool] | None
    logprobs: Sequence[float] | None
    versions: tuple[tuple[int | None, int], ...] = ()
    replies: tuple[Reply, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def sampled(self) -> int:
        """Number of sampled tokens."""
        return sum(reply.end - reply.begin for reply in self.replies)

    def window(self, begin: int, count: int) -> list[Token]:
        """At most ``count`` tokens from index ``begin`` on."""
        begin = max(0, begin)
        ends = [reply.end for reply in self.replies]
        counts = [reply.end - reply.begin for reply in self.replies]
        before = [0, *accumulate(counts)]  # sampled tokens before each reply
        borders = list(accumulate(count for _, count in self.versions))
        tokens = []
        for index in range(begin, min(len(self.ids), begin + max(0, count))):
            at = bisect_right(ends, index)
            reply = self.replies[at] if at < len(self.replies) else None
            sampled = None if self.mask is None and index >= self.prompt else False
            logprob = version = None
            if reply is not None and index >= reply.begin:
                sampled = True
                logprob = self.logprob(index, reply)
                run = bisect_right(borders, before[at] + index - reply.begin)
                version = self.versions[run][0] if run < len(self.versions) else None
            number, turn = (0, None) if reply is None else (at + 1, reply.turn)
            tokens.append(Token(index, self.ids[index], sampled, logprob, number, turn, version))
        return tokens

    def logprob(self, index: int, reply: Reply) -> float | None:
        """Of a token of ``reply``; None where it was not measured."""
        return self.logprobs[index - self.prompt] if self.logprobs is not None and reply.measured else None

    def worst(self, count: int) -> list[int]:
        """The indexes of the ``count`` least likely sampled tokens, the least likely first; fewer if fewer were
        measured."""
        known = (
            (value, index)
            for reply in self.replies
            for index in range(reply.begin, reply.end)
            if (value := self.logprob(index, reply)) is not None
        )
        return [index for _, index in heapq.nsmallest(count, known)]

    @property
    def mean_logprob(self) -> float | None:
        """Of the sampled tokens that were measured; None without any."""
        values = [
            value
            for reply in self.replies
            for index in range(reply.begin, reply.end)
            if (value := self.logprob(index, reply)) is not None
        ]
        return math.fsum(values) / len(values) if values else None

    @property
    def missing(self) -> str:
        """Why tokens of this row have no log-probability; "" if all that were sampled have one."""
        if self.mask is None:
            return "which tokens were sampled is not recorded, nor are log-probabilities"
        if self.logprobs is None:
            return "log-probabilities are not recorded"
        filled = [reply for reply in self.replies if not reply.measured]
        if filled and len(filled) == len(self.replies):
            return "log-probabilities were filled with zeros instead of measured"
        if filled:
            return f"log-probabilities of {len(filled)} of {len(self.replies)} replies were filled with zeros"
        return "" if self.replies else "no token of it was sampled"


class TokenRows(msgspec.Struct, frozen=True):
    """``rows``: those that have ids; ``note``: what is missing, in words, "" if nothing is."""

    rows: tuple[TokenRow, ...] = ()
    note: str = ""


def token_rows(document: Mapping[str, Any], turns: Sequence[Turn] = ()) -> TokenRows:
    """The rows of a trajectory document. ``turns``: of the trial, from which the numbers of turns are taken where their
    lengths agree with those of a row's replies."""
    rows, notes = [], []
    found = row_objects(document)
    for number, value in enumerate(found, 1):
        row = _row(value, number) if isinstance(value, dict) else None
        if row is None:
            notes.append(f"row {number} of {len(found)}: {_why_no_ids(value)}")
            continue
        rows.append(row)
    if not found:
        notes.append("it has messages, but no tokens")
    return TokenRows(_placed(rows, turns), "; ".join(notes))


def _row(row: Mapping[str, Any], number: int) -> TokenRow | None:
    """A row as far as it can be used; None without ids."""
    ids = row.get(IDS)
    if not isinstance(ids, list) or len(ids) > MOST or not all(map(_is_id, ids)):
        return None
    faults = tuple(fault.words for fault in row_faults(row))
    prompt = row.get(PROMPT)
    known = isinstance(prompt, int) and not isinstance(prompt, bool) and 0 <= prompt <= len(ids)
    start = prompt if known and isinstance(prompt, int) else 0
    behind = len(ids) - start if known else -1
    mask, logprobs = (_numbers(row.get(name), behind) for name in (MASK, LOGPROBS))
    bits = None if mask is None else [bool(bit) for bit in mask]
    logprobs = None if bits is None else logprobs
    kind = kind_of_row(row)
    return TokenRow(
        number=number,
        kind=kind,
        why=SPLITS.get(kind, ""),
        prompt=start,
        ids=ids,
        mask=bits,
        logprobs=logprobs,
        versions=_versions(row.get("policy_versions")),
        replies=tuple(_replies(bits or [], logprobs, start)),
        faults=faults,
    )


def _why_no_ids(row: object) -> str:
    """Why a row has no ids that can be shown."""
    if not isinstance(row, dict):
        return "found no object, expected one"
    ids = row.get(IDS)
    if not isinstance(ids, list):
        return f"{IDS} is {'no list' if IDS in row else 'missing'}, expected a list of ids"
    if len(ids) > MOST:
        return f"{IDS} has {len(ids):,} ids; rows of {MOST:,} at most are shown"
    odd = next(value for value in ids if not _is_id(value))
    return f"{IDS} has {str(odd)[:20]}, expected ids from 0 to {_MOST_ID}"


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST_ID


def _replies(mask: Sequence[bool], logprobs: Sequence[float] | None, prompt: int) -> list[Reply]:
    replies, begin = [], None
    for at, bit in enumerate((*mask, False)):
        if bit and begin is None:
            begin = at
        elif not bit and begin is not None:
            filled = logprobs is not None and at - begin >= FILLED and not any(logprobs[begin:at])
            replies.append(Reply(prompt + begin, prompt + at, not filled))
            begin = None
    return replies


def _numbers(values: object, count: int) -> list[Any] | None:
    """A list of ``count`` numbers; None if it is none, or if one is too large for what it is."""
    if not isinstance(values, list) or len(values) != count:
        return None
    fits = all(isinstance(value, int | float) and abs(value) <= _LARGEST for value in values)
    return [float(value) for value in values] if fits else None


def _versions(value: object) -> tuple[tuple[int | None, int], ...]:
    """``policy_versions`` of a row; empty if they have another form."""
    if not isinstance(value, list):
        return ()
    pairs: list[tuple[int | None, int]] = []
    for each in value:
        if not (isinstance(each, list) and len(each) == 2):
            return ()
        version, count = each
        if not (version is None or type(version) is int) or type(count) is not int or count < 0:
            return ()
        pairs.append((version, count))
    return tuple(pairs)


def _placed(rows: Sequence[TokenRow], turns: Sequence[Turn]) -> tuple[TokenRow, ...]:
    """The rows with the numbers of the trial's turns: where one sequence of turns, and only one, has as many tokens
    in each as the replies of the row."""
    segments = _segments(turns)
    placed = []
    for row in rows:
        lengths = [reply.end - reply.begin for reply in row.replies]
        fitting = [segment for segment in segments if _fits(lengths, segment)]
        if lengths and len(fitting) == 1:
            replies = tuple(
                msgspec.structs.replace(reply, turn=turn.number, healed=turn.healed)
                for reply, turn in zip(row.replies, fitting[0], strict=False)
            )
            row = msgspec.structs.replace(row, replies=replies)
        placed.append(row)
    return tuple(placed)


def _segments(turns: Sequence[Turn]) -> list[list[Turn]]:
    """The turns by rows, as far as their records say: one that opens none continues the newest of its kind."""
    segments: list[list[Turn]] = []
    newest: dict[str, list[Turn]] = {}
    for turn in turns:
        if not turn.success or not turn.kind or turn.late:
            continue
        if turn.opens or turn.kind not in newest:
            newest[turn.kind] = []
            segments.append(newest[turn.kind])
        newest[turn.kind].append(turn)
    return segments


def _fits(lengths: Sequence[int], segment: Sequence[Turn]) -> bool:
    """Whether these turns may have written replies of these lengths: a row may be cut at its limit, so that it has
    fewer replies, and less of the last one."""
    if not lengths or len(lengths) > len(segment):
        return False
    told = [turn.completion_tokens for turn in segment[: len(lengths)]]
    last = told[-1]
    return told[:-1] == list(lengths[:-1]) and last is not None and lengths[-1] <= last


def next_begin(row: TokenRow, index: int, by: int) -> int | None:
    """Where the next reply (``by`` 1) or the one before (-1) begins, seen from ``index``; None if there is none."""
    begins = [reply.begin for reply in row.replies]
    at = bisect_right(begins, index) if by > 0 else bisect_left(begins, index) - 1
    return begins[at] if 0 <= at < len(begins) else None
