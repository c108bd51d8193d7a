"""Hides what looks like a secret in a picture of the screen, which people attach to reports. Pure."""

from __future__ import annotations

import html
import re
from itertools import takewhile

from liverl.util import redact

_TEXT = re.compile(r'<text [^>]*clip-path="url\(#[^"]*?(?P<line>line-\d+)\)"[^>]*>(?P<text>[^<]*)(?=</text>)')
_HIDDEN = "*"
_FAMILY = re.compile(r"font-family:\s*[^;}\n]+")
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


def masked(svg: str) -> str:
    """``svg`` as ``export_screenshot`` returns it, with each line of the screen as ``redact.value`` shows it: from the
    first to the last letter that is a secret there are stars, so that nothing moves. A secret that goes on in the next
    line of the screen is judged by its parts."""
    lines: dict[str, list[re.Match[str]]] = {}
    for found in _TEXT.finditer(svg):
        lines.setdefault(found["line"], []).append(found)
    changed: list[tuple[int, int, str]] = []
    for pieces in lines.values():
        texts = [_plain(piece["text"]) for piece in pieces]
        shown = _stars("".join(texts))
        place = 0
        for piece, text in zip(pieces, texts, strict=True):
            new = shown[place : place + len(text)]
            place += len(text)
            if new != text:
                changed.append((piece.start("text"), piece.end("text"), _escaped(new)))
    for start, end, text in sorted(changed, reverse=True):
        svg = svg[:start] + text + svg[end:]
    return svg


def with_own_fonts(svg: str) -> str:
    """``svg`` with fonts that a machine has: a converter that finds none of those that it names draws boxes without
    text."""
    return _FAMILY.sub(rf"font-family: {FONTS}", svg)


def _stars(line: str) -> str:
    """The line with stars from the first to the last letter of its secrets, as long as before."""
    without = redact.value(line)
    if without == line:
        return line
    begin = _equal(line, without)
    end = len(line) - _equal(line[begin:][::-1], without[begin:][::-1])
    return line[:begin] + _HIDDEN * (end - begin) + line[end:]


def _equal(one: str, other: str) -> int:
    """How many letters are the same at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _plain(text: str) -> str:
    return html.unescape(text).replace("\xa0", " ")


def _escaped(text: str) -> str:
    return html.escape(text).replace(" ", "&#160;")
