"""The present state of a run, with a backend or without."""

from __future__ import annotations

from liverl.control.blocking import Connection
from liverl.control.messages import BackendDead, BackendOfOther, BackendSilent
from liverl.model import Snapshot
from liverl.offline.recorded import recorded
from liverl.offline.run import OfflineRun
from liverl.rundir.layout import RunDir


def present(run: RunDir) -> tuple[Snapshot | None, bool]:
    """The state of a run, of one without a backend its last one (None: none is recorded), and whether a backend
    supervises it.

    Raises:
        BackendSilent: its backend does not answer.
        ControlError: it runs elsewhere, or is of another version.
    """
    try:
        with Connection(run.path) as connection:
            return connection.snapshot(), True
    except BackendOfOther:
        return recorded(run), True
    except BackendDead:
        return OfflineRun(run.path).poll(), False


def present_or_recorded(run: RunDir) -> tuple[Snapshot | None, bool, str]:
    """As ``present``, but of a backend that runs and does not answer what its files record, and why it does not answer;
    "" if it did.

    Raises:
        ControlError: it runs elsewhere, or is of another version.
    """
    try:
        return *present(run), ""
    except BackendSilent as error:
        return recorded(run), False, str(error)
