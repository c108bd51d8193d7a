"""Ends a run whose backend's main loop does not take the order: its control socket has a thread of its own, which uses
this.

The order is journalled, the keeper kills the services, and the process replaces itself, with its pid, by a backend that
only writes the result. That one finds everything in the journal, as after a SIGKILL.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable
from pathlib import Path

from liverl.daemon.launch import StopRequest
from liverl.daemon.verdict import RunOutcome
from liverl.rundir.journal import complain
from liverl.supervise.keeper.kill import kill_services


class PastTheLoop:
    """Implements ``control.front.Urgent``. ``directory`` returns the present path of the run directory."""

    def __init__(self, outcome: RunOutcome, directory: Callable[[], Path]) -> None:
        self._outcome = outcome
        self._directory = directory

    def record(self, *, now: bool, who: str) -> str:
        """Journal the stop; returns why it could not be written, or ""."""
        return self._outcome.order_stop(now=now, who=who)

    def kill(self, who: str) -> int | None:
        """Kill all processes of the services through the keeper; returns their number, None if it does not answer."""
        return kill_services(self._directory())

    def replace(self, who: str, why: str) -> None:
        """Become the backend that ends the run. Before it, ``backend.log`` gets ``why`` and where each thread was.

        Raises:
            OSError: it cannot be executed.
        """
        complain(f"{why}. Ordered by {who}. What its threads were doing:")
        faulthandler.dump_traceback(file=2, all_threads=True)
        options = StopRequest(True, who, killed=True).options()
        program = [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(self._directory())]
        os.execv(sys.executable, [*program, *options])
