"""Which lines of a log show no work of the process that wrote them: polls, heartbeats, words that something waits. A
log that grows by them alone stands still. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from liverl.util.late_pattern import late_pattern

# Requests that only look: of health checks, scrapers, dashboards
LOOKS = late_pattern(r'"(?:GET|HEAD|OPTIONS) /[^\s"]{0,300} HTTP/\d(?:\.\d)?" \d{3}')
_IDLE = late_pattern(
    r"generation throughput: 0\.0+ tokens/s|gen throughput \(token/s\): 0\.0+\b|#running-req: 0, |"
    r"No available shared memory broadcast block found in \d|\(autoscaler \+|(?i:\bheartbeat\b|\bkeep-?alive\b)|"
    r"\bslurmstepd(?:-\S{1,64})?: error: |"
    r"(?i:\bstill waiting\b|\bhealth.?check\b)|"
    # verl's transfer queue prints these three lines every 300 s, also if nothing but its heartbeat used it.
    r"\[Performance\] Total success requests: |Time range: last [\d.]+ minutes|Per-operation statistics: "
)
# What a busy engine prints, also if its numbers stay the same
BUSY = late_pattern(r"throughput(?: \(token/s\))?: (?:0\.0*[1-9]|[1-9])")
# verl prints this every 60 s while it waits for trials, whether or not they go on.
_HEARTBEAT = late_pattern(r"pending: \d+, running: \d+, finished: \d+, failure: \d+")


def shows_no_work(text: str) -> bool:
    """Whether a line shows no work: a poll, a heartbeat, or a message that something waits."""
    if BUSY.search(text) is not None:
        return False
    return LOOKS.search(text) is not None or _IDLE.search(text) is not None


def work_in(lines: Iterable[str], beat: str = "") -> tuple[bool, str]:
    """Whether one of these lines shows work, and the counts of verl's heartbeat if the last of them is one: a heartbeat
    that repeats the counts of the line before it shows none. ``beat``: those counts of the line before all of them, ""
    if it is none."""
    work = False
    for line in lines:
        if not line.strip() or shows_no_work(line):
            continue
        counts = _HEARTBEAT.search(line)
        now = counts[0] if counts is not None else ""
        work, beat = work or not now or now != beat, now
    return work, beat
