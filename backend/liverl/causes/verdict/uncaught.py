"""Which process died of an exception of the user's own code that nobody caught. Pure.

That an exception was printed does not tell that it ended anything: programs catch exceptions, log them, and go on. It
did where its traceback begins at the program's first line, was printed by the interpreter and by no logger, and is the
last thing that the process wrote; or where such a traceback raises it again, as the main process does with what a worker
has raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from liverl.causes.finding import Exit, Explanation, LogRecords
from liverl.causes.match import Match
from liverl.causes.verdict.chain import kind
from liverl.causes.verdict.errors import evidence_of, is_own, line_of
from liverl.causes.verdict.frames import frames_of
from liverl.causes.verdict.own_code import OwnError, own_error, told_own
from liverl.causes.verdict.timeline import Moment
from liverl.causes.verdict.words import of_exits, signal_of
from liverl.logs.record import Raised, Record
from liverl.util.late_pattern import late_pattern

UNCAUGHT = "uncaught"
# The first line of a traceback that no logger printed. Hydra prints that of its program itself, and ends it.
_BARE = late_pattern(
    r"\s{0,8}(?:\+ (?:Exception Group )?)?Traceback \(most recent call last|The above exception was the direct cause"
    r"|During handling of the above|Error executing job with overrides|Process [\w-]{1,80}:"
)
_HYDRA = "Error executing job with overrides"
_OUTERMOST = frozenset(("<module>", "_run_module_as_main", "_bootstrap"))  # of a program, of python -m, of a child


def uncaught(
    moments: Sequence[Moment], logs: Sequence[LogRecords], exits: Sequence[Exit] = ()
) -> Explanation | None:
    """The first exception of own code that ended its process. ``exits``: those that failed; a process that a signal
    ended did not end by an exception. None if no log shows such an end."""
    last = {(log.log, offset) for log in logs for offset in log.last_tracebacks}
    killed = {exit_.log for exit_ in exits if signal_of(exit_) is not None}
    ends = [
        moment
        for moment in moments
        if (moment.log, moment.record.offset) in last
        and not (moment.survived or moment.outlived or moment.log in killed)
        and of_the_main_program(moment.record)
    ]
    found = {id(moment): error for moment in moments if (error := _error(moment)) is not None}
    for moment in moments:
        error = found.get(id(moment))
        if error is None or moment.log in killed:
            continue
        later = [end for end in ends if end is not moment and end.at >= moment.at]
        ended = any(moment is end for end in ends) and not any(
            _goes_on(moment, end, found) for end in later if end.record.offset > moment.record.offset
        )
        if ended or any(_raises_again(end.record, error.raised) for end in later):
            evidence = (evidence_of(moment, line_of(moment.record, moment.matched)), *of_exits(exits))
            return told_own(error, UNCAUGHT, evidence, _row(moment, error))
    return None


def of_the_main_program(record: Record) -> bool:
    """Whether a traceback is what Python prints at the end of a program: from its first line on, and by no logger."""
    if record.kind != "traceback" or _BARE.match(record.text) is None:
        return False
    if record.text.startswith(_HYDRA):
        return True
    frames = (frames_of(record, index) for index in range(len(record.raised)))
    return any(found[0].function in _OUTERMOST for found in frames if found)


def _error(moment: Moment) -> OwnError | None:
    return own_error(moment.record) if is_own(moment) else None


def _goes_on(moment: Moment, later: Moment, found: Mapping[int, OwnError]) -> bool:
    """Whether the program of a traceback goes on to another error of its own: then it caught the first one."""
    first, second = found[id(moment)], found.get(id(later))
    if second is None or (later.log, later.record.writer) != (moment.log, moment.record.writer):
        return False
    same_error = (first.origin.at, kind(first.raised)) == (second.origin.at, kind(second.raised))
    differs = not same_error or first.raised.text != second.raised.text
    return differs and _program(moment.record) == _program(later.record)


def _program(record: Record) -> str:
    """The file in which a traceback begins."""
    frames = next((found for at in range(len(record.raised)) if (found := frames_of(record, at))), ())
    return frames[0].path if frames else ""


def _raises_again(record: Record, raised: Raised) -> bool:
    """Whether a traceback ends with an exception of this kind and message."""
    wanted = kind(raised), raised.message.partition("\n")[0]
    return wanted in [(kind(one), one.message.partition("\n")[0]) for one in record.raised]


def _row(moment: Moment, error: OwnError) -> Match | None:
    """What the catalogue says in general of an exception of this kind."""
    return next(
        (m for m in moment.matched if m.signature.role == "general" and m.raised in (error.index, None)), None
    )
