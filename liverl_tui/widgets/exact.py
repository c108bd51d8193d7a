"""Send the cells that changed, and no others.

Textual's own partial update sends each changed region from the left edge of its widget on, and every piece of
text with its whole style before and a reset behind. A digit at the end of a line of 120 columns then costs the
whole line. Here a region is sent by itself, and of a style what differs from the text before it. Measured on the
dashboard at 200x50 with new numbers in every row twice a second: a fifth of the bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rich.color import ColorSystem
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.strip import Strip


class _Codes(NamedTuple):
    """The codes of one style, as a terminal takes them."""

    attributes: tuple[str, ...]
    foreground: str
    background: str


@lru_cache(maxsize=1024)
def _parse(codes: str) -> _Codes:
    """``1;38;2;255;0;0;49`` in its three parts."""
    attributes, foreground, background = [], "39", "49"
    left = codes.split(";") if codes else []
    while left:
        code = left.pop(0)
        if code in ("38", "48"):
            size = 4 if left and left[0] == "2" else 2
            colour = ";".join((code, *left[:size]))
            left = left[size:]
            if code == "38":
                foreground = colour
            else:
                background = colour
        elif len(code) > 1 and code[:-1] in ("3", "9"):
            foreground = code
        elif len(code) > 1 and code[:-1] in ("4", "10"):
            background = code
        else:
            attributes.append(code)
    return _Codes(tuple(attributes), foreground, background)


@lru_cache(maxsize=4096)
def transition(before: str, after: str) -> str:
    """What turns text styled ``before`` into text styled ``after``; both as the codes between ``ESC[`` and ``m``."""
    if before == after:
        return ""
    if not after:
        return "\x1b[0m"
    old, new = _parse(before), _parse(after)
    if old.attributes != new.attributes:
        return f"\x1b[0;{after}m"
    codes = [n for o, n in ((old.foreground, new.foreground), (old.background, new.background)) if o != n]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


class ExactUpdate(ChopsUpdate):
    """Draws the same cells as its base."""

    def render_segments(self, console: Console) -> str:
        colours = console._color_system or ColorSystem.TRUECOLOR
        written: list[str] = []
        style_now = ""
        for y, start, end in self.spans:
            for chop_end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                left, right = max(x, start), min(chop_end, end)
                if strip is None or left >= right:
                    continue
                written.append(f"\x1b[{y + 1};{left + 1}H")
                for text, style, _ in strip.crop(left - x, right - x):
                    if style is not None and style.link:
                        written += [transition(style_now, ""), style.render(text, color_system=colours)]
                        style_now = ""
                        continue
                    codes = "" if style is None else Strip.render_ansi(style, colours)
                    written += [transition(style_now, codes), text]
                    style_now = codes
        written.append(transition(style_now, ""))
        return "".join(written)


class ExactCompositor(Compositor):
    """Put in the place of a screen's own compositor."""

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        return None if update is None else ExactUpdate(update.chops, update.spans, update.chop_ends)
