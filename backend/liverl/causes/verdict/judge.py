"""Records of logs and exit statuses to a verdict: the cause, its proof, and what to do. Pure.

What counts, in this order:

1. a process killed for memory, which its cgroup counted;
2. the earliest record that a signature of role ``cause`` explains, and that its process did not survive; one of a
   library before one of Python itself, such as MemoryError; an error of another process before a wait for it
   (``waits``); and an error of the run, explained or not, before an end from outside that followed it, such as a time
   limit. An exception of own code of which a program died (``uncaught``) comes before what Python itself says;
3. what a living process complained of until the end (``alive``), which is why somebody or a time-out ended it;
4. how a process ended, if its log has no error: a log whose last line is healthy explains nothing;
5. the first error that no signature explains, and then the first consequence, both as "cause unknown".
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from liverl.causes.finding import Evidence, Exit, Explanation, LogRecords, Verdict
from liverl.causes.match import Match, Matcher
from liverl.causes.verdict.chain import telling
from liverl.causes.verdict.errors import (
    causes_of,
    evidence_of,
    first_error,
    goes_on,
    is_own,
    is_weak,
    of_a_request,
    role_of,
    weight_of,
    without_speculation,
)
from liverl.causes.verdict.frames import origin_of, told_place, versions_command
from liverl.causes.verdict.gpu_neighbours import with_neighbours
from liverl.causes.verdict.memory_kills import killed_for_memory, memory_kill
from liverl.causes.verdict.outside import is_older
from liverl.causes.verdict.timeline import Hit, Moment, timeline
from liverl.causes.verdict.uncaught import uncaught
from liverl.causes.verdict.unexplained import failed_requests, other_errors, unexplained
from liverl.causes.verdict.waits import without_waits
from liverl.causes.verdict.words import REWARD_FILE, explained, of_exits, short
from liverl.logs.record import Record
from liverl.util.late_pattern import late_pattern

_REWARD_FILE = late_pattern(r"custom_reward_function\.path=([^\s'\",]{1,300})")
# An exception's name and message within a line, not at its beginning; and that a program goes to try again.
QUOTED = late_pattern(r"\S[ \t]{1,8}(?:\w{1,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): ")
TRIES_AGAIN = late_pattern(
    r"\b(?:[Rr]etrying (?:in|after|request)|[Ww]ill (?:be )?retr(?:y|ied)|attempt \d{1,4} of \d)"
)
SELDOM = 3  # attempts of one kind in a log, which may fail by chance
SYMPTOMS = 12  # of one verdict; more help nobody
NEAR_THE_END = 2048  # bytes of a log, in which a script ends after a command that failed
RIGHT_BEHIND = 256  # bytes of a log: one or two lines


def judge(
    logs: Sequence[LogRecords],
    exits: Sequence[Exit] = (),
    matcher: Matcher | None = None,
    *,
    failed_anyway: bool = False,
    oom: str = "",
) -> Verdict:
    """Why a run, or one process, ended, from what was read of its logs and from how its processes ended.

    ``exits``: as far as known; with some, and all of them 0, nothing failed and there are only symptoms. Without any,
    the logs alone tell whether something failed. ``matcher``: of another catalogue than ours.
    ``failed_anyway``: something did although no process ended, so that a
    log may end with signs of health. ``oom``: where the kernel has counted a kill lately, in words, of a process whose
    exit nobody saw.
    """
    known = bool(exits) or failed_anyway
    moments = _without_stops([m for m in timeline(logs, matcher) if m.record.kind != "healthy"])
    if not known:
        ends = {log.log: log.last.end for log in logs if log.last is not None}
        moments = [
            replace(m, survived=True) if _went_on_behind(m, ends.get(m.log, 0)) else m for m in moments
        ]
    hits = [(m, match) for m in moments for match in causes_of(m)]
    open_hits = [
        (m, match) for m, match in hits if not m.survived and m.record.kind not in ("ignored", "thread")
    ]
    fatal = [
        hit
        for hit in open_hits
        if not goes_on(hit[0], hit[1].signature)
        and not (of_a_request(hit[0].record) or _mentioned(*hit) or _told_better(*hit))
        and (known or not _harmless(*hit))
    ]
    fatal, supposed = _apart_from_suppositions(fatal)
    alive = _without_slips(
        [
            hit
            for hit in hits
            if goes_on(hit[0], hit[1].signature)
            and (hit[1].signature.fails != "command" or _of_a_part(hit, hits))
        ]
    )
    alive = [hit for hit in alive if not _told_for_certain(*hit)]
    alive = alive if known else _without_attempts(alive, moments)
    scripts = [hit for hit in open_hits if hit[1].signature.fails == "command"]
    failed = [e for e in exits if _failed(e)]
    over = not exits or bool(failed)
    counted = oom or next((e.oom for e in failed if e.oom), "")

    cause: Explanation | None = None
    more: tuple[Explanation, ...] = ()
    if over:
        own = uncaught(moments, failed)
        cause = memory_kill(failed, fatal) or _catalogued(fatal, alive, moments, failed, counted, own) or own
        if cause is None:
            served = {} if exits else {log.log: log.served for log in logs}
            lasting = [
                hit for hit in alive if hit[0].log not in _killed(failed) and _lasted(hit, alive, served)
            ]
            cause = _waited_for(lasting, moments, failed) or _reported(moments, alive, failed)
        if cause is None:
            cause = _script_failed(scripts, moments, failed, logs)
        if cause is None:
            told = [m for m in moments if known or not _went_well(m)]
            requests = None if known else failed_requests(told)
            if requests is not None:
                return Verdict(None, (), (requests, *_symptoms(None, fatal, alive)))
            cause, more = unexplained(told, failed, logs, counted)
    late = [] if known else _warned_last(logs, open_hits)
    symptoms = _symptoms(cause, [*fatal, *late] if over else [], alive)
    if over and cause is not None:
        symptoms = (*symptoms, *other_errors(moments, cause))[:SYMPTOMS]
        cause = _with_supposed(cause, supposed)
    return Verdict(cause, more, symptoms)


def _apart_from_suppositions(fatal: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """The causes, and apart from them those that only suppose what another one of them states for certain."""
    ids = {match.signature.id for _, match in fatal}
    supposed = [hit for hit in fatal if not ids.isdisjoint(hit[1].signature.supposes)]
    return [hit for hit in fatal if all(hit is not other for other in supposed)], supposed


def _told_for_certain(moment: Moment, match: Match) -> bool:
    """Whether the same record tells for certain what a row of it only supposes."""
    ids = {other.signature.id for other in moment.matched}
    return not ids.isdisjoint(match.signature.supposes)


def _with_supposed(cause: Explanation, supposed: Sequence[Hit]) -> Explanation:
    """A cause with the first record that only supposes it as a further proof: it may name the file."""
    first = next((hit for hit in supposed if cause.id in hit[1].signature.supposes), None)
    if first is None:
        return cause
    return replace(cause, evidence=(*cause.evidence, evidence_of(first[0], first[1].text)))


def _without_stops(moments: Sequence[Moment]) -> list[Moment]:
    """The records without what the processes of an engine report of each other once it was asked to stop. Nothing in
    its log is known to have ended it then."""
    asked = {m.log for m in moments if any("stop-asked" in match.signature.facts for match in m.matched)}
    kept, stopping = [], set()
    for moment in moments:
        if moment.log not in asked:
            kept.append(moment)
            continue
        if any("stop-asked" in match.signature.facts for match in moment.matched):
            stopping.add(moment.log)
        roles = {match.signature.role for match in moment.matched}
        if moment.log not in stopping or "consequence" not in roles or causes_of(moment):
            kept.append(replace(moment, outlived=True))
    return kept


def _failed(exit_: Exit) -> bool:
    if exit_.code is None:
        return exit_.signal is not None or exit_.oom_kills > 0
    return exit_.code != 0 or exit_.unasked


def _without_attempts(alive: Sequence[Hit], moments: Sequence[Moment]) -> list[Hit]:
    """Complaints without those few of which the program that wrote them made nothing: it quotes an error at level info
    (an attempt at a request, the output of an agent), or says that it tries again, and was well afterwards without any
    error. Many of them are no chance."""
    errors: dict[str, int] = {}
    often: Counter[tuple[str, str]] = Counter()
    for moment in moments:
        if moment.record.level not in ("info", "debug", "warning"):
            errors[moment.log] = max(errors.get(moment.log, -1), moment.record.offset)
    for moment, match in alive:
        often[moment.log, match.signature.id] += 1 + moment.record.repeated
    return [
        (moment, match)
        for moment, match in alive
        if often[moment.log, match.signature.id] > SELDOM
        or errors.get(moment.log, -1) >= moment.record.offset
        or not (moment.outlived or moment.survived)
        or not _made_nothing_of(moment.record)
    ]


def _made_nothing_of(record: Record) -> bool:
    quoted = record.level in ("info", "debug") and QUOTED.search(record.text)
    again = record.level in ("info", "warning") and TRIES_AGAIN.search(record.text)
    return bool(quoted or again)


def _without_slips(alive: Sequence[Hit]) -> list[Hit]:
    """Complaints without those that are as few in their log as mistakes of models usually are."""
    often: Counter[tuple[str, str]] = Counter()
    for moment, match in alive:
        often[moment.log, match.signature.id] += 1 + moment.record.repeated
    return [hit for hit in alive if often[hit[0].log, hit[1].signature.id] > hit[1].signature.slips]


def _harmless(moment: Moment, match: Match) -> bool:
    """Whether a server only logged a general error, or only warned, and was well at the end of its log."""
    general = match.signature.role == "general" or moment.record.level == "warning"
    return moment.outlived and general


def _warned_last(logs: Sequence[LogRecords], hits: Sequence[Hit]) -> list[Hit]:
    """The causes in warnings behind the last sign of health of their log: they may be what ended it."""
    healthy = {
        log.log: max((one.offset for one in log.records if one.kind == "healthy"), default=-1) for log in logs
    }
    return [
        (moment, match)
        for moment, match in hits
        if match.signature.role == "cause"
        and match.signature.fails == "process"
        and moment.record.level == "warning"
        and _harmless(moment, match)
        and moment.record.offset > healthy[moment.log]
    ]


def _went_well(moment: Moment) -> bool:
    """Whether its log ends with a sign of health. That of vLLM's server may do so after a record which tells that a
    process of its engine ended: it answers some requests without one, and prints the throughput of the last seconds."""
    return moment.outlived and not any("answers-on" in match.signature.facts for match in moment.matched)


def _went_on_behind(moment: Moment, end: int) -> bool:
    """Whether a program only warned of an exception that it had caught, and its log goes on: it did without what it
    could not have. ``end``: of the log."""
    record = moment.record
    warned = record.kind == "traceback" and record.level == "warning" and not moment.ended
    return warned and end - record.end > NEAR_THE_END


def _mentioned(moment: Moment, match: Match) -> bool:
    """Whether a general error is only named, in a message that is none: a package that is missing, for example; or in
    what another program printed, such as a failed test."""
    if match.signature.role != "general":
        return False
    level = moment.record.level
    within = match.raised is None and not moment.record.text.lstrip().startswith(match.text[:30])
    return level not in (None, "error") or (level is None and within and match.signature.effect)


def _told_better(moment: Moment, match: Match) -> bool:
    """Whether a general row knows only an exception within the traceback of a trial or request that failed, such as the
    TimeoutError of asyncio, and a row of the program tells what became of it."""
    return match.signature.role == "general" and any(
        other.signature.role == "cause" and goes_on(moment, other.signature) for other in causes_of(moment)
    )


def _rank(hit: Hit) -> tuple[bool, bool]:
    signature = hit[1].signature
    return (signature.role == "general", signature.severity == "info")


def _catalogued(
    fatal: Sequence[Hit],
    alive: Sequence[Hit],
    moments: Sequence[Moment],
    exits: Sequence[Exit],
    oom: str,
    own: Explanation | None,
) -> Explanation | None:
    """The cause that a row explains; ``own``, an exception of the user's code that ended its process, before a row that
    only tells in general what such exceptions mean."""
    if not fatal:
        return None
    fatal = without_waits(_without_later_ends(fatal), alive, moments)
    if not fatal:
        return None
    best = min(_rank(hit) for hit in fatal)
    if best[0] and own is not None:
        return own  # what Python says of such errors in general stands in it
    first = next(hit for hit in fatal if _rank(hit) == best)
    if "from-outside" in first[1].signature.facts:
        before = _unexplained_before(first[0], moments)
        if before:
            return None
    if first[1].signature.effect and first[1].signature.role != "general":
        better = first[1].signature.gives_way_to
        others = (h for h in fatal if h[1].signature.printer in better and not h[1].signature.effect)
        first = next(others, first)
        best = _rank(first)
    told = _of_one_record(first, best, fatal)
    return killed_for_memory(told[0], oom, of_exits(exits)) or _with_proof(told, fatal, moments, exits)


def _without_later_ends(fatal: Sequence[Hit]) -> Sequence[Hit]:
    """Causes without the ends from outside that came after an error of the run in another log."""
    own = [hit for hit in fatal if "from-outside" not in hit[1].signature.facts]
    return [
        hit
        for hit in fatal
        if "from-outside" not in hit[1].signature.facts
        or not any(is_older(error, hit[0]) for error, _ in own)
    ]


def _unexplained_before(end: Moment, moments: Sequence[Moment]) -> list[Moment]:
    """The exceptions in other logs, which no row explains, from before the run was ended from outside."""
    return [m for m in moments if is_own(m) and is_older(m, end)]


def _lasted(hit: Hit, alive: Sequence[Hit], served: Mapping[str, int]) -> bool:
    """Whether a complaint went on until the end. A request that failed is never why a process ended; without exits it
    may be what is wrong with a server that answers none, although probes of its health are answered.

    ``served``: of each log the byte of the last request that was answered; empty if it is known how processes ended.
    """
    moment, match = hit
    if moment.survived:
        return False
    if (
        match.signature.fails == "request"
        and not -1 <= served.get(moment.log, moment.record.end) < moment.record.offset
    ):
        return False
    return not moment.outlived or sum(other.signature.id == match.signature.id for _, other in alive) > 1


def _of_one_record(first: Hit, best: tuple[bool, bool], fatal: Sequence[Hit]) -> Hit:
    """Of the causes that one record names, that of the exception which the chain is about; else the
    first one: rows that tell more are ``before`` others."""
    same = [hit for hit in fatal if hit[0] is first[0] and _rank(hit) == best]
    same = [hit for hit in same if not hit[1].signature.effect] or same
    told = {name for _, match in same for name in match.signature.before}
    same = [hit for hit in same if hit[1].signature.id not in told] or same
    if len(same) == 1:
        return same[0]
    if not same or not first[0].record.raised:
        return first
    wanted = telling(first[0].record.raised)
    return min(same, key=lambda hit: len(same) if hit[1].raised is None else abs(hit[1].raised - wanted))


def _with_proof(
    hit: Hit, fatal: Sequence[Hit], moments: Sequence[Moment], exits: Sequence[Exit]
) -> Explanation:
    moment, match = hit
    proof = [evidence_of(moment, match.text)]
    again = [m for m, other in fatal if other.signature.id == match.signature.id and m is not moment]
    proof += [evidence_of(m, _text_of(m, match.signature.id)) for m in again[:2]]
    after = _consequence_of(match, moments, moment)
    if after is not None:
        proof.append(after)
    file = _reward_file(moments) if REWARD_FILE in match.signature.fix else ""
    found = explained(match, (*proof, *of_exits(exits)), file)
    if match.signature.gpu_memory:
        found = with_neighbours(found, moment.record.whole)
    return _with_place(found, moment, match) if match.signature.role == "general" else found


def _reward_file(moments: Sequence[Moment]) -> str:
    """The file of the user's reward function, as Hydra repeats it in the overrides of a program that failed."""
    found = (_REWARD_FILE.search(moment.record.text) for moment in moments)
    return next((match[1] for match in found if match is not None), "")


