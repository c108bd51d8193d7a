"""Which record is the error that ended something, by rules of thumb, and how it reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liverl.causes.finding import Evidence
from liverl.causes.match import Match
from liverl.causes.signature import Signature
from liverl.causes.verdict.chain import kind, telling
from liverl.causes.verdict.main_program import printed
from liverl.causes.verdict.timeline import Moment
from liverl.causes.verdict.words import short
from liverl.logs.record import Raised, Record
from liverl.logs.tracebacks import breaks_off
from liverl.util.late_pattern import late_pattern

OF_A_REQUEST = 5  # the weight of an error that a server handled
_WEAK = frozenset(("KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit", "BrokenPipeError"))
# A failed request or prompt: the server, or verl's agent loop, goes on after it.
_HANDLED = late_pattern(
    r"Exception in ASGI application|Error handling request|(?:Task|Future) exception was never retrieved|"
    # LiteLLM's records, without their head
    r"litellm\.proxy\.[\w.]{1,80}\(\): Exception occured - |^litellm\.\w{1,40}Error: |LiteLLM\.LoggingError|"
    r"HTTP/1\.1\" [45]\d\d|Error in extracting tool call|Error when executing tool: |"
    # vLLM's servers and parsers of tool calls, 0.6 to 0.24
    r"Error in (?:preprocessing prompt inputs|applying chat template|(?:chat )?completion stream|message stream|"
    r"token generation stream|streaming tool call|parser creation|create_messages|count_tokens)|"
    r"Error (?:trying to handle streaming tool call|extracting tool calls|preparing request components)|"
    r"Error parsing \S{1,40} (?:streaming )?tool call output|"
    r"An error occurred in `\w{1,40}` while applying chat template|"
    r"(?:RequestValidationError|HTTPException|Engine Exception) caught\. Request id"
)
# What a library raises to report that another process failed.
_WRAPPER = late_pattern(
    r"(?:RayTaskError|RayActorError|ActorDiedError|ActorUnavailableError|ChildFailedError|EngineDeadError|"
    r"WorkerCrashedError|ProcessRaisedException|BrokenProcessPool)(?:\(|$)"
)
_LETTER = late_pattern(r"[^\W\d_]")
_NAMED = late_pattern(r"[a-z](?:Error|Exception)\b")
# What Ray's and glog's handler prints of a process that was asked to stop, with its stack.
_STOPPED = late_pattern(r"\*\*\* SIG(?:TERM|INT|HUP) received|^\s{0,40}(?:PC: )?@ {1,20}0x[0-9a-f]{1,16} ")
_HANDLED_WRITER = "AgentLoopWorker"
# Where Ray's guesses begin, and the whole command line that Hydra repeats.
_SPECULATION = late_pattern(
    r"There are some potential root causes|Some common causes include:|Possible reasons include: \(1\)"
    r"|(?<=Error executing job with overrides): \["
)
_VALIDATION = late_pattern(r"\d{1,9} validation errors? for ")


def first_error(moments: Sequence[Moment]) -> Moment | None:
    """The error that ended something, by rules of thumb: by how much it tells, then by time. What a program printed of
    exceptions that it had caught gives way to the one of which it died."""
    best: tuple[int, Moment] | None = None
    for moment in moments:
        rank = weight_of(moment)
        if rank is not None and (best is None or rank < best[0]):
            best = rank, moment
    if best is None or not printed(best[1].record):
        return None if best is None else best[1]
    own = best[1].log, best[1].record.voice
    died = (m for m in moments if m.ended and (m.log, m.record.voice) == own and weight_of(m) == best[0])
    return next(died, best[1])


def weight_of(moment: Moment) -> int | None:
    """How little an error tells: 0 an error that nothing else explains; None for what is no error."""
    record, role = moment.record, role_of(moment)
    if moment.survived or role == "noise" or record.kind in ("ignored", "thread", "healthy", "shell"):
        return None
    if any("ended-first" in match.signature.facts for match in moment.matched):
        return 2
    if record.kind != "traceback" and (record.level != "error" or not _LETTER.search(record.text)):
        return None
    told = [match.signature for match in moment.matched if match.signature.role != "noise"]
    told = [signature for signature in told if signature.role != "general"] or told
    if told and all(goes_on(moment, signature) for signature in told):
        return None
    if told and all(signature.role == "waits" for signature in told):
        return 2
    if is_weak(record):
        return 6
    if only_reports(moment):
        return 3 if record.raised or _NAMED.search(record.whole) else 4
    if of_a_request(record):
        return OF_A_REQUEST
    if _HANDLED_WRITER in record.writer:
        return 2
    return 0 if record.kind == "traceback" else 1


def goes_on(moment: Moment, row: Signature) -> bool:
    """Whether a process goes on after what a row tells: not if nobody caught that exception, and the process died."""
    return row.alive and not (moment.ended and row.fails in ("part", "request"))


def is_own(moment: Moment) -> bool:
    """Whether it is the traceback of an error of its process: no wait, and no report of another failure or request."""
    return moment.record.kind == "traceback" and weight_of(moment) == 0


def of_a_request(record: Record) -> bool:
    """Whether a server logged that a request failed: it goes on, so that this ended nothing."""
    return _HANDLED.search(record.whole) is not None


def causes_of(moment: Moment) -> list[Match]:
    """The causes that a record names, without those in a line that is known to explain nothing."""
    noise = {match.text for match in moment.matched if match.signature.role == "noise"}
    return [
        match
        for match in moment.matched
        if match.signature.explains and not any(match.text in line for line in noise)
    ]


def role_of(moment: Moment) -> str:
    """What the catalogue takes a record for, the strongest role first; "" if it does not know it."""
    roles = {match.signature.role for match in moment.matched if not match.signature.explains}
    roles |= {"cause"} if causes_of(moment) else set()
    return next((role for role in ("cause", "noise", "consequence") if role in roles), "")


def only_reports(moment: Moment) -> bool:
    """Whether it only reports that something else failed. A chain whose most telling exception is no consequence tells
    what failed, whatever reported it: Ray's wrapper, or "WorkerProc failed to start.", stands before the exception."""
    raised = moment.record.raised
    if not raised:
        return role_of(moment) == "consequence"
    consequences = {m.raised for m in moment.matched if m.signature.role == "consequence"}
    return telling(raised) in consequences or is_wrapped(moment.record)


