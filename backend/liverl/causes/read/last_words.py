"""Which tracebacks of a log are the last thing that their process wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from liverl.logs.record import Record
from liverl.util.late_pattern import late_pattern

TAIL = 1 << 16  # bytes at the end of a log, in which such a traceback must stand
# What a shell traces, and what time, wandb, Hydra, Ray and torchrun print last.
LAST_WORDS = late_pattern(
    r"\++ |wandb:|(?i:warning)s?: |<[\w .]{1,80}>:\d+: \w*Warning: "
    r"|(?:real|user|sys)\s+\d|\[\d+\][+-]? |(?:exit|return) (?:code|status)"
    r"|Set the environment variable HYDRA"
    r"|[=-]{20}|Failures:|Root Cause \(|<NO_OTHER_FAILURES>|(?:time|host|rank|exitcode|error_file|traceback) {1,8}: "
)

_KILLED = late_pattern(r"(?:^|\s)Killed\b")  # as a shell reports SIGKILL


def last_tracebacks(kept: Iterable[Record], tail: Sequence[Record]) -> Iterator[int]:
    """Yield the offsets of the tracebacks in ``kept`` behind which their writer wrote no plain line: an exception that
    is caught is printed, too, but then the program goes on. Warnings, further errors and what wandb or a shell prints
    last are no plain lines. ``tail``: all records of the end of the log; tracebacks before it are passed over."""
    if not tail:
        return
    said: dict[tuple[str, int | None, bool], int] = {}  # of each writer the place of its last plain line
    for record in tail:
        if _is_plain(record):
            said[record.voice] = record.offset
    for record in kept:
        spoken = said.get(record.voice, -1)
        if record.kind == "traceback" and tail[0].offset <= record.offset > spoken:
            yield record.offset


def _is_plain(record: Record) -> bool:
    if record.kind == "healthy" or (record.kind == "shell" and _KILLED.search(record.text)):
        return True  # what SIGKILL ended did not end by an exception
    text = record.text.strip()
    plain = record.kind == "line" and record.level not in ("warning", "error")
    return plain and bool(text) and LAST_WORDS.match(text) is None
