"""Finds hangs: since when a log shows no work, because its end has only polls and heartbeats."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import islice, pairwise

import msgspec

from liverl.causes.finding import Evidence, Explanation
from liverl.causes.verdict.words import short
from liverl.logs.line_moment import stamp_in
from liverl.logs.moments import Resolver
from liverl.logs.no_work import BUSY, LOOKS, shows_no_work
from liverl.offline.doctor.idle_lines import TIMES, IdleLines, shown_text
from liverl.offline.doctor.logs import A_ZONE, Log
from liverl.offline.doctor.training import Training
from liverl.util.ages import ago, clock
from liverl.util.plural import quantity
from liverl.util.regular_file import open_regular

HANGS = "hangs"
CHUNK = 1 << 20  # bytes of the end of a log that are looked at together, in which heartbeats are recognized,
MOST = 2 << 30  # and bytes in which the last work is looked for
HEARTBEATS = 10  # equal lines, but for their times, at the end of a log that show no work
GAPS = 400  # lines of work before the last one whose gaps are usual
LEAST_S = 600.0  # seconds without work that are never called a hang: loading, checkpoints and long rollouts take them
STEPS = 5.0  # so many times what a step takes,
USUAL = 2.0  # and what the longest gap between two lines of work took before
POLLS = 3  # lines without work at least, behind the last work

_STUCK = re.compile(
    r"generation throughput: 0\.0+ tokens/s, Running: (?P<a>[1-9]\d{0,5}) reqs|"
    r"#running-req: (?P<b>[1-9]\d{0,5}),[^\n]{0,200}gen throughput \(token/s\): 0\.0+\b"
)
_PID = re.compile(r"\bpid=(\d{1,10})")
_PHASES = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Timer (?P<name>\w{1,40}) start", "{name}"),
        (r"(?i)\bsav\w{1,8} (?:the )?(?:checkpoint|model)", "saving a checkpoint"),
        (
            r"(?i)update_weights|weight (?:sync|transfer|update)|sync\w{0,20} weights",
            "moving the weights to the replicas",
        ),
        (r"(?i)wake.?up|resume_memory|fall asleep|sleep mode", "putting the engine to sleep or waking it up"),
        (r"(?i)\bray\.?init\b|local Ray instance|existing Ray cluster|Connected to Ray", "the start of Ray"),
        (r"(?i)init_process_group|NCCL INFO|process group", "connecting the ranks"),
        (r"(?i)load\w{0,4} (?:\w+ ){0,3}(?:weights|model|checkpoint|safetensors)", "loading the model"),
        (r"(?i)\bvalidat\w+", "validation"),
        (r"(?i)\brollout\b|generate_sequences|pending: \d", "the rollout"),
        (r"\bstep:(?P<step>\d+) - |Training Progress:[^|]*\|[^|]*\|\s*(?P<bar>\d+)/", "after step {step}"),
    )
)


class Tail(msgspec.Struct, frozen=True):
    """How a log ends. ``line``: of its last work, ``offset``: its byte, and ``at``: its Unix time, None if no stamp
    tells; ``polls``: lines behind it that show no work, and ``stamped``: whether they have stamps; ``last``: Unix time
    of the last stamp; ``gap``: seconds of the longest gap between two lines of work before; ``stuck``: requests that an
    engine holds while it generates nothing, in its last lines, and ``stuck_s``: for how long."""

    line: str = ""
    offset: int = 0
    at: float | None = None
    polls: int = 0
    stamped: bool = False
    last: float | None = None
    gap: float = 0.0
    stuck: int = 0
    stuck_s: float = 0.0


def tail_of(log: Log) -> Tail:
    """How the log ends.

    Raises:
        OSError: it cannot be read.
    """
    fd = open_regular(log.path)
    try:
        size = os.fstat(fd).st_size
        behind, begin = _chunk(fd, size)
        beats = _heartbeats(behind)
        place = _last_work(behind, beats)
        polls = len(behind) - 1 - place if place is not None else len(behind)
        chunk = behind
        idle = IdleLines(beats)
        while place is None and begin > 0 and size - begin < MOST:  # only polls and heartbeats so far
            only, before = _idle_only(fd, begin, idle)
            if only:
                polls, begin = polls + only, before
                continue
            chunk, begin = _chunk(fd, begin)
            place = _last_work(chunk, beats)
            polls += len(chunk) - 1 - place if place is not None else len(chunk)
        if place is not None and place < GAPS and begin > 0:  # what it did before tells what gaps are usual
            more, begin = _chunk(fd, begin)
            chunk, place = [*more, *chunk], len(more) + place
    finally:
        os.close(fd)
    work = chunk[max(0, place - GAPS) : place + 1] if place is not None else []
    return _judged(work, behind[-polls:] if polls else [], polls, log)


def _chunk(fd: int, end: int) -> tuple[list[tuple[int, str]], int]:
    """The lines of about ``CHUNK`` bytes that end at byte ``end``, with their places, and the byte of the first one."""
    begin = max(0, end - CHUNK)
    data = os.pread(fd, end - begin, begin)
    if begin:  # there it is a part of a line
        cut = data.find(b"\n") + 1 or len(data)
        data, begin = data[cut:], begin + cut
    lines = []
    offset = begin
    shown = cache(shown_text)
    for raw in data.split(b"\n"):
        text = shown(raw)
        if text is not None:
            lines.append((offset, text))
        offset += len(raw) + 1
    if begin >= end:  # one line that is longer: what is before it is not looked at
        return lines, 0
    return lines, begin


def _idle_only(fd: int, end: int, idle: IdleLines) -> tuple[int, int]:
    """How many lines without work are in about ``CHUNK`` bytes that end at byte ``end``, 0 if one of them shows work,
    and the byte of the first one. Quick: a log may end with gigabytes of them."""
    begin = max(0, end - CHUNK)
    data = os.pread(fd, end - begin, begin)
    if begin:
        cut = data.find(b"\n") + 1 or len(data)
        data, begin = data[cut:], begin + cut
    count = idle.count(data)
    return (count, begin) if count else (0, end)


def _heartbeats(lines: Sequence[tuple[int, str]]) -> frozenset[str]:
    """Lines, without their times, that come again and again."""
    others = (text for _, text in reversed(lines) if not shows_no_work(text))
    bare = Counter(TIMES.sub("", text) for text in islice(others, GAPS))
    return frozenset(text for text, count in bare.items() if count >= HEARTBEATS)


def _last_work(lines: Sequence[tuple[int, str]], beats: frozenset[str]) -> int | None:
    """The index of the last line that shows work; None if none does."""
    idle: set[str] = set()
    for place in range(len(lines) - 1, -1, -1):
        text = lines[place][1]
        if text in idle:
            continue
        if not shows_no_work(text) and (BUSY.search(text) or TIMES.sub("", text) not in beats):
            return place
        idle.add(text)
    return None


def _judged(work: Sequence[tuple[int, str]], behind: Sequence[tuple[int, str]], polls: int, log: Log) -> Tail:
    """``work``: lines up to the last one that shows work; ``behind``: the last lines of the log, without work."""
    resolver = Resolver(log.modified, log.zone)

    def times(part: Sequence[tuple[int, str]]) -> list[float]:
        stamps = (stamp_in(text) for _, text in part)
        return [at for one in stamps if one is not None and (at := resolver.at(one)) is not None]

    worked = times([one for one in work if not shows_no_work(one[1])])
    gaps = [later - earlier for earlier, later in pairwise(worked)]
    after = times([*behind[:3], *behind[-30:]])
    held, since = 0, None
    for _, text in reversed(behind):
        found = _STUCK.search(text)
        if found is None and not LOOKS.search(text):
            break
        if found is not None:
            held = held or int(found["a"] or found["b"])
            since = text
    stuck = times([(0, since)]) if since is not None else []
    last = max([*worked[-1:], *after], default=None)
    return Tail(
        line=work[-1][1].strip() if work else "",
        offset=work[-1][0] if work else 0,
        at=worked[-1] if worked else None,
        polls=polls,
        stamped=bool(after),
        last=last,
        gap=max(gaps, default=0.0),
        stuck=held if stuck else 0,
        stuck_s=last - stuck[0] if stuck and last is not None else 0.0,
    )


def hang(logs: Sequence[tuple[Log, Tail]], run: Training, now: float) -> Explanation | None:
    """The finding that a run hangs: its logs have only polls and heartbeats, for longer than a step; else None.
    ``now``: Unix seconds."""
    known = [(log, tail) for log, tail in logs if tail.at is not None]
    if not known or run.complete or run.ended or not (run.began or any(log.trains for log, _ in known)):
        return None
    log, tail = max(known, key=lambda one: one[1].at or 0.0)
    began = tail.at or 0.0
    ends = [one.last for _, one in logs if one.last is not None]
    ends += [
        one.modified
        for one, its in logs
        if its.polls and not its.stamped and began <= one.modified <= began + A_ZONE  # polls have no stamps
    ]
    polls = sum(its.polls for one, its in logs)
    end = min(max(ends), max(now, began))
    silent = end - began
    if polls < POLLS or silent <= max(LEAST_S, STEPS * (run.seconds or 0.0), USUAL * tail.gap):
        return None
    phase = phase_of(tail.line)
    where = f" ({phase})" if phase else ""
    pid = _PID.search(tail.line)
    return Explanation(
        HANGS,
        "warning",
        f"No progress for {ago(silent)}: it has hung since {clock(began)}{where}",
        f"The last line that shows work was written at {clock(began)}. After it, until {clock(end)}, there are only "
        f"{polls} lines of polls and heartbeats, and no error. A process waits for a collective, a request or a lock "
        "that never completes.",
        "While it still hangs, run py-spy dump for its processes, rank 0 first: it prints where each of them waits. "
        "Then stop the run and resume it from the newest checkpoint.",
        f"py-spy dump --pid {pid[1] if pid is not None else 'PID'}",
        evidence=(Evidence(short(tail.line), log.path, tail.offset),),
    )


def engine_stuck(log: Log, tail: Tail) -> Explanation | None:
    """The finding that an engine holds requests and has generated nothing for long; else None."""
    if not tail.stuck or tail.stuck_s < LEAST_S / 2:
        return None
    return Explanation(
        "engine-stuck",
        "warning",
        f"An engine holds {quantity(tail.stuck, 'request')} and generates nothing for {ago(tail.stuck_s)}",
        "Its log keeps reporting running requests at a throughput of 0: its workers hang, or wait for each other.",
        "Run py-spy dump for EngineCore and the workers to see where they wait, then restart the engine.",
        "py-spy dump --pid $(pgrep -f 'EngineCore|sglang::scheduler' | head -1)",
        evidence=(Evidence(short(tail.line), log.path, tail.offset),),
    )


def phase_of(line: str) -> str:
    """What a run was doing when it wrote this line; empty if the line does not tell."""
    for pattern, words in _PHASES:
        found = pattern.search(line)
        if found is not None:
            groups = {name: value for name, value in found.groupdict().items() if value is not None}
            return words.format(**{"step": groups.get("bar", ""), **groups})
    return ""
