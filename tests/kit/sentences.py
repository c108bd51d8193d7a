"""The sentences of a paper in Markdown: of its paragraphs, points and tables, without its headings and code."""

from __future__ import annotations

import re
from collections.abc import Iterator

_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*])")
_POINT = re.compile(r"\s*(?:[-*]|\d+\.)\s+")


def sentences(text: str) -> list[str]:
    """Each sentence with its white space as one blank and without emphasis; a row of a table and a point that is no
    sentence count as one."""
    return [part for block in _blocks(text) for part in _END.split(block) if part]


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, points and rows of tables, each on one line."""
    parts: list[str] = []
    code = False
    for line in [*text.splitlines(), ""]:
        fence = line.strip().startswith("```")
        begins = bool(_POINT.match(line)) or line.startswith(("#", "|"))
        if parts and (not line.strip() or begins or fence):
            yield _plain(" ".join(parts))
            parts = []
        code ^= fence
        if code or fence or not line.strip() or line.startswith("#") or re.fullmatch(r"\|[\s|:-]+\|", line):
            continue
        parts.append(_POINT.sub("", line.strip(), count=1) if begins and line[0] != "|" else line.strip())


def _plain(text: str) -> str:
    return " ".join(re.sub(r"\*\*([^*]+)\*\*", r"\1", text).replace("|", " ").split())