def _with_place(found: Explanation, moment: Moment, match: Match) -> Explanation:
    """What a general row says, with whose code raised it; and, where versions may not fit, which to compare."""
    if match.raised is None:
        return found
    origin = origin_of(moment.record, match.raised)
    if origin is None:
        return found
    command = found.command
    if match.signature.of_versions and origin.packages:
        command = versions_command(origin.packages)
    title = f"{found.title} ({origin.at.short})" if match.signature.effect else found.title
    return replace(found, title=short(title), cause=f"{found.cause} {told_place(origin)}", command=command)


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
                return evidence_of(moment, without_speculation(other.text))
    return None


def _waited_for(alive: Sequence[Hit], moments: Sequence[Moment], exits: Sequence[Exit]) -> Explanation | None:
    """What a process complained of, again and again or last, before somebody or a time-out ended it."""
    if not alive:
        return None
    other = first_error(moments)
    if other is not None and not is_weak(other.record):
        alive = [] if exits else [hit for hit in alive if _leads_to(hit, other)]
        if not alive:
            return None
    best = min(_rank(hit) for hit in alive)
    first = next(hit for hit in alive if _rank(hit) == best)
    if first[1].signature.severity == "info":
        return None
    return _with_proof(first, alive, moments, exits)


def _leads_to(hit: Hit, error: Moment) -> bool:
    """Whether an error line, which nothing explains, stands right behind a complaint that is not of a request, or right
    before it: a program may say first that something failed, and then what the other program answered."""
    record, complaint = error.record, hit[0].record
    behind = 0 <= record.offset - complaint.end <= NEAR_THE_END
    before = 0 <= complaint.offset - record.end <= RIGHT_BEHIND
    follows = hit[0].log == error.log and (behind or before)
    plain = record.kind != "traceback" and not any(
        "ended-first" in match.signature.facts for match in error.matched
    )
    return follows and plain and hit[1].signature.fails != "request"


