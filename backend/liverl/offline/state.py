"""The state of a run, with or without a running backend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.control import blocking
from liverl.control.messages import BackendBusy, BackendDead, BackendSilent
from liverl.rundir.layout import LiveBackend

if TYPE_CHECKING:
    from liverl.model import Snapshot


def snapshot(run_dir: str | os.PathLike[str]) -> Snapshot:
    """Return the state of a run:

    - its backend runs on this host: the present state, from the backend;
    - the run has ended: its last state; ``state`` is that of ``result`` (done, failed or stopped), and ``result``
      is set;
    - its backend has died without a result: ``state`` is ``dead``. The rest comes from files and process table:
      a service that still runs keeps its pid, any other is ``stopped``. What only a backend measures (GPUs, an
      engine's requests) is as last known, or None.

    Raises:
        BackendElsewhere: its backend runs on another host; ask there.
        BackendBusy: its backend answers that it is busy, since when and with what.
        BackendSilent: its backend runs here and does not answer.
        BackendDead: there is no run in this directory.
        ControlError: the backend is of another version or belongs to another user.
    """
    path = Path(run_dir)
    try:
        return blocking.snapshot(path)
    except BackendDead:
        pass
    except BackendBusy:
        raise
    except BackendSilent:
        # A backend that ends closes its socket before its process exits.
        if isinstance(blocking.await_gone(path, blocking.DYING_S), LiveBackend):
            raise
    from liverl.offline.run import OfflineRun

    state = OfflineRun(path).poll()
    if state is None:
        raise BackendDead(
            f"{path} is not a run directory: it has no plan.json, backend.json, events.jsonl, result.json or "
            f"journal.jsonl"
        )
    return state
