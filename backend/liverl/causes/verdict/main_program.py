"""Which tracebacks Python prints at the end of a program, because nobody caught the exception. Pure."""

from __future__ import annotations

from liverl.causes.verdict.frames import frames_of, package_of
from liverl.logs.record import Record
from liverl.util.late_pattern import late_pattern

# The first line of a traceback that no logger printed.
_BARE = late_pattern(
    r"\s{0,8}(?:\+ (?:Exception Group )?)?Traceback \(most recent call last|The above exception was the direct cause"
    r"|During handling of the above|Process [\w-]{1,80}:"
)
# Hydra prints the traceback of its program below this line, without the first frames, and ends it.
_HYDRA = "Error executing job with overrides"
# Where a program begins: its own first lines, those of python -m, those of a child of multiprocessing
_OUTERMOST = frozenset(("<module>", "_run_module_as_main", "_bootstrap"))


def of_the_main_program(record: Record, above: Record | None = None) -> bool:
    """Whether a traceback is what Python prints at the end of a program: from its first line on, and by no logger.
    ``above``: the record before it in its log, if that is known."""
    if record.kind != "traceback" or _BARE.match(record.text) is None:
        return False
    if above is not None and above.text.startswith(_HYDRA) and above.end == record.offset:
        return True
    frames = (frames_of(record, index) for index in range(len(record.raised)))
    return any(found[0].function in _OUTERMOST for found in frames if found)


def printed(record: Record) -> bool:
    """Whether a program printed a traceback of its main thread by itself, and so has caught the exception: it begins
    in code of no package, but below the first line of the program, at which those begin that Python prints at the
    end."""
    if record.kind != "traceback" or record.writer or _BARE.match(record.text) is None:
        return False
    outermost = [found[0] for at in range(len(record.raised)) if (found := frames_of(record, at))]
    return bool(outermost) and all(
        one.function not in _OUTERMOST and package_of(one.path) == "" for one in outermost
    )


def logged(record: Record) -> bool:
    """Whether a logger printed a traceback, below its own message: the program caught the exception."""
    return record.kind == "traceback" and bool(record.text.strip()) and _BARE.match(record.text) is None
