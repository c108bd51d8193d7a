"""The timeline of one step in lines of plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from liverl.diagnose.where.slow_replica import slow_replica
from liverl.diagnose.where.words import lines as where_lines
from liverl.util.ages import step_length
from liverl.util.plural import quantity
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
    state = " (still running)" if step.running else " (cut off: the run has ended)" if step.cut_off else ""
    yield f"step {step.step} of {shown.run}{took}{state}"
    yield from _shares("part", step.parts, step.seconds)
    yield from _shares("its trials waited for", step.waits, sum(step.waits.values()))
    yield from _trials(step)
    for replica in step.replicas:
        busy = sum(end - begin for begin, end in replica.calls)
        mean = busy / len(replica.calls) if replica.calls else 0.0
        calls = quantity(len(replica.calls), "call")
        yield f"replica {one_line(replica.name)}: {calls}, {busy:.3g} s in all, {mean:.3g} s each"
    if (slow := slow_replica({replica.name: replica.calls for replica in step.replicas})) is not None:
        yield f"replica {one_line(slow.name)} {slow.words}"
    for gpu in step.gpus:
        yield f"GPU {one_line(gpu.uuid)}: {100 * gpu.mean:.0f} % used"
    yield from (f"not known: {one_line(why)}" for why in step.unknown)
    if shown.step_time is not None:
        yield ""
        yield from where_lines(shown.step_time)


def _shares(title: str, parts: Mapping[str, float], whole: float | None) -> Iterator[str]:
    if not parts:
        return
    rows = [(title, "seconds", "share")]
    rows += [
        (name.replace("_", " "), f"{seconds:.3g}", f"{100 * seconds / whole:.0f} %" if whole else "-")
        for name, seconds in parts.items()
    ]
    yield ""
    yield from aligned(rows, right=(1, 2))


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


def _seconds(lane: TrialLane) -> float:
    return sum(span.end - span.begin for span in lane.spans)


def _cells(lane: TrialLane) -> tuple[str, ...]:
    spent: dict[str, float] = {}
    for span in lane.spans:
        spent[span.what] = spent.get(span.what, 0.0) + span.end - span.begin
    most = max(spent, key=lambda what: spent[what], default="-")
    behind = "-" if lane.behind is None else str(lane.behind)
    return one_line(lane.name), f"{_seconds(lane):.3g}", most, number(lane.reward), behind
