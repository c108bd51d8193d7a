"""Text that JSON and tokenizers take: without lone surrogates.

Python's strings can hold halves of UTF-16 pairs: from bytes of a file's name that are no UTF-8, or from an escape
like ``\\ud83d`` in somebody's JSON. UTF-8 has no form for them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from liverl.util.late_pattern import late_pattern

_SURROGATE = late_pattern("[\ud800-\udfff]")


def without_surrogates(value: Any, mark: str = "?") -> Any:
    """``value``, which may hold lists, tuples and mappings, with ``mark`` for each lone surrogate in its texts. Both
    halves of a pair become their character."""
    if isinstance(value, str):
        if not _SURROGATE.search(value):
            return value
        paired = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return _SURROGATE.sub(mark, paired)
    if isinstance(value, (list, tuple)):
        return [without_surrogates(item, mark) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key, mark): without_surrogates(item, mark) for key, item in value.items()}
    return value


def encode_json(value: Any) -> bytes:
    """``value`` as JSON, with ``?`` for lone surrogates; NaN and infinities become null.

    Raises:
        TypeError: it cannot be encoded.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(msgspec.to_builtins(value)))
