"""The present state of a run, with a backend or without."""

from __future__ import annotations

from liverl.control.blocking import Connection
from liverl.control.messages import BackendDead, BackendOfOther
from liverl.model import Snapshot
from liverl.offline.recorded import recorded
from liverl.offline.run import OfflineRun
from liverl.rundir.layout import RunDir


def present(run: RunDir) -> tuple[Snapshot | None, bool]:
    """The state of a run, of one without a backend its last one (None: none is recorded), and whether a backend
    supervises it.

    Raises:
        ControlError: its backend does not answer.
    """
    try:
        with Connection(run.path) as connection:
            return connection.snapshot(), True
    except BackendOfOther:
        return recorded(run), True
    except BackendDead:
        return OfflineRun(run.path).poll(), False
