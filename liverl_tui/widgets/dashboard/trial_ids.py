"""Short ids that tell trials of one task apart: the first digits of what follows the task in their names. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rich.cells import cell_len

from liverl.model import TrialHead
from liverl.util.late_pattern import late_pattern
from liverl_tui.text.words import one_line
from liverl_tui.widgets.base.cells import fit

_FEWEST = 4  # characters of a short id
_LEAST_OF_TASK = 8  # columns of a task that is cut for the id behind it; with fewer it stands alone
_ID = late_pattern(r"[-_]+(\w{4,})")


def short_ids(trials: Iterable[TrialHead]) -> dict[str, str]:
    """Path -> short id, for the trials whose names end with one: ``create-001-3f2a9c04`` has ``3f2a``, or as many
    characters as make the ids of each task unique."""
    ids = [(h.path, h.task, m[1]) for h in trials if (m := _ID.fullmatch(h.name.removeprefix(h.task)))]
    distinct = len({(task, whole) for _, task, whole in ids})
    longest = max((len(whole) for _, _, whole in ids), default=0)
    length = _FEWEST
    while length < longest and len({(task, whole[:length]) for _, task, whole in ids}) < distinct:
        length += 1
    return {path: whole[:length] for path, _, whole in ids}


@lru_cache(maxsize=4096)
def lone_id(name: str, task: str) -> str:
    """The short id of a trial beside which no other one is: as of ``short_ids``, empty without one."""
    found = _ID.fullmatch(name.removeprefix(task))
    return found[1][:_FEWEST] if found else ""


def task_with_id(task: str, short_id: str, width: int) -> str:
    """``create-001-3f2a`` in at most ``width`` columns: the task is cut before the id is left out."""
    task = one_line(task)
    room = width - len(short_id) - 1
    if not short_id or room < min(_LEAST_OF_TASK, cell_len(task)):
        return task
    return f"{fit(task, min(room, cell_len(task)))}-{short_id}"