def _killed(exits: Sequence[Exit]) -> set[str]:
    """The logs of processes that SIGKILL ended: a process does not send it to itself because a request failed."""
    return {e.log for e in exits if e.signal == signal.SIGKILL}


def _reported(moments: Sequence[Moment], alive: Sequence[Hit], exits: Sequence[Exit]) -> Explanation | None:
    """The newest complaint before the error that a process ended with, where that error reports such complaints
    (``of``); or, where a line sums up that all trials failed, the complaint that most of them made."""
    error = first_error(moments)
    if error is None:
        return None
    for match in error.matched if error.log not in _killed(exits) else ():
        before = [h for h in alive if h[0].at <= error.at and h[1].signature.id in match.signature.of]
        if before:
            return _with_proof(before[-1], before, moments, exits)
    return _summed_up(moments, alive, exits)


def _summed_up(moments: Sequence[Moment], alive: Sequence[Hit], exits: Sequence[Exit]) -> Explanation | None:
    """What most trials complained of before a line which says that all of them failed. Nothing, if at least as many
    errors that no row explains stand before that line: then these may be what the trials failed with."""
    summary = next((m for m in moments if not m.survived and _sums_up(m)), None)
    if summary is None:
        return None
    before = [hit for hit in alive if hit[0].at <= summary.at and not hit[0].survived]
    # Of one record, what only names the trial gives way to what tells why it failed.
    ranks: dict[tuple[str, int], tuple[bool, bool]] = {}
    for hit in before:
        place = (hit[0].log, hit[0].record.offset)
        ranks[place] = min(_rank(hit), ranks.get(place, _rank(hit)))
    before = [hit for hit in before if _rank(hit) == ranks[hit[0].log, hit[0].record.offset]]
    before = [hit for hit in before if hit[1].signature.severity != "info"]
    often = Counter[str]()
    for moment, match in before:
        often[match.signature.id] += 1 + moment.record.repeated
    errors = [m for m in moments if m.at <= summary.at and not m.matched and weight_of(m) in (0, 1)]
    most = max(often.values(), default=0)
    if most <= sum(1 + moment.record.repeated for moment in errors):
        return None
    newest = next(hit for hit in reversed(before) if often[hit[1].signature.id] == most)
    return _with_proof(newest, before, moments, exits)


