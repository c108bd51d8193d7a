"""One log line as a person reads it: no colours, no overwritten text, no prefixes of other programs."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# (TaskRunnerV1 pid=3824, ip=10.0.0.1) and vLLM's (EngineCore pid=12), also one inside the other
_PREFIX = re.compile(r"(?:\([^()\n]*?\bpid=\d+[^()\n]*\) ?)+")
# vLLM: "ERROR 11-20 23:51:23 [core.py:1510] ", verl: "ERROR:2026-11-21 00:02:09,570:"
_LEVEL = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r"(?: \d\d-\d\d \d\d:\d\d:\d\d \[[^\]\n]+\](?: |$)|:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+:)"
)


def colourless(text: str) -> str:
    """``text`` without ANSI sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def plain(line: str) -> str:
    """``line`` without ANSI sequences and with carriage returns applied: the last text written wins."""
    line = colourless(line)
    if "\r" in line:
        line = line.rstrip("\r").rpartition("\r")[2]
    return line


def without_prefix(line: str) -> tuple[str, str]:
    """(prefix, rest): the ``(Name pid=N)`` prefixes that Ray and vLLM put before a line of one process."""
    match = _PREFIX.match(line)
    return (match.group(), line[match.end() :]) if match else ("", line)


def without_level(line: str) -> tuple[str, str]:
    """(level, rest): level is ``""`` where the line has no logger prefix of vLLM or verl."""
    match = _LEVEL.match(line)
    return (match.group(1), line[match.end() :]) if match else ("", line)
