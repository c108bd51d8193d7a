"""A reversible tokenizer with stable ids: special tokens, pairs of bytes, single bytes.

Ids 0..255 are bytes, 256..65791 pairs of bytes; from 65792 the special tokens follow in the order of
``SPECIALS`` (append only: ids never change their meaning). A tool's name is one token, so the choice of a
tool is exactly one token: the one with the policy's log-probability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from liverl.agents.tools import TOOL_NAMES

SPECIALS: tuple[str, ...] = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    '{"name": "',
    '", "arguments": ',
    "system\n",
    "user\n",
    "assistant\n",
    *TOOL_NAMES,
)
_FIRST_PAIR = 256
_FIRST_SPECIAL = _FIRST_PAIR + 65536
VOCAB_SIZE = _FIRST_SPECIAL + len(SPECIALS)
_SPECIAL_IDS = {piece: _FIRST_SPECIAL + i for i, piece in enumerate(SPECIALS)}
EOS_ID = _SPECIAL_IDS["<|im_end|>"]
TOOL_TOKENS: dict[int, str] = {_SPECIAL_IDS[name]: name for name in TOOL_NAMES}
_SPLIT = re.compile("(" + "|".join(re.escape(s) for s in sorted(SPECIALS, key=len, reverse=True)) + ")")


def encode(text: str) -> list[int]:
    """Return the token ids of ``text``; ``decode(encode(text)) == text`` for strings without lone surrogates."""
    ids: list[int] = []
    for piece in _SPLIT.split(text):
        special = _SPECIAL_IDS.get(piece)
        if special is not None:
            ids.append(special)
            continue
        data = piece.encode()
        ids.extend(_FIRST_PAIR + (high << 8) + low for high, low in zip(data[::2], data[1::2], strict=False))
        if len(data) % 2:
            ids.append(data[-1])
    return ids


@lru_cache(maxsize=4096)
def encode_cached(text: str) -> tuple[int, ...]:
    """Like ``encode``, cached: for parts of a conversation that recur in every turn."""
    return tuple(encode(text))


def token_bytes(token: int) -> bytes:
    """Return the bytes of one token.

    Raises:
        ValueError: the id is not in the vocabulary.
    """
    if 0 <= token < _FIRST_PAIR:
        return bytes((token,))
    if _FIRST_PAIR <= token < _FIRST_SPECIAL:
        return (token - _FIRST_PAIR).to_bytes(2, "big")
    if _FIRST_SPECIAL <= token < VOCAB_SIZE:
        return SPECIALS[token - _FIRST_SPECIAL].encode()
    raise ValueError(f"token id {token} is outside the vocabulary of {VOCAB_SIZE}")


def decode(tokens: Iterable[int]) -> str:
    """Return the text of ``tokens``; incomplete code points become U+FFFD."""
    return b"".join(token_bytes(t) for t in tokens).decode(errors="replace")


def decision(tokens: Sequence[int]) -> tuple[int, str] | None:
    """Return position and name of the first tool-name token, the only choice in a turn; None if there is
    none."""
    for position, token in enumerate(tokens):
        name = TOOL_TOKENS.get(token)
        if name is not None:
            return position, name
    return None