def _sums_up(moment: Moment) -> bool:
    """Whether a record says that all trials of a batch failed."""
    rows = [match.signature for match in moment.matched]
    sums_up = any(row.fails == "batch" for row in rows)
    return sums_up and weight_of(moment) is not None


def _script_failed(
    scripts: Sequence[Hit], moments: Sequence[Moment], exits: Sequence[Exit], logs: Sequence[LogRecords]
) -> Explanation | None:
    """What a launch script could not do, as the last thing before it ended. Scripts go on after most of such lines, so
    that it counts only where its log ends, or a launcher reports the end, and nothing else is wrong."""
    other = first_error([m for m in moments if all(m is not hit[0] for hit in scripts)])
    if not scripts or (other is not None and role_of(other) != "consequence" and not is_weak(other.record)):
        return None
    last = scripts[-1]
    log = next((log for log in logs if log.log == last[0].log), None)
    if log is not None and any(r.kind == "healthy" and r.offset > last[0].record.offset for r in log.records):
        return None
    end = log.last.end if log is not None and log.last is not None else 0
    if other is None and end - last[0].record.end > NEAR_THE_END:
        return None
    named = next(hit for hit in scripts if hit[0] is last[0])
    if named[1].signature.role == "general":  # it says that a command failed, which said itself why
        own = [hit for hit in scripts if hit[1].signature.role != "general" and _is_near(hit, named)]
        named = own[-1] if own else named
    first = next(hit for hit in scripts if _of_one_failure(hit, named))
    return _with_proof(first, scripts, moments, exits)


