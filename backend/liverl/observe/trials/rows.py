"""The rows of tokens in ``proxy_trajectory.json``, ours or the reference's, and the rules that they must keep. Pure.

A row is an object with ``initial_prompt_token_len``, ``traj_acc_ids`` (prompt and all behind it),
``traj_response_mask`` (1: sampled) and ``traj_response_logprobs``, the last two behind the prompt only. Ours has
several, in ``rows``; the last of them has its lists on top of the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from liverl.observe.trials.moments import finite, whole
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder
from liverl.util.plural import quantity

PROMPT, IDS, MASK, LOGPROBS = (
    "initial_prompt_token_len",
    "traj_acc_ids",
    "traj_response_mask",
    "traj_response_logprobs",
)
_FIELDS = (PROMPT, IDS, MASK, LOGPROBS)
# A reply of at least so many tokens whose log-probabilities are all exactly 0.0 was filled with zeros. Shorter ones may
# be certain (an end token, `ok`), and so may long runs within a reply (the syntax of a call); a whole reply never was,
# in 640 trials of the default run, where all tokens but one in each reply are certain.
FILLED = 8


# Flags of a trial by the rules that its rows break.
ZERO_LOGPROBS, MASK_MISMATCH, BAD_ROWS = "zero_logprobs", "mask_mismatch", "bad_rows"
UNREADABLE = "unreadable"  # flag of a trial whose trajectory document says nothing
DAMAGED = frozenset((ZERO_LOGPROBS, MASK_MISMATCH, UNREADABLE))


class Fault(NamedTuple):
    """A rule that a row breaks: the flag of its trial, and what was found."""

    flag: str
    words: str


class Rows(msgspec.Struct, frozen=True):
    """``kinds``: kind -> number of rows; ``sampled``: kind -> tokens with mask 1; ``faults``: rules that rows break, in
    words; ``flags``: what to call them, each once."""

    kinds: dict[str, int] = {}
    sampled: dict[str, int] = {}
    faults: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def read_rows(document: Mapping[str, Any]) -> Rows:
    """The rows of a trajectory document; none of one that has only messages."""
    rows = row_objects(document)
    kinds: Counter[str] = Counter()
    sampled: Counter[str] = Counter()
    faults: list[Fault] = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            faults.append(Fault(BAD_ROWS, f"row {number}: found {_kind_of(row)}, expected an object"))
            continue
        kind = kind_of_row(row)
        kinds[kind] += 1
        mask = row.get(MASK)
        sampled[kind] += sum(1 for bit in mask if bit) if isinstance(mask, list) else 0
        where = f"row {number} of {len(rows)} ({kind})" if len(rows) > 1 else "its row"
        faults += [fault._replace(words=f"{where}: {fault.words}") for fault in row_faults(row)]
    return Rows(
        dict(kinds),
        dict(sampled),
        tuple(fault.words for fault in faults),
        tuple(dict.fromkeys(fault.flag for fault in faults)),
    )


def row_objects(document: Mapping[str, Any]) -> list[Any]:
    """The rows of a trajectory document, each with its lists; what is no object is left as it is. Empty for one that
    has only messages."""
    several = document.get("rows")
    if not isinstance(several, list):
        return [document] if any(name in document for name in (IDS, MASK, LOGPROBS)) else []
    rows = list(several)
    if rows and isinstance(rows[-1], dict) and not any(name in rows[-1] for name in _FIELDS):
        rows[-1] = {**document, **rows[-1]}  # as the sessions write it: its lists are on top
    return rows


def kind_of_row(row: Mapping[str, Any]) -> str:
    """``kind`` of a row; those of the reference have none, and are of the conversation itself."""
    kind = row.get("kind")
    return kind if isinstance(kind, str) else "main"


def row_faults(row: Mapping[str, Any]) -> Iterator[Fault]:
    """The rules that a row breaks."""
    prompt = whole(row.get(PROMPT))
    if prompt is None or prompt < 0:
        yield Fault(BAD_ROWS, f"{PROMPT} is {_found(row, PROMPT)}, expected a number of tokens")
        return
    lists: list[list[Any]] = []
    for name in (IDS, MASK, LOGPROBS):
        values = row.get(name)
        if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
            yield Fault(BAD_ROWS, f"{name} is {_found(row, name)}, expected a list of numbers")
            return
        lists.append(values)
    ids, mask, logprobs = lists
    behind = len(ids) - prompt
    length = ""
    if behind < 0:
        length = f"{PROMPT} is {prompt}, but {IDS} has only {len(ids)} ids"
    elif len(mask) != behind:
        length = f"{MASK} has {len(mask)} entries, expected {behind}: one for each id behind the prompt"
    elif len(logprobs) != len(mask):
        length = f"{LOGPROBS} has {len(logprobs)} entries, expected {len(mask)}: as many as the mask"
    if length:  # what belongs to which token is not known, so nothing else can be said
        yield Fault(MASK_MISMATCH, length)
        return
    wrong = sum(1 for bit, value in zip(mask, logprobs, strict=True) if not bit and value != 0.0)
    if wrong:
        yield Fault(MASK_MISMATCH, f"{wrong} tokens with mask 0 have a log-probability, expected 0.0")
    filled = [length for length in _filled(mask, logprobs) if length >= FILLED]
    if filled:
        replies = quantity(len(filled), "reply", "replies")
        yield Fault(
            ZERO_LOGPROBS,
            f"{replies} ({sum(filled)} tokens) have log-probability 0.0 throughout: filled with zeros instead of "
            "measured, which training treats as tokens with probability 1",
        )


def _filled(mask: Sequence[Any], logprobs: Sequence[Any]) -> Iterator[int]:
    """The lengths of the sampled replies, in tokens, whose log-probabilities are all 0.0."""
    length, zero = 0, True
    for bit, value in zip(mask, logprobs, strict=True):
        if bit:
            length, zero = length + 1, zero and value == 0.0
            continue
        if length and zero:
            yield length
        length, zero = 0, True
    if length and zero:
        yield length


def _found(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return "missing"
    value = row[name]
    if isinstance(value, list):
        odd = next((item for item in value if not isinstance(item, int | float)), None)
        return f"a list with {_kind_of(odd)}"
    return str(value) if isinstance(value, int | float) and finite(value) is not None else _kind_of(value)


def _kind_of(value: object) -> str:
    names = ((str, "a text"), (list, "a list"), (dict, "an object"), (int | float, "a number"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


class _Lists(msgspec.Struct):
    kind: Any = msgspec.UNSET
    initial_prompt_token_len: Any = msgspec.UNSET
    traj_acc_ids: Any = msgspec.UNSET
    traj_response_mask: Any = msgspec.UNSET
    traj_response_logprobs: Any = msgspec.UNSET
    rows: Any = msgspec.UNSET


_lists = JsonDecoder(_Lists)


def flags_of(data: bytes) -> tuple[str, ...]:
    """The flags of a trajectory document by its rows, without its messages, over which this passes quickly. None of a
    document without rows, nor of one that is no JSON object: what reads its turns says that."""
    try:
        document = _lists.decode(data)
    except BAD_JSON:
        return ()
    given = {name: getattr(document, name) for name in document.__struct_fields__}
    return read_rows({name: value for name, value in given.items() if value is not msgspec.UNSET}).flags
