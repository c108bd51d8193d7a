"""What a JSON body may be, beside its bytes: how deep, how many values, which numbers. Looked at before it is parsed.

A parser recurses with each level, makes an object of each value, and turns a number of any length into one that nothing
can be computed with. LiteLLM's runner loads this file by its path, as ``http_limits``: the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100  # nested lists and objects; a tool's schema has about ten
MAX_VALUES = 200_000  # of a chat request: its messages, parts, calls and schemas
MAX_TOKEN_VALUES = 4_000_000  # of a request with token ids
MAX_NUMBER = 100  # digits of a number in sequence; an exact float has at most 17
MAX_EXPONENT = 300  # a float has at most 308

_BRACKETS = re.compile(rb"[\[\]{}]+")
_EXPONENT = re.compile(rb"[eE]\+?0*(?:[1-9][0-9]{3}|[4-9][0-9]{2}|3[1-9][0-9]|30[1-9])")
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes(0x30 if chr(byte).isdecimal() and byte < 0x80 else 0x20 for byte in range(256))


class JsonRefused(ValueError):
    """A body is no JSON that is accepted; the message says why in one sentence."""


def check_json(data: bytes, most_values: int = MAX_VALUES) -> int:
    """Check a JSON document that was not parsed yet, in a time that grows with its bytes only; return how many values
    it has, at most. What is no JSON at all is left to the parser.

    Raises:
        JsonRefused: it is nested deeper than ``MAX_DEPTH``, has more than ``most_values`` values, or a number that no
            float can be.
    """
    bare = _without_strings(data, most_values)
    opened = bare.count(b"[") + bare.count(b"{")
    values = bare.count(b",") + opened
    _require_few(values, most_values)
    if opened > MAX_DEPTH and not _is_shallow(bare):
        _require_shallow(bare)
    if b"0" * (MAX_NUMBER + 1) in bare.translate(_DIGITS):
        raise JsonRefused(f"the request body has a number of more than {MAX_NUMBER} digits")
    if _EXPONENT.search(bare):
        raise JsonRefused(f"the request body has a number with an exponent above {MAX_EXPONENT}")
    return values


def _without_strings(data: bytes, most_values: int) -> bytes:
    """The document without the content of its strings, which is no structure."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    _require_few(data.count(b'"') // 4, most_values)  # each value may have a key: two strings, four quotes
    return b" ".join(data.split(b'"')[::2])


def _is_shallow(bare: bytes) -> bool:
    """Whether brackets that are closed at once, which are removed again and again, are all that there are: an ordinary
    body has ten levels or so, and this takes a tenth of the time of counting each bracket."""
    left = bare.translate(_ONE_KIND, _NO_BRACKET)
    for _ in range(MAX_DEPTH):
        if not left:
            return True
        shorter = left.replace(b"[]", b"")
        if len(shorter) == len(left):
            return False
        left = shorter
    return not left


def _require_shallow(bare: bytes) -> None:
    depth = 0
    for run in _BRACKETS.findall(bare):
        for bracket in run:
            depth += _STEP[bracket]
            if depth > MAX_DEPTH:
                raise JsonRefused(f"the request body is nested deeper than {MAX_DEPTH} levels")


def _require_few(values: int, most: int) -> None:
    if values > most:
        raise JsonRefused(f"the request body has {values:,} values, more than {most:,}")


def letters_of(body: Mapping[str, Any]) -> int:
    """The letters of a chat request that its prompt is made of: its texts, its calls and its tools; no images."""
    count, left = 0, [body.get(name) for name in ("messages", "system", "prompt", "tools")]
    while left:
        value = left.pop()
        if isinstance(value, str):
            count += len(value)
        elif isinstance(value, Mapping):
            left.extend(item for name, item in value.items() if name not in _NO_TEXT)
        elif isinstance(value, list):
            left.extend(value)
    return count


_NO_TEXT = frozenset(
    {"image_url", "input_audio", "file", "source", "video_url", "audio_url"}
)  # data in letters
