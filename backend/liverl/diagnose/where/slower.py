"""Which part of a step takes longer than in the first steps. Pure."""

from __future__ import annotations

from liverl.diagnose.catalogue.course import SMOOTH, beginning, rise
from liverl.diagnose.where.parts import CHECKPOINT, OTHER, VALIDATION, parts_of, seconds_of
from liverl.observe.metrics.recent import RecentSteps

GROWN = 1.5  # times as long as in the first steps: beside the fastest ones of a run, usual ones look slow
WORTH = 0.1  # of a step's time now: what a part must have grown by


def slower(recent: RecentSteps) -> str:
    """The part that has grown most, in words; "" if none has grown for certain (see ``course.rise``), or by too little
    to be seen in a step. Validation and checkpoints come now and then, and are left out."""
    steps = [step for steps in (recent.earlier, recent.steps) for step in steps]
    if not steps:
        return ""
    found = []
    parts = [(float(step.step), parts_of(step.values)) for step in steps]
    now = seconds_of(steps[-1].values)
    for part in dict.fromkeys(part for _, one in parts for part in one):
        if part in (CHECKPOINT, VALIDATION, OTHER) or now is None:
            continue
        points = [(step, one[part]) for step, one in parts if one.get(part, 0.0) > 0.0]
        grown = rise(part, points)
        if grown is None or not grown.sure:
            continue
        last, low = beginning(points)
        if grown.now >= GROWN * low and grown.now - low >= WORTH * now:
            found.append((grown.now - low, grown.now, low, last, part))
    if not found:
        return ""
    _, newest, low, last, most = max(found)
    return (
        f"{most} takes {newest / low:.1f} times as long as up to step {last}: {low:.3g} s then, "
        f"{newest:.3g} s in the newest {SMOOTH} steps"
    )
