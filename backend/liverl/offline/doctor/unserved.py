"""Servers that were ended before they were up, without a word of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from liverl.causes.finding import Evidence, Explanation, LogRecords
from liverl.causes.verdict.words import short
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import open_binary

UNSERVED = "ended-before-up"
_ENDS = 64 << 10  # bytes at each end of a log that are looked at
# The first lines of vLLM and SGLang, and what they print where they end by themselves or are asked to
_BEGINS = late_pattern(rb"vLLM API server version |server_args=ServerArgs\(|non-default args: \{")
_TELLS = late_pattern(
    rb"[Ss]hutting down|shutdown complete|KeyboardInterrupt|SIG(?:TERM|INT)|received signal|Received sigquit"
)
# Of Python, where the process is gone whose semaphores or shared memory are left
_CLEANS_UP = "resource_tracker: There appear to be "


def unserved(logs: Sequence[LogRecords]) -> Explanation | None:
    """The finding that a log of a server, which lies at the path that it is shown by, ends with what Python cleans up
    behind a process that is gone, and that nothing in it says that it served, failed, or was asked to end."""
    for log in logs:
        final = log.records[-1] if log.records else None
        if final is None or _CLEANS_UP not in final.text or any(r.kind == "healthy" for r in log.records):
            continue
        try:
            with open_binary(Path(log.log)) as file:
                head = file.read(_ENDS)
                file.seek(max(0, final.offset - _ENDS))
                tail = file.read(2 * _ENDS)
        except OSError:
            continue  # it was removed meanwhile
        if _BEGINS.search(head) is None or _TELLS.search(tail) is not None:
            continue
        return Explanation(
            UNSERVED,
            "warning",
            "The server was ended before it was up, without an error",
            "Python cleaned up behind it, and no line says that it served, failed or was asked to stop: it was killed.",
            "See whether the kernel killed it for memory, of which loading weights takes much; else who ended it: a "
            "script that waited too short a time, a batch system, a user.",
            "dmesg -T | grep -iE 'out of memory|killed process'",
            evidence=(Evidence(short(final.text), log.log, final.offset),),
        )
    return None
