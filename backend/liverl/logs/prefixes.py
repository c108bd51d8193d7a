"""Cleans log lines for people: removes colours, overwritten text and prefixes of other programs."""

from __future__ import annotations

import re

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# (TaskRunnerV1 pid=3824, ip=10.0.0.1) and vLLM's (EngineCore pid=12), possibly nested
_PREFIX = re.compile(r"(?:\([^()\n]*?\bpid=\d+[^()\n]*\) ?)+")


def colourless(text: str) -> str:
    """Return ``text`` without ANSI sequences."""
    return ANSI.sub("", text) if "\x1b" in text else text


def plain(line: str) -> str:
    """Return ``line`` without ANSI sequences and with carriage returns applied: the last text written wins."""
    line = colourless(line)
    if "\r" in line:
        line = line.rstrip("\r").rpartition("\r")[2]
    return line


def without_prefix(line: str) -> tuple[str, str]:
    """Split off the ``(Name pid=N)`` prefixes that Ray and vLLM put before a process's lines: (prefix, rest)."""
    match = _PREFIX.match(line)
    return (match.group(), line[match.end() :]) if match else ("", line)
