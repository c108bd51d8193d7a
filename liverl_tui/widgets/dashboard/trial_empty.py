"""What a list without trials says in place of rows. Pure."""

from __future__ import annotations

from liverl_tui.keys.bindings import find
from liverl_tui.widgets.base.cells import Row


def why_empty(
    *,
    steps: bool,
    any_trials: bool,
    filtered: bool,
    only_flagged: bool,
    unrecorded: str,
    ended: bool,
    trainer_ready: bool,
) -> tuple[Row, ...]:
    """Why there are no rows: nothing matches, or no trials yet. ``steps``: the list is of steps; ``any_trials``: the
    run has some; ``unrecorded``: which steps have none in a recording; ``ended``: the run has; ``trainer_ready``: a
    trainer of it is, or it starts none."""
    if filtered or only_flagged:
        what = "step" if steps else "flagged trial" if only_flagged else "trial"
        way = "" if only_flagged else "; Esc shows all"
        reason = f"no {what} matches{way}" if filtered else "no flagged trials"
        if only_flagged:
            reason += f"; {find('trials', 'flagged').press} to list all trials"
        missing = () if steps or not unrecorded else (Row((f"  {unrecorded}", "warn")),)
        return (Row((f"  {reason}", "dim")), *missing)
    if unrecorded:
        return (Row((f"  {unrecorded}", "dim")),)
    words = "  no trials of a training step" if steps and any_trials else "  no trials"
    if not ended:
        words += " yet" if trainer_ready else " yet: they begin when the trainer is ready"
    return (Row((words, "dim")),)
