"""What is said of an end that no signature explains: its first error, its signal, or its silence. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from liverl.causes.finding import Evidence, Exit, Explanation, LogRecords
from liverl.causes.match import Matcher, whole
from liverl.causes.verdict.chain import telling
from liverl.causes.verdict.deduced import DEDUCED, OWN_CODE, deduced
from liverl.causes.verdict.errors import (
    OF_A_REQUEST,
    evidence_of,
    first_error,
    is_own,
    is_weak,
    is_wrapped,
    line_of,
    of_a_request,
    only_reports,
    role_of,
    told_of,
    weight_of,
)
from liverl.causes.verdict.frames import origin_of, told_place
from liverl.causes.verdict.guesses import guesses
from liverl.causes.verdict.launchers import NAMED, reported_signal
from liverl.causes.verdict.main_program import logged, printed
from liverl.causes.verdict.memory_kills import killed_for_memory
from liverl.causes.verdict.own_code import own_error
from liverl.causes.verdict.timeline import Moment
from liverl.causes.verdict.uncaught import UNCAUGHT
from liverl.causes.verdict.words import ending, explained, of_exits, point, short, signal_of
from liverl.logs.record import Record
from liverl.util.late_pattern import late_pattern

FIRST_ERROR = "the first error was: "  # in the title of a verdict that does not know why, before the error
# Begins the title of a verdict whose error the catalogue knows as a consequence
KNOWN_CONSEQUENCE = "cause unknown: "
SAYS_NOTHING = "its log says nothing about it"
# What a verdict is called that no rule explains: another log may tell more.
OF_AN_ERROR = frozenset(("unknown", *DEDUCED))  # verdicts that rest on the first error of a log
UNEXPLAINED = frozenset(("interrupted", "stopped", "silent-exit", "killed", *OF_AN_ERROR))
OTHER_ERROR = "other-error"  # beside a cause
OTHERS = 3  # of them are told
REQUESTS_FAILED = "requests-failed"  # and nothing else did, as far as is known
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # somebody stopped it: no failure of its own
_UNEXPLAINED = "No rule explains this error; it is the earliest one that the process did not survive."
_CAUGHT = (
    "No rule explains this error. The program printed it by itself, so it caught it and may have gone on."
)
_ONLY_REPORTED = "It reports that something else failed, and nothing that was read says why that did."
_READ_ON = "Read the log from there on."
_WHO_STOPPED_IT = (
    "Look for who stopped it: a user, a time limit of the batch system, or a parent process that ended."
)
# The last line of servers that got a signal to stop: uvicorn and vLLM, and liverl's own.
_SHUT_DOWN = late_pattern(
    r"Finished server process \[|liverl-(?:sessions|proxy): (?:generation \d+ )?(?:has )?stopped"
)
_SHELL_SIGNALS = tuple((re.compile(rf"\b{name}\b"), number) for name, number in NAMED.items())


def is_doubtful(cause: str, matcher: Matcher | None = None) -> bool:
    """Whether no rule explains the error that a verdict rests on (its id), or only one of Python itself: those are what
    programs catch. ``matcher``: of another catalogue than ours."""
    row = (matcher or whole()).by_id.get(cause)
    return cause in (UNCAUGHT, *OF_AN_ERROR) or (row is not None and row.role == "general")


def failed_requests(moments: Sequence[Moment]) -> Explanation | None:
    """What is told of logs whose errors are all of requests: the servers handled them, and nothing tells that one has
    ended. None for other logs."""
    first = first_error(moments)
    if first is None or weight_of(first) != OF_A_REQUEST:
        return None
    failed = [moment for moment in moments if weight_of(moment) == OF_A_REQUEST]
    proof = [evidence_of(one, line_of(one.record, one.matched)) for one in (first, *failed[1:][-1:])]
    return Explanation(
        REQUESTS_FAILED,
        "warning",
        f"{'Requests' if failed[1:] else 'A request'} failed; {FIRST_ERROR}"
        f"{short(told_of(first.record, first.matched))}",
        "A server could not answer, and nothing that was read tells that it ended.",
        "Read the message: it says what the server, or the model behind it, did not accept of the request. Correct it "
        "where the request is made (the agent, or the proxy's configuration).",
        evidence=tuple(proof),
    )


def other_errors(moments: Sequence[Moment], cause: Explanation) -> list[Explanation]:
    """The first tracebacks that no row explains beside a known cause, each message once: a reader who doubts the cause
    must see them."""
    shown = {(proof.log, proof.offset) for proof in cause.evidence}
    said = {proof.text for proof in cause.evidence}
    found = []
    for moment in moments:
        if not is_own(moment) or role_of(moment) == "cause":
            continue
        record = moment.record
        line = short(line_of(record, moment.matched))
        if line in said:
            continue
        said.add(line)
        if (moment.log, record.offset) in shown:
            continue
        found.append(
            Explanation(
                OTHER_ERROR,
                "warning",
                f"another error: {short(told_of(record, moment.matched))}",
                "No rule explains it. It may come of the cause above, or be another failure.",
                _read_traceback(record),
                evidence=(evidence_of(moment, line),),
            )
        )
    return found[:OTHERS]


def unexplained(
    moments: Sequence[Moment], exits: Sequence[Exit], logs: Sequence[LogRecords], oom: str
) -> tuple[Explanation | None, tuple[Explanation, ...]]:
    """What is told instead of a cause, None where nothing failed; and what may have caused it, likeliest first.
    ``oom``: where the kernel has counted a kill lately, in words."""
    said, more = _said_by_shell(moments)
    if said is not None and all(signal_of(e) is None for e in exits):
        return said, more
    first = first_error(moments)
    launched = None if first is not None and _tells(first) else _said_by_launcher(moments)
    if launched is not None and all(signal_of(e) is None for e in exits):
        return launched
    unnatural = next((e for e in exits if signal_of(e) not in (None, *_ASKED)), None)
    exit_ = unnatural or (exits[0] if exits else None)
    proof = of_exits(exits)
    if first is None or (is_weak(first.record) and exit_ is not None):
        if exit_ is None:
            return None, ()
        silent = _silent(exit_, proof, _last_line(exit_, logs))
        return silent, guesses(signal.SIGTERM if silent.id == "stopped" else signal_of(exit_), "")
    text = _told(first)
    if is_weak(first.record):
        title = f"interrupted: {short(text)}; nothing before it says why"
        return (
            Explanation(
                "interrupted",
                "warning",
                title,
                "Somebody or something interrupted the process, and no error stands before it.",
                "If nobody interrupted it, look for what did: a batch system's time limit, or a parent that ended.",
                evidence=(evidence_of(first, text), *proof),
            ),
            (),
        )
    known = _of_consequence(first) if only_reports(first) else None
    killed = killed_for_memory(first, oom, proof)
    if killed is not None:
        return killed, ()
    what = "" if known is None else f": {point(known.title)}"
    if known is None or not any("ended-first" in match.signature.facts for match in first.matched):
        what += f"; {FIRST_ERROR}{short(text)}"
    number = None if exit_ is None else signal_of(exit_)
    # A process that reports its own exception and exits was ended by it, and not by the kernel.
    raised = known is None and number is None and _ended_itself(first.record)
    evidence = (evidence_of(first, line_of(first.record, first.matched)), *proof)
    told = deduced(first.record, evidence) if raised and not of_a_request(first.record) else None
    caught = logged(first.record) or (printed(first.record) and not first.ended)
    if told is not None and not (told.id == OWN_CODE and caught):
        return told, ()
    likely = guesses(number, text if raised else first.record.whole, raised=raised)
    return (
        Explanation(
            "unknown",
            "critical",
            f"cause unknown{what}",
            (_CAUGHT if caught else _UNEXPLAINED) if known is None else _why(known, first),
            (known and known.fix)
            or (f"{_READ_ON} {_or_check(likely[0])}" if likely else _read_traceback(first.record)),
            evidence=evidence,
        ),
        likely,
    )


def _told(moment: Moment) -> str:
    """The error in one line, with the place in own code where it was raised."""
    own = own_error(moment.record) if moment.record.kind == "traceback" else None
    if own is None or any("ended-first" in match.signature.facts for match in moment.matched):
        return told_of(moment.record, moment.matched)
    return own.headline


def _why(known: Explanation, moment: Moment) -> str:
    """Why, of a consequence; with the line of own code at which the program died of it, as nobody caught it."""
    why = known.cause or _ONLY_REPORTED
    raised = moment.record.raised
    origin = origin_of(moment.record, telling(raised)) if moment.ended and raised else None
    if origin is None or origin.package:
        return why
    code = f": {origin.at.code}" if origin.at.code else ""
    return f"{why} The program ended at {origin.at.path}:{origin.at.line}{code}."


def _ended_itself(record: Record) -> bool:
    return record.kind == "traceback" and bool(record.raised) and not is_wrapped(record)


def _read_traceback(record: Record) -> str:
    index = telling(record.raised)
    origin = origin_of(record, index)
    frame = record.raised[index].frame
    where = f": it was raised in {frame}" if frame else ""
    if origin is not None:
        where = f". {told_place(origin).rstrip('.')}"
    return f"Read the traceback of this error in the log{where}. Correct what it complains of."


def _of_consequence(moment: Moment) -> Explanation | None:
    """What the catalogue says of a consequence."""
    match = next((m for m in moment.matched if m.signature.role == "consequence"), None)
    return None if match is None else explained(match, ())


def _last_line(exit_: Exit, logs: Sequence[LogRecords]) -> Evidence | None:
    """The last line of its log, which may tell why a process exited, unless it tells that it was well."""
    log = next((log for log in logs if log.log == exit_.log), None)
    if log is None or log.last is None or log.last.kind == "healthy":
        return None
    lines = [line for line in log.last.whole.split("\n") if line.strip()]
    return Evidence(short(lines[-1]), log.log, log.last.offset) if lines else None


def _silent(exit_: Exit, proof: tuple[Evidence, ...], last: Evidence | None = None) -> Explanation:
    number = signal_of(exit_)
    if exit_.code == 0 and last is not None and _SHUT_DOWN.search(last.text):
        return Explanation(
            "stopped",
            "warning",
            f"{exit_.name} shut down in order; somebody or something asked it to (SIGTERM or SIGINT)",
            "Its log ends with the shutdown of a server that got a signal to stop.",
            _WHO_STOPPED_IT,
            evidence=(last, *proof),
        )
    if number is None and last is not None:
        return Explanation(
            "silent-exit",
            "critical",
            f"{exit_.name} {ending(exit_)} without an error in its log; its last line is: {last.text}",
            "No rule explains this exit. The last line may tell what it was doing.",
            f"Read the end of its log. {_or_check(guesses(None, last.text)[0])}",
            evidence=(last, *proof),
        )
    if number is None:
        return Explanation(
            "silent-exit",
            "critical",
            f"{exit_.name} {ending(exit_)}; {SAYS_NOTHING}",
            "It exited by itself without a word.",
            f"Start it once by hand to see what it does. {_or_check(guesses(None, '')[0])}",
            evidence=proof,
        )
    asked = number in _ASKED
    return Explanation(
        "stopped" if asked else "killed",
        "warning" if asked else "critical",
        f"{exit_.name} {ending(exit_)}; {SAYS_NOTHING}",
        "Somebody, a batch system or a parent process asked it to stop."
        if asked
        else "The process could not write why it ended, so its log cannot say it.",
        _WHO_STOPPED_IT if asked else _first_check(number),
        evidence=proof,
    )


def _or_check(guess: Explanation) -> str:
    """The likeliest reason, with its check, where an event, ``status`` or a header has no room for all of them."""
    return f"If that does not tell why: {guess.title}; check with: {guess.command}"


def _first_check(number: int) -> str:
    """What to do about a signal that nobody reports to have sent: the likeliest reason, with its check."""
    likeliest = guesses(number, "")[0]
    return f"Unless somebody killed it, {likeliest.title}. {likeliest.fix} Check: {likeliest.command}"


def _said_by_shell(moments: Sequence[Moment]) -> tuple[Explanation | None, tuple[Explanation, ...]]:
    """A shell reports how its child ended, while nothing else in the logs is wrong."""
    for place, moment in enumerate(moments):
        if moment.record.kind != "shell" or moment.survived or role_of(moment) == "noise":
            continue
        number = next((n for p, n in _SHELL_SIGNALS if p.search(moment.record.whole)), None)
        if number is None:
            continue
        if any(weight_of(other) == 0 for other in moments[:place]):
            return None, ()
        text = moment.record.text
        found = _silent(Exit("a process", signal=int(number)), (evidence_of(moment, text),))
        return found, guesses(int(number), text)
    return None, ()


def _said_by_launcher(moments: Sequence[Moment]) -> tuple[Explanation, tuple[Explanation, ...]] | None:
    """A launcher reports the signal that ended its child, while nothing tells why."""
    for moment in moments:
        reported = None if moment.survived else reported_signal(moment.record.whole)
        if reported is not None and reported.number not in _ASKED:
            ended = Exit("a process", signal=reported.number)
            silent = _silent(ended, (evidence_of(moment, reported.line),))
            return silent, guesses(reported.number, reported.line)
    return None


def _tells(moment: Moment) -> bool:
    """Whether an error tells more than the signal that a launcher reports: an error of its own, or a consequence that
    names what failed."""
    if role_of(moment) != "consequence":
        return True
    return (
        any("ended-first" in one.signature.facts for one in moment.matched)
        and reported_signal(moment.record.whole) is None
    )