def _of_one_failure(hit: Hit, last: Hit) -> bool:
    """Whether two complaints of tools are one: of one kind, near each other in a log."""
    return _is_near(hit, last) and hit[1].signature.id == last[1].signature.id


def _of_a_part(hit: Hit, hits: Sequence[Hit]) -> bool:
    """Whether a complaint of a tool stands in the output that a general row quotes as why a part failed, such as that
    of Docker Compose."""
    return any(
        one[1].signature.role == "general"
        and one[1].signature.fails == "part"
        and one[0].log == hit[0].log
        and hit[0].record.offset >= one[0].record.offset
        and _is_near(one, hit)
        for one in hits
    )


def _is_near(hit: Hit, last: Hit) -> bool:
    """Whether a complaint stands near a later one in its log."""
    return hit[0].log == last[0].log and last[0].record.offset - hit[0].record.end <= NEAR_THE_END


def _is_proof(hit: Hit, cause: Explanation | None) -> bool:
    """Whether the record of a hit proves the cause, which another row explains better: one record tells of one
    failure."""
    first = cause.evidence[0] if cause is not None and cause.evidence else None
    return first is not None and (first.log, first.offset) == (hit[0].log, hit[0].record.offset)


def _symptoms(
    cause: Explanation | None,
    fatal: Sequence[Hit],
    alive: Sequence[Hit],
) -> tuple[Explanation, ...]:
    """What else is wrong: each kind once, with its first and its last record."""
    seen = {cause.id} if cause is not None else set()
    found = []
    # An error of Python itself comes of that of a library beside it.
    general = min((_rank(hit)[0] for hit in fatal), default=False)
    fatal = [hit for hit in fatal if _rank(hit)[0] == general]
    for hit in (*alive, *fatal):
        own = hit[1].signature.id
        if own in seen or (hit[1].signature.effect and seen) or _is_proof(hit, cause):
            continue
        seen.add(own)
        all_of = [h for h in (*alive, *fatal) if h[1].signature.id == own]
        proof = [evidence_of(all_of[0][0], all_of[0][1].text)]
        if len(all_of) > 1:
            proof.append(evidence_of(all_of[-1][0], all_of[-1][1].text))
        found.append(explained(hit[1], tuple(proof)))
    return tuple(found[:SYMPTOMS])
