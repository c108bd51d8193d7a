"""Parses colour sequences (ECMA-48 SGR) into runs of text with one style each. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from liverl.logs.text import colour_parts

Colour = int | tuple[int, int, int] | None  # index 0..255 of the terminal's palette, or (red, green, blue)


class TextStyle(NamedTuple):
    """Style of a run of text. A colour of ``None`` is the terminal's default."""

    fg: Colour = None
    bg: Colour = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False


PLAIN = TextStyle()
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",)}


def runs(line: str) -> list[tuple[str, TextStyle]]:
    """Split one line into (text, style) runs with control characters visible; tabs are kept."""
    parts = colour_parts(line)
    if len(parts) == 1:
        return [(parts[0], PLAIN)] if parts[0] else []
    styled: list[tuple[str, TextStyle]] = []
    look = PLAIN
    for place, part in enumerate(parts):
        if place % 2:
            look = _apply(look, part[2:-1])
        elif part:
            styled.append((part, look))
    return styled


def coloured(line: str) -> str:
    """Return ``line`` for a terminal: with its colours, reset at the end, and nothing else that a terminal obeys."""
    return "".join(
        text if style == PLAIN else f"\x1b[{_codes(style)}m{text}\x1b[0m" for text, style in runs(line)
    )


@lru_cache(maxsize=1024)
def _codes(style: TextStyle) -> str:
    """The parameters of the colour sequence (SGR) that sets ``style`` on a terminal with none."""
    codes = [str(code) for code, name in _ON.items() if getattr(style, name)]
    for colour, base in ((style.fg, 38), (style.bg, 48)):
        if isinstance(colour, int):
            codes.append(f"{base - 8 + colour}" if colour < 8 else f"{base};5;{colour}")
        elif colour is not None:
            codes.append(f"{base};2;{';'.join(map(str, colour))}")
    return ";".join(codes)


@lru_cache(maxsize=1024)
def _apply(look: TextStyle, parameters: str) -> TextStyle:
    codes = [int(code) if code.isdigit() else 0 for code in parameters.replace(":", ";").split(";")]
    place = 0
    while place < len(codes):
        code = codes[place]
        place += 1
        if code == 0:
            look = PLAIN
        elif code in _ON:
            look = look._replace(**{_ON[code]: True})
        elif code in _OFF:
            look = look._replace(**dict.fromkeys(_OFF[code], False))
        elif code in (38, 48):
            colour, place = _extended(codes, place)
            look = look._replace(fg=colour) if code == 38 else look._replace(bg=colour)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            look = look._replace(fg=code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            look = look._replace(bg=code - 40 if code < 100 else code - 92)
        elif code == 39:
            look = look._replace(fg=None)
        elif code == 49:
            look = look._replace(bg=None)
    return look


def _extended(codes: list[int], place: int) -> tuple[Colour, int]:
    """Return the colour that follows code 38 or 48, and the index of the next code."""
    kind = codes[place] if place < len(codes) else None
    if kind == 5 and place + 1 < len(codes):
        return min(255, codes[place + 1]), place + 2
    if kind == 2 and place + 3 < len(codes):
        red, green, blue = (min(255, code) for code in codes[place + 1 : place + 4])
        return (red, green, blue), place + 4
    return None, len(codes)
