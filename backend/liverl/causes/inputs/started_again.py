"""Which errors of a log are of an earlier start of its server: one log gets several starts where a script tries again,
or a user with other options."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.causes.finding import LogRecords
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import open_binary

BLOCK = 1 << 20  # bytes read at a time
# The first line of a server, and that it serves, of vLLM and SGLang
_BEGINS = (b"vLLM API server version ", b"server_args=ServerArgs(")
_SERVES = (b"Application startup complete", b"The server is fired up and ready")
# That an earlier one has ended, and did not only complain: the program that started its engine gave up.
_GAVE_UP = late_pattern(
    r"Engine core initialization failed|Engine process failed to start|Scheduler hit an exception"
    r"|Rank \d{1,5} scheduler died|Received sigquit from a child process"
)


def without_earlier_starts(log: LogRecords) -> LogRecords:
    """A log, which lies at the path that it is shown by, without the errors of a start that failed before the last one,
    which serves."""
    gave_up = [record.offset for record in log.records if _GAVE_UP.search(record.whole)]
    if not gave_up:
        return log
    try:
        begins = _last_start(Path(log.log), gave_up[0])
    except OSError:
        return log  # it was removed meanwhile; what was read of it is judged
    if begins is None or gave_up[-1] > begins:
        return log
    kept = (record for record in log.records if record.offset >= begins or record.kind == "healthy")
    return msgspec.structs.replace(log, records=tuple(kept))


def _last_start(path: Path, since: int) -> int | None:
    """Where the last start begins behind byte ``since``, if it came to serve; else None."""
    began = served = -1
    offset = since
    with open_binary(path) as file:
        file.seek(since)
        rest = b""
        while data := file.read(BLOCK):
            data = rest + data
            cut = data.rfind(b"\n") + 1 or len(data)
            block, rest = data[:cut], data[cut:]
            began = max(began, *(_found(block, words, offset) for words in _BEGINS))
            served = max(served, *(_found(block, words, offset) for words in _SERVES))
            offset += len(block)
    return began if 0 <= began < served else None


def _found(block: bytes, words: bytes, offset: int) -> int:
    """Where the last line with these words begins; -1 without one."""
    place = block.rfind(words)
    return -1 if place < 0 else offset + block.rfind(b"\n", 0, place) + 1
