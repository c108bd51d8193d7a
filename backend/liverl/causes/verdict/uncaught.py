"""Which process died of an exception of the user's own code that nobody caught. Pure.

That an exception was printed does not tell that it ended anything: programs catch exceptions, log them, and go on. It
did where its traceback begins at the program's first line, was printed by the interpreter and by no logger, and is the
last thing that the process wrote; or where such a traceback raises it again, as the main process does with what a
worker has raised. Where the process is known to have exited with an error, the traceback that was its last word tells
why, even if the program itself or a logger printed it: it caught the exception, and ended for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from liverl.causes.finding import Exit, Explanation
from liverl.causes.match import Match
from liverl.causes.verdict.chain import kind
from liverl.causes.verdict.errors import evidence_of, is_own, line_of
from liverl.causes.verdict.frames import frames_of
from liverl.causes.verdict.own_code import OwnError, own_error, told_own
from liverl.causes.verdict.timeline import Moment
from liverl.causes.verdict.words import of_exits, short, signal_of
from liverl.logs.record import Raised, Record

UNCAUGHT = "uncaught"


def uncaught(moments: Sequence[Moment], exits: Sequence[Exit] = ()) -> Explanation | None:
    """The first exception of own code that ended its process. ``exits``: those that failed; a process that a signal
    ended did not end by an exception. None if no log shows such an end."""
    killed = {exit_.log for exit_ in exits if signal_of(exit_) is not None}
    ends = [moment for moment in moments if moment.ended and moment.log not in killed]
    found = {id(moment): error for moment in moments if (error := _error(moment)) is not None}
    for moment in moments:
        error = found.get(id(moment))
        if error is None or moment.log in killed:
            continue
        later = [end for end in ends if end is not moment and end.at >= moment.at]
        ended = any(moment is end for end in ends) and not any(
            _goes_on(moment, end, found) for end in later if end.record.offset > moment.record.offset
        )
        given_up = None if ended else _given_up(moment, moments, exits)
        if ended or given_up is not None or any(_raises_again(end.record, error.raised) for end in later):
            evidence = (evidence_of(moment, line_of(moment.record, moment.matched)), *of_exits(exits))
            told = told_own(error, UNCAUGHT, evidence, _row(moment, error))
            if given_up is None:
                return told
            caught = f"The program caught it, printed it, and then ended with exit code {given_up.code}."
            return replace(told, cause=short(f"{told.cause} {caught}"))
    return None


def _given_up(moment: Moment, moments: Sequence[Moment], exits: Sequence[Exit]) -> Exit | None:
    """The exit with an error of the process whose last word this traceback was: nothing but warnings came behind it in
    the log. None if it ended otherwise, or that is not known."""
    record = moment.record
    if not moment.last or record.writer or record.kind != "traceback":
        return None
    behind = (one for one in moments if one.log == moment.log and one.record.offset > record.offset)
    if any(one.record.level == "error" for one in behind):
        return None
    return next((one for one in exits if one.log == moment.log and one.code and one.oom_kills == 0), None)


def _error(moment: Moment) -> OwnError | None:
    return own_error(moment.record) if is_own(moment) else None


def _goes_on(moment: Moment, later: Moment, found: Mapping[int, OwnError]) -> bool:
    """Whether the program of a traceback goes on to another error of its own: then it caught the first one."""
    first, second = found[id(moment)], found.get(id(later))
    if second is None or _writer(later) != _writer(moment):
        return False
    same_error = (first.origin.at, kind(first.raised)) == (second.origin.at, kind(second.raised))
    differs = not same_error or first.raised.text != second.raised.text
    return differs and _program(moment.record) == _program(later.record)


def _writer(moment: Moment) -> tuple[str, tuple[str, int | None, bool]]:
    return moment.log, moment.record.voice


def _program(record: Record) -> str:
    """The file in which a traceback begins."""
    frames = next((found for at in range(len(record.raised)) if (found := frames_of(record, at))), ())
    return frames[0].path if frames else ""


def _raises_again(record: Record, raised: Raised) -> bool:
    """Whether a traceback ends with an exception of this kind and message."""
    wanted = kind(raised), raised.message.partition("\n")[0]
    return wanted in [(kind(one), one.message.partition("\n")[0]) for one in record.raised]


def _row(moment: Moment, error: OwnError) -> Match | None:
    """What the catalogue says in general of an exception of this kind; of an import it tells of installed packages."""
    if error.raised.type == "ImportError":
        return None
    return next(
        (m for m in moment.matched if m.signature.role == "general" and m.raised in (error.index, None)), None
    )
