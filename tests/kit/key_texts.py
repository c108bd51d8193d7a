"""What the comments of ``default.yaml`` say of a key, as Markdown: sentences in paragraphs, values in lists. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kit.command_pages import plain

# `word:   text`, as comments list values: `{value}: {what it does}`, with the texts below each other
_ITEM = re.compile(r" {0,4}(?P<word>[A-Za-z_][\w-]*):(?P<gap> +)(?=\S)")
_VARIABLES = re.compile(r"\s*\[(?P<names>[A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*|test_freq)\]")
_ENDED = re.compile(r"[.:;,!?)]$|\.\.\.$")


def meaning(comment: str, variables: Sequence[str] = (), values: Sequence[str] = ()) -> str:
    """The comment of a key as Markdown.

    ``comment``: its lines, each with its indentation. ``variables``: those that are listed beside it, so that their
    names in brackets are left out. ``values``: those that the key can have; where the comment explains two or more of
    them, one after the other, they become a list.
    """
    blocks: list[str] = []
    for lines in _blocks(_without(comment, variables).split("\n")):
        item = _ITEM.match(lines[0])
        text = " ".join(line.strip() for line in lines if line.strip())
        if not text:
            continue
        if item is not None and _listed(lines[0], comment):
            word, _, rest = text.partition(":")
            blocks.append(f"- `{word}`: {plain(rest.strip()).rstrip(';.')}")
        else:
            blocks += _paragraph(text, values)
    return _spaced(blocks)


def _without(comment: str, variables: Sequence[str]) -> str:
    """The comment without the names of ``variables`` in brackets."""

    def kept(match: re.Match[str]) -> str:
        return "" if set(match["names"].split(", ")) <= set(variables) else match[0]

    return _VARIABLES.sub(kept, comment)


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Lines that belong together: an entry of a list with the indented lines below it, or what stands between."""
    found: list[list[str]] = []
    entry: int | None = None  # how far the entry is indented that the last block begins with
    for line in lines:
        begins = _listed(line, "\n".join(lines))
        goes_on = not begins if entry is None else _indent(line) > entry
        if found and goes_on and line.strip():
            found[-1].append(line)
        else:
            found.append([line])
            entry = _indent(line) if begins else None
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _listed(line: str, comment: str) -> bool:
    """Whether a line is an entry of a list: another one of the comment has its text in the same column."""
    item = _ITEM.match(line)
    if item is None:
        return False
    others = [other for one in comment.split("\n") if (other := _ITEM.match(one)) is not None]
    return any(other.end() == item.end() and other["word"] != item["word"] for other in others)


def _paragraph(text: str, values: Sequence[str]) -> list[str]:
    """A paragraph; with a list of the values that it explains one after the other."""
    each = re.finditer(r"(?:^|(?<=[.;:] ))([A-Za-z_]+): ", text)
    marks = [mark for mark in each if mark[1] in values]
    if len(marks) < 2:
        return [_sentence(text, values)]
    found = [_sentence(text[: marks[0].start()].strip(), values)] if marks[0].start() else []
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=True):
        found.append(f"- `{mark[1]}`: {plain(text[mark.end() : end].strip()).rstrip(';.')}")
    return found


def _sentence(text: str, values: Sequence[str]) -> str:
    """Text that begins with a capital letter and ends with a stop, unless it begins with a value or a name."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    first = re.match(r"[a-z]+(?=[ ,;'])", text)
    if first is not None and first[0] not in values and not re.match(r"[\w-]+(?:, [\w-]+)* =", text):
        text = text[0].upper() + text[1:]
    return plain(text if _ENDED.search(text) and not text.endswith(")") else f"{text.rstrip(',;')}.")


def _spaced(blocks: Sequence[str]) -> str:
    """Blocks with an empty line between them, but none within a list."""
    made = ""
    for before, block in zip(["", *blocks], blocks, strict=False):
        both = before.startswith("- ") and block.startswith("- ")
        made += ("" if not made else "\n" if both else "\n\n") + block
    return made
