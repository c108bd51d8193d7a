"""Which tracebacks Python prints at the end of a program, because nobody caught the exception. Pure."""

from __future__ import annotations

from liverl.causes.verdict.frames import frames_of
from liverl.logs.record import Record
from liverl.util.late_pattern import late_pattern

# The first line of a traceback that no logger printed. Hydra prints that of its program itself, and ends it.
_BARE = late_pattern(
    r"\s{0,8}(?:\+ (?:Exception Group )?)?Traceback \(most recent call last|The above exception was the direct cause"
    r"|During handling of the above|Error executing job with overrides|Process [\w-]{1,80}:"
)
_HYDRA = "Error executing job with overrides"
# Where a program begins: its own first lines, those of python -m, those of a child of multiprocessing
_OUTERMOST = frozenset(("<module>", "_run_module_as_main", "_bootstrap"))


def of_the_main_program(record: Record) -> bool:
    """Whether a traceback is what Python prints at the end of a program: from its first line on, and by no logger."""
    if record.kind != "traceback" or _BARE.match(record.text) is None:
        return False
    if record.text.startswith(_HYDRA):
        return True
    frames = (frames_of(record, index) for index in range(len(record.raised)))
    return any(found[0].function in _OUTERMOST for found in frames if found)


def logged(record: Record) -> bool:
    """Whether a logger printed a traceback, below its own message: the program caught the exception."""
    return record.kind == "traceback" and bool(record.text.strip()) and _BARE.match(record.text) is None