def is_weak(record: Record) -> bool:
    """Whether it only says that its process was interrupted or asked to stop."""
    if _STOPPED.search(record.text):
        return True
    if record.raised:
        return all(kind(one) in _WEAK for one in record.raised)
    return record.text.strip().partition(":")[0].rpartition(".")[2] in _WEAK


def is_wrapped(record: Record) -> bool:
    """Whether its most telling exception is one that reports the failure of another process."""
    return bool(record.raised) and _WRAPPER.search(record.raised[telling(record.raised)].type) is not None


def line_of(record: Record, matched: Sequence[Match]) -> str:
    """The line that stands in the log."""
    ended = next((m.text for m in matched if "ended-first" in m.signature.facts), None)
    if ended is not None:
        return without_speculation(ended)
    if record.raised:
        chosen = record.raised[telling(record.raised)]
        lines = chosen.text.split("\n")
        # "1 validation error for ModelConfig" says nothing without the next line.
        more = len(lines) > 1 and (_VALIDATION.search(lines[0]) or lines[0].rstrip().endswith(":"))
        return f"{lines[0].rstrip(': ')}: {lines[1].strip()}" if more else lines[0]
    own = next((m.text for m in matched if m.signature.role == "consequence"), None)
    return without_speculation(own or record.text)


def told_of(record: Record, matched: Sequence[Match]) -> str:
    """That line, and for an exception without words the place where it was raised."""
    line = line_of(record, matched)
    if not record.raised and (frame := breaks_off((record.text, *record.more))):
        return f"a traceback that breaks off at {frame}"
    if not record.raised or any("ended-first" in match.signature.facts for match in matched):
        return line
    return line + _place(record.raised[telling(record.raised)])


def _place(raised: Raised) -> str:
    if len(raised.message) > 20 or not raised.frame:
        return ""
    source = raised.source.strip()
    if not source or (raised.message and raised.message in source):  # as in: raise ValueError("the message")
        return f" ({raised.frame})"
    return f" ({raised.frame}: {source})"


def evidence_of(moment: Moment, text: str) -> Evidence:
    """``text`` as proof, with the place of its record."""
    return Evidence(short(text), moment.log, moment.record.offset)


def without_speculation(text: str) -> str:
    """A line without what Ray guesses at, and without the command line that Hydra repeats."""
    found = _SPECULATION.search(text)
    return text if found is None else text[: found.start()].rstrip()
