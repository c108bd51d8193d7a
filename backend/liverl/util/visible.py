"""Makes characters visible that a terminal would obey, or that nobody would see. Pure.

Text that this program did not write (logs, answers of models, names, paths, command lines, error messages) may hold
characters that move the cursor, reverse the order of what stands beside them, or have no width. Whatever prints such
text passes it through ``visible``.
"""

from __future__ import annotations

import re

from liverl.util.late_pattern import late_pattern

# Unicode's categories Cc (control), Cf (format: bidirectional, zero-width), Cs (surrogates: bytes of a path that are
# not UTF-8), Zl and Zp (line and paragraph separator).
_BEYOND = (
    "\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
_ANY = late_pattern(f"[\x00-\x1f{_BEYOND}]")
_IN_LINES = late_pattern(f"[\x00-\x08\x0b-\x1f{_BEYOND}]")
_IN_JSON = late_pattern(f"[{_BEYOND}]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str, *, lines: bool = False) -> str:
    r"""``text`` with its control, bidirectional and zero-width characters as escapes: ``\x1b``, ``\u202e``,
    ``\U000e0041``; Python's notation. ``lines``: newlines and tabs stay as they are.

    A backslash is not doubled, so the result cannot be converted back. Text without such characters is returned as it
    is.
    """
    if text.isprintable():
        return text
    return (_IN_LINES if lines else _ANY).sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if code < 0x100:
        return _NAMED.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_json(document: str) -> str:
    r"""A JSON document with the same characters as JSON's own escapes (``\u202e``). It means the same to a parser."""
    return _IN_JSON.sub(_escape_json, document) if not document.isascii() or "\x7f" in document else document


def _escape_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
