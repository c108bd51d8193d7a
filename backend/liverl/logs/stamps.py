"""The time of day of a log line: its own stamp, else when it was written. Pure."""

from __future__ import annotations

import time

import msgspec

from liverl.logs.prefixes import without_prefix
from liverl.util.late_pattern import late_pattern

HEAD = 80  # leading characters of a line that are searched for a stamp

# What may stand before a stamp: a level, a rank, a bracket: "INFO 11-20 23:51:23", "ERROR:2026-11-21 00:02:09,570",
# "[rank0]:W1121 00:18:39.123", "[2026-11-21 00:17:39,002 E 12 34]", "00:16:46 - LiteLLM Proxy:ERROR"
_STAMP = late_pattern(
    r"(?:\[rank\d+\]:\s?)?[\[(<]?(?:[A-Z]{4,8}[\s:]{1,3})?[\[(<]?"
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ]|\d\d-\d\d |[DIWEFC]\d{4} )?"
    r"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?![\d:])"
)

# vLLM's and uvicorn's heads, that of our sessions, Ray's, verl's, and LiteLLM's: "INFO 11-20 23:51:23 ", "INFO:     ",
# "2026-11-27 09:00:01,861 INFO liverl-sessions: ", "2026-11-29 03:31:04,782\tINFO ", "INFO:2026-11-29 03:32:56,760:",
# "10:28:52 - LiteLLM Proxy:WARNING: "
_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_LEVEL_HEAD = late_pattern(
    rf"(?:{_LEVEL}(?: \d\d-\d\d \d\d:\d\d:\d\d |:\s{{2,8}})"
    rf"|\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} {_LEVEL} liverl-sessions: "
    rf"|\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}}\t(?:{_LEVEL}|SUCC) "
    rf"|{_LEVEL}:\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}}: ?"
    rf"|\d\d:\d\d:\d\d - LiteLLM[\w ]{{0,30}}:{_LEVEL}: )(?=\S)"
)


class Clock(msgspec.Struct, frozen=True):
    """``text``: HH:MM:SS. ``own``: the line says so itself; otherwise it was written then, to about a second."""

    text: str
    own: bool


def own_stamp(line: str) -> str | None:
    """The time of day at the head of a plain line, as its writer printed it; None if it has none."""
    head = without_prefix(line[: 2 * HEAD])[1] if line.startswith("(") else line
    match = _STAMP.match(head[:HEAD])
    return match[1] if match is not None else None


def head_length(line: str) -> int:
    """How many leading characters of a plain line say only which process wrote it, its level and its time:
    ``(APIServer pid=1) INFO 11-20 23:51:23 ``. 0 if it does not begin with a level."""
    prefix, text = without_prefix(line[: 2 * HEAD]) if line.startswith("(") else ("", line)
    match = _LEVEL_HEAD.match(text)
    return 0 if match is None else len(prefix) + match.end()


def clock_of(line: str, written: float | None) -> Clock | None:
    """The time of a plain line. ``written``: local Unix time at which it was written, None if unknown."""
    stamp = own_stamp(line)
    if stamp is not None:
        return Clock(stamp, True)
    return None if written is None else Clock(time.strftime("%H:%M:%S", time.localtime(written)), False)
