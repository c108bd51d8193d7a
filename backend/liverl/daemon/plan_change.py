"""A changed configuration for the next attempt of a run: made by ``up --resume --set``, applied by the backend.

The backend applies it while it holds the run's lock and before the attempt begins, so that no other command can start
the attempt with another plan, and no services run that an older plan describes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from liverl.model import ConfigChange
from liverl.observe import config_edits
from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic


class PlanChange(msgspec.Struct, frozen=True):
    """``plan``: made from the changed configuration; ``config``: that configuration as YAML; ``changes``: what differs;
    ``file``: absolute path of the user's file, "" without one."""

    plan: Plan
    config: str
    changes: tuple[ConfigChange, ...]
    file: str = ""


def apply(run_dir: Path, before: Plan, change: PlanChange, attempt: int) -> Plan:
    """Write plan and configuration of attempt number ``attempt``, which begins now, or in which something is changed
    now; return its plan. ``before``: the run's present plan, of which the record of earlier changes is kept, and what
    it says of keys that stay.

    Raises:
        OSError: the run directory cannot be written.
    """
    changed = {c.key for c in change.changes}
    # An attempt that never began may have left changes of the same number. What an attempt began with stays.
    within = any(c.at is not None for c in change.changes)
    earlier = tuple(c for c in before.changes if within or c.attempt != attempt or c.key not in changed)
    warnings = [text for text in before.warnings if not any(key in text for key in changed)]
    where = {item.key: item.where for item in before.inert}
    plan = replace(
        change.plan,
        changes=(*earlier, *(replace(c, attempt=attempt) for c in change.changes)),
        warnings=tuple(dict.fromkeys([*warnings, *change.plan.warnings])),
        inert=tuple(replace(i, where=i.where or where.get(i.key)) for i in change.plan.inert),
    )
    run = RunDir(run_dir)
    # The plan first: it says what the attempt runs. Without the second file, the same command can be given again.
    write_atomic(run.plan, msgspec.json.format(msgspec.json.encode(plan)))
    config_edits.expect(run_dir, run.config, change.config.encode())
    write_atomic(run.config, change.config.encode())
    config_edits.record(run_dir, [run.config, *([Path(change.file)] if change.file else [])])
    return plan
