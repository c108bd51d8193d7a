"""The mapping ``ui.keys`` in the text of a configuration file, read without the parser of YAML.

A subset of YAML: one entry per line, or one line of ``{entry: keys, ...}``. What is read here means the same to the
parser of the configuration; everything else is an error, never another meaning.
"""

from __future__ import annotations

import re

from liverl.util.late_pattern import late_pattern

_QUOTED = r""""(?:[^"\\]|\\["\\])*"|'(?:[^']|'')*'"""
_NAME = rf"{_QUOTED}|[A-Za-z_][\w.]*"
_FIRST = r"""[^\s?:,\[\]{}#&*!|>'"%@`-]"""
_LINE_TEXT = rf"(?:{_FIRST}|[?:-](?=\S))(?:[^\s:#]|:(?=\S)|(?<!\s)#|[ ]+(?=[^\s#:]|:\S))*"
_FLOW_TEXT = rf"{_FIRST}(?:[^\s:#,?\[\]{{}}]|[ ]+(?=[^\s:#,?\[\]{{}}]))*"
_COMMENT = r"[ ]*(?:[ ]\#.*)?"

_HEAD = late_pattern(r"""([ \t]+)(["']?)keys\2([ \t]*):(.*)""")
# Compiled when they are used: most configurations have no keys, and this would take 2 ms of the start.
_LINE = rf"({_NAME}):(?:[ ]+({_QUOTED}|{_LINE_TEXT}))?{_COMMENT}"
_FLOW_ENTRY = rf"[ ]*({_NAME}):[ ]+({_QUOTED}|{_FLOW_TEXT})?[ ]*(,|}})"
_OTHER = late_pattern(r"[ ]+\w+:")  # a key of the section
_NOTHING = late_pattern(_COMMENT)
_FLOW_END = late_pattern(rf"[ ]*\}}{_COMMENT}")
_NULLS = ("", "~", "null", "Null", "NULL")


class UnreadableKeys(ValueError):
    """A way of writing the mapping that is not read here. Its message says which, and what is."""

    def __init__(self, line: str) -> None:
        super().__init__(
            f'cannot read {line.strip()!r}; write one line for each entry, as in: logs.access: "V"'
        )


def take_keys(section: list[str]) -> tuple[dict[str, str], list[str]]:
    """The mapping ``keys`` in the lines of section ``ui``, and the lines that do not belong to it.

    Raises:
        UnreadableKeys: the mapping is written in a way that is not read here.
    """
    for number, line in enumerate(section):
        head = _HEAD.fullmatch(line)
        if head is None:
            continue
        indent, quote, gap, rest = head.groups()
        if quote or gap or "\t" in indent:
            raise UnreadableKeys(line)
        end = number + 1
        while end < len(section) and (_is_blank(section[end]) or _indent(section[end]) > len(indent)):
            end += 1
        after = section[end:]
        for other in after:
            # A second mapping, or an entry without its indentation.
            if not _is_blank(other) and (_HEAD.fullmatch(other) or not _OTHER.match(other)):
                raise UnreadableKeys(other)
        return _mapping(line, rest, section[number + 1 : end]), section[:number] + after
    return {}, section


def flow_mapping(text: str) -> dict[str, str]:
    """The mapping that ``{entry: keys, ...}`` writes, on one line.

    Raises:
        UnreadableKeys: it is not written like this.
    """
    mapping: dict[str, str] = {}
    place, end = 1, ","
    if not text.startswith("{") or not text.isprintable():
        raise UnreadableKeys(text)
    if _FLOW_END.fullmatch(text, 1):
        return mapping
    while end == ",":
        entry = re.compile(_FLOW_ENTRY).match(text, place)
        if entry is None:
            raise UnreadableKeys(text)
        _put(mapping, text, entry[1], entry[2])
        place, end = entry.end(), entry[3]
    if not _NOTHING.fullmatch(text, place):
        raise UnreadableKeys(text)
    return mapping


def _mapping(head: str, rest: str, lines: list[str]) -> dict[str, str]:
    for line in (head, *lines):
        indent = line[: len(line) - len(line.lstrip())]
        # YAML has more kinds of line breaks, and refuses tabs that indent, also in comments.
        if "\t" in indent or not line.replace("\t", " ").isprintable():
            raise UnreadableKeys(line)
    lines = [line for line in lines if not _is_blank(line)]
    if not _NOTHING.fullmatch(rest):
        if lines or not rest.startswith(" "):
            raise UnreadableKeys(lines[0] if lines else head)
        value = rest.strip()
        return {} if value.partition(" #")[0].strip() in _NULLS else flow_mapping(value)
    mapping: dict[str, str] = {}
    for line in lines:
        entry = re.fullmatch(_LINE, line.strip(" "))
        if entry is None or not line.isprintable() or _indent(line) != _indent(lines[0]):
            raise UnreadableKeys(line)
        _put(mapping, line, entry[1], entry[2])
    return mapping


def _put(mapping: dict[str, str], line: str, name: str, value: str | None) -> None:
    key = _text(name)
    if not key or key in mapping:
        raise UnreadableKeys(line)
    mapping[key] = "" if value in (None, *_NULLS) else _text(str(value))


def _text(scalar: str) -> str:
    if scalar.startswith('"'):
        return re.sub(r"\\(.)", r"\1", scalar[1:-1])
    return scalar[1:-1].replace("''", "'") if scalar.startswith("'") else scalar


def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
