"""Which part of a step takes longer than before, and since when. Pure."""

from __future__ import annotations

from liverl.diagnose.catalogue.course import rise
from liverl.diagnose.where.parts import CHECKPOINT, OTHER, VALIDATION, parts_of, seconds_of
from liverl.observe.metrics.recent import RecentSteps

GROWN = 1.5  # times as long as at its fastest steps
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
        grown = rise(part, [(step, one[part]) for step, one in parts if one.get(part, 0.0) > 0.0])
        if (
            grown is not None
            and grown.sure
            and grown.factor >= GROWN
            and grown.now - grown.low >= WORTH * now
        ):
            found.append(grown)
    if not found:
        return ""
    most = max(found, key=lambda one: one.now - one.low)
    return (
        f"{most.key} takes {most.factor:.1f} times as long as at step {most.left}: {most.low:.3g} s then, "
        f"{most.now:.3g} s now"
    )
