"""Which two trials are shown side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from liverl.model import TrialHead
from liverl.observe.trials.groups import group_of
from liverl.observe.trials.query import EARLIER, parse

if TYPE_CHECKING:
    from liverl.observe.trials.index import TrialIndex


def pair_of(
    known: Mapping[str, TrialHead], marks: Collection[str], row: TrialHead | None, whole: TrialIndex | None
) -> tuple[str, str] | str:
    """The paths of two trials: the marked ones if two of ``known`` are marked, else the best and the worst of the
    prompt of ``row``, which is under the cursor; or a sentence that says why there are no two. ``whole``: all trials of
    the run, if these are listed."""
    from liverl.observe.trials.pairing import best_and_worst  # not at the top: it would delay the first paint

    marked = [known[path] for path in sorted(marks) if path in known]
    if len(marked) == 2:
        best, worst = best_and_worst(marked) or marked
        return best.path, worst.path
    if row is None:
        return "this row is no trial; go to one, or mark two trials"
    prompt = known.values() if whole is None else _of_task(whole, row)
    found = best_and_worst(head for head in prompt if group_of(head) == group_of(row))
    if found is None:
        return "fewer than two trials of this prompt have a reward; mark two trials to compare them"
    return found[0].path, found[1].path


def _of_task(whole: TrialIndex, head: TrialHead) -> list[TrialHead]:
    """The trials of the task of ``head`` in its step, out of all trials of the run."""
    query = parse(f'step={"none" if head.step is None else head.step} task="{head.task}" {EARLIER}=any')
    return [whole.head(row) for row in whole.select(query)]
