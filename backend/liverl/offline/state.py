"""The state of a run, whether its backend lives or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.control import blocking
from liverl.control.messages import BackendDead, BackendSilent
from liverl.rundir.layout import LiveBackend

if TYPE_CHECKING:
    from liverl.model import Snapshot


def snapshot(run_dir: str | os.PathLike[str]) -> Snapshot:
    """The state of a run:

    - its backend lives on this host: the present state, as the backend tells it;
    - it has ended: the last state; ``state`` is that of ``result`` (done, failed or stopped), and ``result`` is set;
    - its backend has died without a result: ``state`` is ``dead``. What the files and the process table tell:
      a service that still runs keeps its pid, one that does not is ``stopped``. What only a backend measures
      (GPUs, an engine's requests) is as it was last known, or None.

    Raises:
        BackendElsewhere: its backend lives on another host; ask there.
        BackendSilent: its backend lives here and does not answer.
        BackendDead: there is no run in this directory.
        ControlError: the backend is of another version or belongs to another user.
    """
    path = Path(run_dir)
    try:
        return blocking.snapshot(path)
    except BackendDead:
        pass
    except BackendSilent:
        # One that is ending closes its socket first, then its process ends.
        if isinstance(blocking.await_gone(path, blocking.DYING_S), LiveBackend):
            raise
    from liverl.offline.run import OfflineRun

    found = OfflineRun(path).poll()
    if found is None:
        raise BackendDead(
            f"{path} is not a run directory: it has no plan.json, backend.json, events.jsonl, result.json or "
            f"journal.jsonl"
        )
    return found
