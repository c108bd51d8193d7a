"""Text of others that a terminal would obey, or that nobody would see, in every field that can hold text."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

# A few at a time, at the beginning, so that a narrow column shows them too.
KINDS = {
    "terminal": "\x1b]0;owned\x07\x1b[31m\x9b2J\x08",
    "bidi": "\u202e\u2066\u061c\u200f\u202a\u2069",
    "zero-width": "\u200b\ufeff\u200d\u2060\u00ad\u200e",
    "lines": "\u2028\u2029\x85\r\x0b\x0c\n\x1c",
    "nothing": "\x00\x7f\U000e0041\x1b",
}
EVERY = "".join(KINDS.values())
# With what only a terminal understands: the clipboard, a link, a request, a reset, the other screen, a repeated letter.
ON_A_TERMINAL = (
    "\x1b]52;c;b3duZWQ=\x07\x1b]8;;mailto:owned\x1b\\\x1bP$qm\x1b\\\x1bc\x1b[?1049l\x1b[6n\x1bkowned\x1b\\"
    + EVERY
)
# What must not reach a terminal as a part of a text.
FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_SEQUENCES_OF_OURS = re.compile(
    r"\x1b\[[0-9;:]*m"  # styles
    r"|\x1b\[\??[0-9;<=>$?]*[ -/]*[A-Za-ln-z]"  # cursor, modes
    r"|\x1b\]2;[^\x00-\x1f\x7f-\x9f]*\x07"  # the window's title
    r"|\x1b\]22;[a-z]+\x07"  # the shape of the mouse pointer
    r"|\x1bP=[12]s\x1b\\"  # synchronized output
    r"|\x1b\][0-9]+;\?(?:\x07|\x1b\\)"  # a question for a colour
    r"|\x1b[78=>]|\x1b\([B0]"
)


def hidden_in(output: str) -> list[str]:
    """What is left in the output for a terminal of what it would obey or hide, once our own sequences are taken out;
    each with what stands around it."""
    rest = _SEQUENCES_OF_OURS.sub(_title, output)
    return [
        repr(rest[max(0, m.start() - 30) : m.end() + 30])
        for m in FORBIDDEN.finditer(rest)
        if m[0] not in "\r\n"
    ]


def _title(sequence: re.Match[str]) -> str:
    """What a sequence of ours shows to a person."""
    return sequence[0][4:-1] if sequence[0].startswith("\x1b]2;") else ""


def infect(value: T, bad: str, *, but: tuple[str, ...] = (), kind: Any = None) -> T:
    """The same struct or dataclass with ``bad`` before every text in it, at any depth. The same text becomes the same,
    so references still fit. ``but``: names of fields that stay as they are."""
    if isinstance(value, str):
        return value if kind is not None and not _free(kind) else bad + value  # type: ignore[return-value]
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        hints = get_type_hints(type(value))
        names = [name for name in hints if name in _fields(value) and name not in but]
        changed = {n: infect(getattr(value, n), bad, but=but, kind=hints[n]) for n in names}
        replace: Any = msgspec.structs.replace if isinstance(value, msgspec.Struct) else dataclasses.replace
        return replace(value, **changed)  # type: ignore[no-any-return]
    if isinstance(value, tuple | list):
        return type(value)(infect(item, bad, but=but, kind=kind) for item in value)  # type: ignore[return-value]
    if isinstance(value, dict):
        return {  # type: ignore[return-value]
            infect(k, bad, but=but, kind=kind): infect(v, bad, but=but, kind=kind) for k, v in value.items()
        }
    return value


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(value))


def _free(kind: Any) -> bool:
    """Whether a field of this type holds any text, not one of a few words."""
    if kind is str:
        return True
    if get_origin(kind) is not None and "Literal" in str(get_origin(kind)):
        return False
    return any(_free(part) for part in get_args(kind))
