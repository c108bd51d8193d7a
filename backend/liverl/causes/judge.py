"""Records of logs and exit statuses to a verdict: the cause, its proof, and what to do. Pure.

What counts, in this order:

1. a process killed for memory, which its cgroup counted;
2. the earliest record that a signature of role ``cause`` explains, and that its process did not survive; one of a
   library before one of Python itself, such as MemoryError;
3. what a living process complained of until the end (``alive``), which is why somebody or a time-out ended it;
4. how a process ended, if its log has no error: a log whose last line is healthy explains nothing;
5. the first error that no signature explains, and then the first consequence, both as "cause unknown".
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from liverl.causes.catalogue import SIGNATURES
from liverl.causes.catalogue.noise import ASKED_TO_STOP
from liverl.causes.chain import kind, telling
from liverl.causes.finding import Evidence, Exit, Explanation, LogRecords, Verdict
from liverl.causes.guesses import guesses
from liverl.causes.launchers import reported_signal
from liverl.causes.match import Match
from liverl.causes.signature import Signature
from liverl.causes.timeline import Moment, timeline
from liverl.causes.words import ending, explained, point, short, signal_of
from liverl.logs.record import Raised, Record

SYMPTOMS = 12  # of one verdict; more help nobody
FIRST_ERROR = "the first error was: "  # in the title of a verdict that does not know why, before the error
# What a verdict is called that does not know why: another log may tell more.
UNEXPLAINED = frozenset(("unknown", "interrupted", "stopped", "silent-exit", "killed"))
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # somebody stopped it: no failure of its own
_UNEXPLAINED = "No rule explains this error; it is the earliest one that the process did not survive."
_ONLY_REPORTED = "It reports that something else failed, and nothing that was read says why that did."
_READ_ON = "Read the log from there on."
_WHO_STOPPED_IT = (
    "Look for who stopped it: a user, a time limit of the batch system, or a parent process that ended."
)
# The last line of servers that got a signal to stop: uvicorn and vLLM, and liverl's own.
_SHUT_DOWN = re.compile(
    r"Finished server process \[|liverl-(?:sessions|proxy): (?:generation \d+ )?(?:has )?stopped"
)
_WEAK = frozenset(("KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit", "BrokenPipeError"))
# A failed request or prompt: the server, or verl's agent loop, goes on after it.
_HANDLED = re.compile(
    r"Exception in ASGI application|Error handling request|(?:Task|Future) exception was never retrieved|"
    r"LiteLLM[\w ]*:ERROR|LiteLLM\.LoggingError|"
    r"HTTP/1\.1\" [45]\d\d|Error in extracting tool call"
)
# What a library raises to report that another process failed.
_WRAPPER = re.compile(
    r"(?:RayTaskError|RayActorError|ActorDiedError|ActorUnavailableError|ChildFailedError|EngineDeadError|"
    r"WorkerCrashedError|ProcessRaisedException|BrokenProcessPool)(?:\(|$)"
)
_LETTER = re.compile(r"[^\W\d_]")
_NAMED = re.compile(r"[a-z](?:Error|Exception)\b")
# What Ray's and glog's handler prints of a process that was asked to stop, with its stack.
_STOPPED = re.compile(r"\*\*\* SIG(?:TERM|INT|HUP) received|^\s*(?:PC: )?@ +0x[0-9a-f]+ ")
_HANDLED_WRITER = "AgentLoopWorker"
# What Ray guesses, and the whole command line that Hydra repeats.
_SPECULATION = re.compile(
    r"\s*(?:There are some potential root causes|Some common causes include:|Possible reasons include: \(1\)).*|"
    r"(?<=Error executing job with overrides): \[.*",
    re.DOTALL,
)
_VALIDATION = re.compile(r"\d+ validation errors? for ")
_MEMORY = re.compile(r"oom|memory", re.IGNORECASE)
# What says that a process is gone, and not why.
_PROCESS_GONE = frozenset(
    (
        *(
            "actor-died-named",
            "actor-died",
            "actor-unavailable",
            "worker-exit-system-error",
            "worker-crashed",
        ),
        *(
            "gcs-worker-exit",
            "ray-part-exited",
            "raylet-terminated",
            "raylet-died",
            "engine-core-ended",
            "engine-dead",
        ),
    )
)
_MEMORY_LIMIT = (
    "the memory limit of its container, Slurm job or service was reached, or the host had no memory left."
)
_LESS_MEMORY = (
    "Raise the memory limit of the container or job (Slurm: --mem), or use less memory: fewer or smaller workers."
)  # fmt: skip
_LOOK_AT_MEMORY = "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory.max"
NEAR_THE_END = 2048  # bytes of a log, in which a script ends after a command that failed
_SHELL_SIGNALS = (
    (re.compile(r"Segmentation fault"), signal.SIGSEGV),
    (re.compile(r"Bus error"), signal.SIGBUS),
    (re.compile(r"Aborted"), signal.SIGABRT),
    (re.compile(r"\bKilled\b"), signal.SIGKILL),
    (re.compile(r"\bTerminated\b"), signal.SIGTERM),
)


_Hit = tuple[Moment, Match]


def judge(
    logs: Sequence[LogRecords], exits: Sequence[Exit] = (), signatures: Sequence[Signature] = SIGNATURES
) -> Verdict:
    """Why a run, or one process, ended, from what was read of its logs and from how its processes ended.

    ``exits``: as far as known; with some, and all of them 0, nothing failed and there are only symptoms. Without any,
    the logs alone tell whether something failed.
    """
    moments = _without_stops([m for m in timeline(logs, signatures) if m.record.kind != "healthy"])
    hits = [(m, match) for m in moments for match in _causes(m)]
    open_hits = [
        (m, match) for m, match in hits if not m.survived and m.record.kind not in ("ignored", "thread")
    ]
    fatal = [
        hit
        for hit in open_hits
        if not hit[1].signature.alive
        and not (_of_a_request(hit[0].record) or _mentioned(*hit))
        and (exits or not _harmless(*hit))
    ]
    alive = _without_slips(
        [hit for hit in hits if hit[1].signature.alive and hit[1].signature.component != "shell"]
    )
    scripts = [hit for hit in open_hits if hit[1].signature.component == "shell"]
    failed = [e for e in exits if _failed(e)]
    over = not exits or bool(failed)

    cause: Explanation | None = None
    more: tuple[Explanation, ...] = ()
    if over:
        cause = _memory_kill(failed, fatal) or _catalogued(fatal, moments, failed)
        if cause is None:
            served = {} if exits else {log.log: log.served for log in logs}
            lasting = [hit for hit in alive if _lasted(hit, alive, served)]
            cause = _waited_for(lasting, moments, failed) or _reported(moments, alive, failed)
        if cause is None:
            cause = _script_failed(scripts, moments, failed, logs)
        if cause is None:
            cause, more = _unexplained([m for m in moments if exits or not m.outlived], failed, logs)
    return Verdict(cause, more, _symptoms(cause, fatal if over else [], alive))


def _causes(moment: Moment) -> list[Match]:
    """The causes that a record names, without those in a line that is known to explain nothing."""
    noise = {match.text for match in moment.matched if match.signature.role == "noise"}
    return [match for match in moment.matched if match.signature.role == "cause" and match.text not in noise]


def _without_stops(moments: Sequence[Moment]) -> list[Moment]:
    """The records without what the processes of an engine report of each other once it was asked to stop. Nothing in
    its log is known to have ended it then."""
    asked = {m.log for m in moments if any(match.signature.id == ASKED_TO_STOP for match in m.matched)}
    kept, stopping = [], set()
    for moment in moments:
        if moment.log not in asked:
            kept.append(moment)
            continue
        if any(match.signature.id == ASKED_TO_STOP for match in moment.matched):
            stopping.add(moment.log)
        roles = {match.signature.role for match in moment.matched}
        if moment.log not in stopping or "consequence" not in roles or "cause" in roles:
            kept.append(replace(moment, outlived=True))
    return kept


def _failed(exit_: Exit) -> bool:
    if exit_.code is None:
        return exit_.signal is not None or exit_.oom_kills > 0
    return exit_.code != 0 or exit_.unasked


def _of_a_request(record: Record) -> bool:
    """Whether a server logged that a request failed: it goes on, so that this ended nothing."""
    return _HANDLED.search(record.whole) is not None


def _without_slips(alive: Sequence[_Hit]) -> list[_Hit]:
    """Complaints without those that are as few in their log as mistakes of models usually are."""
    often = Counter((moment.log, match.signature.id) for moment, match in alive)
    return [hit for hit in alive if often[hit[0].log, hit[1].signature.id] > hit[1].signature.slips]


def _harmless(moment: Moment, match: Match) -> bool:
    """Whether a server only logged a general error, or only warned, and was well at the end of its log."""
    general = match.signature.component == "python" or moment.record.level == "warning"
    return moment.outlived and general


def _mentioned(moment: Moment, match: Match) -> bool:
    """Whether a general error is only named, in a message that is none: a package that is missing, for example."""
    return match.signature.component == "python" and moment.record.level not in (None, "error")


def _rank(hit: _Hit) -> tuple[bool, bool]:
    signature = hit[1].signature
    return (signature.component == "python", signature.severity == "info")


def _catalogued(
    fatal: Sequence[_Hit], moments: Sequence[Moment], exits: Sequence[Exit]
) -> Explanation | None:
    if not fatal:
        return None
    best = min(_rank(hit) for hit in fatal)
    first = next(hit for hit in fatal if _rank(hit) == best)
    if first[1].signature.effect and first[1].signature.component != "python":
        component = first[1].signature.component
        others = (h for h in fatal if h[1].signature.component == component and not h[1].signature.effect)
        first = next(others, first)
        best = _rank(first)
    told = _of_one_record(first, best, fatal)
    return _killed_for_memory(told[0], exits, _of_exits(exits)) or _with_proof(told, fatal, moments, exits)


def _lasted(hit: _Hit, alive: Sequence[_Hit], served: Mapping[str, int]) -> bool:
    """Whether a complaint went on until the end. A request that failed is never why a process ended; without exits it
    may be what is wrong with a server that answers none, although probes of its health are answered.

    ``served``: of each log the byte of the last request that was answered; empty if it is known how processes ended.
    """
    moment, match = hit
    if moment.survived:
        return False
    if match.signature.request and not -1 <= served.get(moment.log, moment.record.end) < moment.record.offset:
        return False
    return not moment.outlived or sum(other.signature.id == match.signature.id for _, other in alive) > 1


def _of_one_record(first: _Hit, best: tuple[bool, bool], fatal: Sequence[_Hit]) -> _Hit:
    """Of the causes that one record names, that of the exception which the chain is about; else the catalogue's
    first, where special signatures precede general ones."""
    same = [hit for hit in fatal if hit[0] is first[0] and _rank(hit) == best]
    same = [hit for hit in same if not hit[1].signature.effect] or same
    if len(same) < 2 or not first[0].record.raised:
        return first
    wanted = telling(first[0].record.raised)
    return min(same, key=lambda hit: len(same) if hit[1].raised is None else abs(hit[1].raised - wanted))


def _with_proof(
    hit: _Hit, fatal: Sequence[_Hit], moments: Sequence[Moment], exits: Sequence[Exit]
) -> Explanation:
    moment, match = hit
    proof = [_evidence(moment, match.text)]
    again = [m for m, other in fatal if other.signature.id == match.signature.id and m is not moment]
    proof += [_evidence(m, _text_of(m, match.signature.id)) for m in again[:2]]
    after = _consequence_of(match, moments, moment)
    if after is not None:
        proof.append(after)
    return explained(match, (*proof, *_of_exits(exits)))


def _of_exits(exits: Sequence[Exit]) -> tuple[Evidence, ...]:
    return tuple(Evidence(f"{e.name} {ending(e)}", e.log or None) for e in exits[:3])


def _text_of(moment: Moment, wanted: str) -> str:
    return next((m.text for m in moment.matched if m.signature.id == wanted), moment.record.text)


def _consequence_of(match: Match, moments: Iterable[Moment], cause: Moment) -> Evidence | None:
    """The first record after the cause that only reports it."""
    own = match.signature.id
    for moment in moments:
        if moment.at < cause.at or moment is cause:
            continue
        for other in moment.matched:
            signature = other.signature
            if signature.role == "consequence" and (not signature.of or own in signature.of):
                return _evidence(moment, _SPECULATION.sub("", other.text))
    return None


def _evidence(moment: Moment, text: str) -> Evidence:
    return Evidence(short(text), moment.log, moment.record.offset)


def _memory_kill(exits: Sequence[Exit], fatal: Sequence[_Hit]) -> Explanation | None:
    """A cgroup's count proves what no log of the killed process can say."""
    killed = next((e for e in exits if e.oom_kills), None)
    if killed is None or any(_MEMORY.search(match.signature.id) for _, match in fatal):
        return None
    return Explanation(
        "cgroup-oom-kill",
        "critical",
        f"{killed.name} was killed for memory by the kernel's OOM killer",
        f"The kernel ended {_counted(killed.oom_kills, 'process', 'processes')} of {killed.name}: {_MEMORY_LIMIT}",
        _LESS_MEMORY,
        _LOOK_AT_MEMORY,
        {},
        (
            Evidence(
                killed.oom or f"memory.events of {killed.name}: oom_kill {killed.oom_kills}",
                value=float(killed.oom_kills),
            ),
            Evidence(f"{killed.name} {ending(killed)}", killed.log or None),
        ),
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _waited_for(
    alive: Sequence[_Hit], moments: Sequence[Moment], exits: Sequence[Exit]
) -> Explanation | None:
    """What a process complained of, again and again or last, before somebody or a time-out ended it."""
    if not alive:
        return None
    other = _first_error(moments)
    if other is not None and not _weak(other.record):
        return None
    best = min(_rank(hit) for hit in alive)
    first = next(hit for hit in alive if _rank(hit) == best)
    if first[1].signature.severity == "info":
        return None
    return _with_proof(first, alive, moments, exits)


def _reported(moments: Sequence[Moment], alive: Sequence[_Hit], exits: Sequence[Exit]) -> Explanation | None:
    """The newest complaint before the error that a process ended with, where that error reports such complaints: all
    trials of a batch failed, for example, each as its own line says."""
    error = _first_error(moments)
    if error is None:
        return None
    for match in error.matched:
        before = [h for h in alive if h[0].at <= error.at and h[1].signature.id in match.signature.of]
        if before:
            return _with_proof(before[-1], before, moments, exits)
    return None


def _script_failed(
    scripts: Sequence[_Hit], moments: Sequence[Moment], exits: Sequence[Exit], logs: Sequence[LogRecords]
) -> Explanation | None:
    """What a launch script could not do, as the last thing before it ended. Scripts go on after most of such lines, so
    that it counts only where its log ends, or a launcher reports the end, and nothing else is wrong."""
    other = _first_error([m for m in moments if all(m is not hit[0] for hit in scripts)])
    if not scripts or (other is not None and _role(other) != "consequence" and not _weak(other.record)):
        return None
    last = scripts[-1]
    log = next((log for log in logs if log.log == last[0].log), None)
    if log is not None and any(r.kind == "healthy" and r.offset > last[0].record.offset for r in log.records):
        return None
    end = log.last.end if log is not None and log.last is not None else 0
    if other is None and end - last[0].record.end > NEAR_THE_END:
        return None
    return _with_proof(last, scripts, moments, exits)


def _unexplained(
    moments: Sequence[Moment], exits: Sequence[Exit], logs: Sequence[LogRecords]
) -> tuple[Explanation | None, tuple[Explanation, ...]]:
    said, more = _said_by_shell(moments)
    if said is not None and all(signal_of(e) is None for e in exits):
        return said, more
    first = _first_error(moments)
    launched = None if first is not None and _tells(first) else _said_by_launcher(moments)
    if launched is not None and all(signal_of(e) is None for e in exits):
        return launched
    unnatural = next((e for e in exits if signal_of(e) not in (None, *_ASKED)), None)
    exit_ = unnatural or (exits[0] if exits else None)
    proof = _of_exits(exits)
    if first is None or (_weak(first.record) and exit_ is not None):
        if exit_ is None:
            return None, ()
        silent = _silent(exit_, proof, _last_line(exit_, logs))
        return silent, guesses(signal.SIGTERM if silent.id == "stopped" else signal_of(exit_), "")
    text = _told(first.record, first.matched)
    if _weak(first.record):
        title = f"interrupted: {short(text)}; nothing before it says why"
        return (
            Explanation(
                "interrupted",
                "warning",
                title,
                "Somebody or something interrupted the process, and no error stands before it.",
                "If nobody interrupted it, look for what did: a batch system's time limit, or a parent that ended.",
                evidence=(_evidence(first, text), *proof),
            ),
            (),
        )
    known = _of_consequence(first) if _only_reports(first) else None
    killed = _killed_for_memory(first, exits, proof)
    if killed is not None:
        return killed, ()
    what = "" if known is None else f": {point(known.title)}"
    if known is None or not any(match.signature.tells for match in first.matched):
        what += f"; {FIRST_ERROR}{short(text)}"
    number = None if exit_ is None else signal_of(exit_)
    # A process that reports its own exception and exits was ended by it, and not by the kernel.
    raised = known is None and number is None and _ended_itself(first.record)
    likely = guesses(number, text if raised else first.record.whole, raised=raised)
    return (
        Explanation(
            "unknown",
            "critical",
            f"cause unknown{what}",
            _UNEXPLAINED if known is None else known.cause or _ONLY_REPORTED,
            (known and known.fix)
            or (f"{_READ_ON} {_or_check(likely[0])}" if likely else _read_traceback(first.record)),
            evidence=(_evidence(first, _line(first.record, first.matched)), *proof),
        ),
        likely,
    )


def _ended_itself(record: Record) -> bool:
    return record.kind == "traceback" and bool(record.raised) and not _wrapped(record)


def _read_traceback(record: Record) -> str:
    frame = record.raised[telling(record.raised)].frame
    where = f": it was raised in {frame}" if frame else ""
    return f"Read the traceback of this error in the log{where}. Correct what it complains of."


def _killed_for_memory(
    first: Moment, exits: Sequence[Exit], proof: tuple[Evidence, ...]
) -> Explanation | None:
    """Why a process is gone of which the log only says that it ended, if the kernel has just killed one for memory."""
    oom = next((e.oom for e in exits if e.oom), None)
    match = next((m for m in first.matched if m.signature.id in _PROCESS_GONE), None)
    if oom is None or match is None:
        return None
    actor, part = match.groups.get("actor"), match.groups.get("part")
    who = f"Ray's {part}" if part else "a process of the run"
    if actor:
        who = f"the Ray actor {actor} (pid {match.groups['pid']})"
    return Explanation(
        "cgroup-oom-kill",
        "critical",
        f"{who} was killed for memory by the kernel's OOM killer",
        f"The kernel ended a process for memory at that time: {_MEMORY_LIMIT}",
        _LESS_MEMORY,
        _LOOK_AT_MEMORY,
        {},
        (_evidence(first, _line(first.record, first.matched)), Evidence(oom), *proof),
    )


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
            f"{exit_.name} {ending(exit_)}; its log says nothing about it",
            "It exited by itself without a word.",
            f"Start it once by hand to see what it does. {_or_check(guesses(None, '')[0])}",
            evidence=proof,
        )
    asked = number in _ASKED
    return Explanation(
        "stopped" if asked else "killed",
        "warning" if asked else "critical",
        f"{exit_.name} {ending(exit_)}; its log says nothing about it",
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
        if moment.record.kind != "shell" or moment.survived or _role(moment) == "noise":
            continue
        number = next((n for p, n in _SHELL_SIGNALS if p.search(moment.record.whole)), None)
        if number is None:
            continue
        if any(_weight(other) == 0 for other in moments[:place]):
            return None, ()
        text = moment.record.text
        found = _silent(Exit("a process", signal=int(number)), (_evidence(moment, text),))
        return found, guesses(int(number), text)
    return None, ()


def _said_by_launcher(moments: Sequence[Moment]) -> tuple[Explanation, tuple[Explanation, ...]] | None:
    """A launcher reports the signal that ended its child, while nothing tells why."""
    for moment in moments:
        reported = None if moment.survived else reported_signal(moment.record.whole)
        if reported is not None and reported.number not in _ASKED:
            ended = Exit("a process", signal=reported.number)
            silent = _silent(ended, (_evidence(moment, reported.line),))
            return silent, guesses(reported.number, reported.line)
    return None


def _tells(moment: Moment) -> bool:
    """Whether an error tells more than the signal that a launcher reports: an error of its own, or a consequence that
    names what failed."""
    if _role(moment) != "consequence":
        return True
    return any(one.signature.tells for one in moment.matched) and reported_signal(moment.record.whole) is None


def _role(moment: Moment) -> str:
    roles = {match.signature.role for match in moment.matched}
    return next((role for role in ("cause", "noise", "consequence") if role in roles), "")


def _first_error(moments: Sequence[Moment]) -> Moment | None:
    """The error that ended something, by rules of thumb: by how much it tells, then by time."""
    best: tuple[int, Moment] | None = None
    for moment in moments:
        rank = _weight(moment)
        if rank is not None and (best is None or rank < best[0]):
            best = rank, moment
    return None if best is None else best[1]


def _weight(moment: Moment) -> int | None:
    """How little an error tells: 0 an error that nothing else explains; None for what is no error."""
    record, role = moment.record, _role(moment)
    if moment.survived or role == "noise" or record.kind in ("ignored", "thread", "healthy", "shell"):
        return None
    if any(match.signature.tells for match in moment.matched):
        return 2
    if record.kind != "traceback" and (record.level != "error" or not _LETTER.search(record.text)):
        return None
    told = [match.signature for match in moment.matched if match.signature.role != "noise"]
    told = [signature for signature in told if signature.component != "python"] or told
    if told and all(signature.alive for signature in told):
        return None
    if _weak(record):
        return 6
    if _only_reports(moment):
        return 3 if record.raised or _NAMED.search(record.whole) else 4
    if _of_a_request(record):
        return 5
    if _HANDLED_WRITER in record.writer:
        return 2
    return 0 if record.kind == "traceback" else 1


def _only_reports(moment: Moment) -> bool:
    """Whether it only reports that something else failed. A chain whose most telling exception is no consequence tells
    what failed, whatever reported it: Ray's wrapper, or "WorkerProc failed to start.", stands before the exception."""
    raised = moment.record.raised
    if not raised:
        return _role(moment) == "consequence"
    consequences = {m.raised for m in moment.matched if m.signature.role == "consequence"}
    return telling(raised) in consequences or _wrapped(moment.record)


def _weak(record: Record) -> bool:
    if _STOPPED.search(record.text):
        return True
    if record.raised:
        return all(kind(one) in _WEAK for one in record.raised)
    return record.text.strip().partition(":")[0].rpartition(".")[2] in _WEAK


def _wrapped(record: Record) -> bool:
    return bool(record.raised) and _WRAPPER.search(record.raised[telling(record.raised)].type) is not None


def _line(record: Record, matched: Sequence[Match]) -> str:
    """The line that stands in the log."""
    ended = next((m.text for m in matched if m.signature.tells), None)
    if ended is not None:
        return _SPECULATION.sub("", ended)
    if record.raised:
        chosen = record.raised[telling(record.raised)]
        lines = chosen.text.split("\n")
        # "1 validation error for ModelConfig" says nothing without the next line.
        more = len(lines) > 1 and (_VALIDATION.search(lines[0]) or lines[0].rstrip().endswith(":"))
        return f"{lines[0].rstrip(': ')}: {lines[1].strip()}" if more else lines[0]
    own = next((m.text for m in matched if m.signature.role == "consequence"), None)
    return _SPECULATION.sub("", own or record.text)


def _told(record: Record, matched: Sequence[Match]) -> str:
    """That line, and for an exception without words the place where it was raised."""
    line = _line(record, matched)
    if not record.raised or any(match.signature.tells for match in matched):
        return line
    return line + _place(record.raised[telling(record.raised)])


def _place(raised: Raised) -> str:
    if len(raised.message) > 20 or not raised.frame:
        return ""
    source = raised.source.strip()
    if not source or (raised.message and raised.message in source):  # as in: raise ValueError("the message")
        return f" ({raised.frame})"
    return f" ({raised.frame}: {source})"


def _is_proof(hit: _Hit, cause: Explanation | None) -> bool:
    """Whether the record of a hit is the one that proves the cause, which another row explains better."""
    first = cause.evidence[0] if cause is not None and cause.evidence else None
    return first is not None and (first.log, first.offset) == (hit[0].log, hit[0].record.offset)


def _symptoms(
    cause: Explanation | None,
    fatal: Sequence[_Hit],
    alive: Sequence[_Hit],
) -> tuple[Explanation, ...]:
    """What else is wrong: each kind once, with its first and its last record."""
    seen = {cause.id} if cause is not None else set()
    of_cause = {(one.log, one.offset) for one in cause.evidence[:1]} if cause is not None else set()
    found = []
    # An error of Python itself comes of that of a library beside it.
    general = min((_rank(hit)[0] for hit in fatal), default=False)
    fatal = [hit for hit in fatal if _rank(hit)[0] == general]
    for hit in (*alive, *fatal):
        own = hit[1].signature.id
        if own in seen or (hit[1].signature.effect and seen) or _is_proof(hit, cause):
            continue
        if (hit[0].log, hit[0].record.offset) in of_cause:  # one record tells of one failure
            continue
        seen.add(own)
        all_of = [h for h in (*alive, *fatal) if h[1].signature.id == own]
        proof = [_evidence(all_of[0][0], all_of[0][1].text)]
        if len(all_of) > 1:
            proof.append(_evidence(all_of[-1][0], all_of[-1][1].text))
        found.append(explained(hit[1], tuple(proof)))
    return tuple(found[:SYMPTOMS])
