"""Detects the level of a log line in the formats of vLLM, LiteLLM, Ray, verl, torch, NCCL and Python. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from liverl.logs.prefixes import without_prefix
from liverl.model import Level

RANK: dict[Level, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
HEAD = 160  # leading characters of a line that are searched for a level

_WORDS: dict[str, Level] = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "NOTICE": "info",
    "WARN": "warning",
    "WARNING": "warning",
    "ERROR": "error",
    "CRITICAL": "error",
    "FATAL": "error",
    "EMERG": "error",
    "ALERT": "error",
}
_GLOG: dict[str, Level] = {
    "D": "debug",
    "I": "info",
    "W": "warning",
    "E": "error",
    "F": "error",
    "C": "error",
}
_WORD = "(" + "|".join(sorted(_WORDS, key=len, reverse=True)) + ")"
# An optional time, an optional logger's name with its separator, then the word:
# "INFO 11-20 23:51:23 [core.py:1]", "2026-11-21 00:17:39,002 INFO worker.py:2", "00:16:46 - LiteLLM Proxy:ERROR: "
# (possessive quantifiers: lines of only bars and blanks must not be slow)
_LOGGER = re.compile(
    r"[\[(<|\s]*+(?:\d[\d:.,/+\- ]*+(?:T\d[\d:.,+\-]*+)?+Z?+[\])>|\s,\-]*+)?+"
    r"(?:[A-Za-z_][\w. \-/]{0,60}?(?:[:|\]]|\s-)\s*+)?"
    r"[\[(<|]*+" + _WORD + r"\s{0,8}(?=[\s:|\]>),\-]|$)"
)
# torch "[rank0]:W1121 00:18:39.123", Ray's C++ "[2026-11-21 00:17:39,002 E 12 34] (raylet)", glog "I0521 12:00:00"
_LETTER = re.compile(
    r"(?:\[rank\d+\]: ?)?\[?(?:([DIWEFC])\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ([DIWEFC]) \d+ \d+\])"
)
_NCCL = re.compile(r"\S+:\d+:\d+ \[\d+\] .{0,60}?NCCL (INFO|WARN)")
_FIELD = re.compile(r'(?:\blevel=|"(?:level|severity|levelname)": ?)"?(\w+)', re.IGNORECASE)
_BRACKET = re.compile(r"[\d/:.,\-T ]*\[(debug|info|warn|warning|error|critical|fatal)\]")
_WARNS = re.compile(r"(?:\S+:\d+: )?(?:[A-Za-z_]\w*\.)*[A-Z]\w*Warning: ")
_FAILS = re.compile(
    r"(?:\[rank\d+\]: ?)?(?:"
    r"Traceback \(most recent call last\)|\+ Exception Group Traceback"
    r"|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Expired)(?:: |:?$)"
    r"|During handling of the above exception|The above exception was the direct cause"
    r"|Fatal Python error|Segmentation fault|Bus error|terminate called|Out of memory|Killed$|Aborted$"
    r"|(?:[\w./-]{1,60}: )?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL): "
    r"|\*\*\* SIG[A-Z]+ received)"
)
_QUICK: dict[str, Level] = {
    "INFO ": "info",
    "INFO:": "info",
}  # how most lines begin: no regular expression needed


def own_level(line: str) -> Level | None:
    """Return the level that a plain line states itself; None if it states none."""
    return _level(without_prefix(line)[1] if line.startswith("(") else line)


def _level(text: str) -> Level | None:
    head = text[:HEAD]
    match = _LOGGER.match(head)
    if match is not None:
        return _WORDS[match[1]]
    if head[:1].isspace():
        return None
    if _FAILS.match(head):
        return "error"
    match = _LETTER.match(head)
    if match is not None:
        return _GLOG[match[1] or match[2]]
    if _WARNS.match(head):
        return "warning"
    match = _BRACKET.match(head) or _NCCL.match(head)
    if match is None and ("level" in head or "everity" in head):
        match = _FIELD.search(head)
    return _WORDS.get(match[1].upper()) if match is not None else None


def continues(text: str) -> bool:
    """Whether a line without a process prefix continues the line above: blank, indented, or a frame of an
    exception group."""
    return not text or text[0].isspace() or text[:2] in ("| ", "+-")


class Levels:
    """Assigns each line its own or inherited level: a traceback has the level of its error.

    Lines of several processes in one log are distinguished by their ``(Name pid=N)`` prefix.
    """

    def __init__(self, before: Iterable[str] = ()) -> None:
        """``before``: the plain lines above the first one."""
        self._last: dict[str, Level | None] = {}
        for line in before:
            self.of(line)

    def of(self, line: str) -> Level | None:
        """Return the level of the next plain line."""
        quick = _QUICK.get(line[:5])
        if quick is not None:
            self._last[""] = quick
            return quick
        prefix, text = without_prefix(line) if line.startswith("(") else ("", line)
        level = _level(text)
        if level is None and continues(text):
            return self._last.get(prefix)
        if len(self._last) > 1000:
            self._last.clear()
        self._last[prefix] = level
        return level
