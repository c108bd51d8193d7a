"""The timeline of one step in lines of plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from liverl.diagnose.where.slow_replica import none_slow, slow_replica
from liverl.diagnose.where.split import SPLIT, split
from liverl.diagnose.where.words import lines as where_lines
from liverl.util.ages import step_length
from liverl_tui.text.table import aligned
from liverl_tui.text.words import number, one_line

if TYPE_CHECKING:
    from liverl.offline.step_timeline import StepTimeline, TrialLane
    from liverl.offline.timeline_shown import TimelineShown

SLOWEST = 10  # trials that are listed


def lines(shown: TimelineShown) -> Iterator[str]:
    """The parts of the step, what its trials waited for, the slowest of them, replicas, GPUs, and what is not known;
    then the newest steps together."""
    step = shown.step
    took = f", {step_length(step.seconds)}" if step.seconds is not None else ""
    state = (
        " (still running)"
        if step.running
        else " (of an earlier attempt, not reached again)"
        if step.left
        else " (cut off: the run has ended)"
        if step.cut_off
        else ""
    )
    yield f"step {step.step} of {shown.run}{took}{state}"
    yield from _shares(step)
    yield from _trials(step)
    yield from _replicas(step)
    for gpu in step.gpus:
        yield f"GPU {one_line(gpu.uuid)}: {100 * gpu.mean:.0f} % used"
    yield from (f"not known: {one_line(why)}" for why in (step.unknown[1:] if step.left else step.unknown))
    if shown.step_time is not None:
        yield ""
        yield from where_lines(shown.step_time)


def _shares(step: StepTimeline) -> Iterator[str]:
    """The rows that the timeline screen has, with the same numbers."""
    found = split(step.parts, step.seconds, step.waits)
    if found.rows:
        rows = [("part" if step.parts else "trials waited for", "seconds", f"share {found.of}")]
        for row in found.rows:
            name = row.what.replace("_", " ")
            rows.append(
                (
                    f"  {name}" if row.inside and step.parts else name,
                    "-" if row.seconds is None else f"{row.seconds:.3g}",
                    "-" if row.share is None else f"{100 * row.share:.0f} %",
                )
            )
        yield ""
        yield from aligned(rows, right=(1, 2))
    if step.parts and any(row.inside for row in found.rows):
        yield f"indented: {SPLIT}"
    if found.queue_words:
        yield f"queue: {found.queue_words}"


def _trials(step: StepTimeline) -> Iterator[str]:
    if not step.trials:
        return
    slowest = sorted(step.trials, key=_seconds, reverse=True)[:SLOWEST]
    yield ""
    rows = [("slowest trials", "seconds", "mostly", "reward", "weights behind"), *map(_cells, slowest)]
    yield from aligned(rows, right=(1, 3, 4))
    if len(step.trials) > len(slowest):
        yield f"{len(step.trials) - len(slowest)} more in --json"
    yield ""


def _replicas(step: StepTimeline) -> Iterator[str]:
    """How the answers were shared out among the replicas and how long each took, and which replica is slow."""
    if not step.replicas:
        return
    answers = sum(len(replica.calls) for replica in step.replicas)
    calls = {one_line(replica.name): replica.calls for replica in step.replicas}
    slow = slow_replica(calls)
    rows = [("replicas", "answers", "of all answers", "seconds each", "")]
    for replica in step.replicas:
        count = len(replica.calls)
        mean = sum(end - begin for begin, end in replica.calls) / count
        name = one_line(replica.name)
        mark = "slow" if slow is not None and slow.name == name else ""
        rows.append((name, f"{count}", f"{100 * count / answers:.0f} %", f"{mean:.3g}", mark))
    yield from aligned(rows, right=(1, 2, 3))
    if slow is not None:
        yield f"{slow.name} {slow.words}"
    elif why := none_slow(calls):
        yield why
    yield ""


def _seconds(lane: TrialLane) -> float:
    return sum(span.end - span.begin for span in lane.spans)


def _cells(lane: TrialLane) -> tuple[str, ...]:
    spent: dict[str, float] = {}
    for span in lane.spans:
        spent[span.what] = spent.get(span.what, 0.0) + span.end - span.begin
    most = max(spent, key=lambda what: spent[what], default="-")
    behind = "-" if lane.behind is None else str(lane.behind)
    return one_line(lane.name), f"{_seconds(lane):.3g}", most, number(lane.reward), behind
