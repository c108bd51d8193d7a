"""The state of something that is only watched: what was found out last, and since when it is so."""

from __future__ import annotations

from liverl.model import Level, ServiceState
from liverl.supervise.services.supervisor import Supervisor


class ObservedState:
    """``name``: the service that events about it are told of. ``since``: Unix time of the last change of state."""

    def __init__(self, supervisor: Supervisor, name: str, why: str) -> None:
        self.state: ServiceState = "waiting"
        self.why = why
        self.since = supervisor.now()
        self._supervisor = supervisor
        self._name = name

    def enter(self, state: ServiceState, why: str) -> None:
        """It is so now; a change of state is told."""
        if state != self.state:
            level: Level = "warning" if state in ("degraded", "failed") else "info"
            text = f"{state}: {why}" if why else state
            self._supervisor.say("state", text, level, self._name, state=state)
            self.state, self.since = state, self._supervisor.now()
        self.why = why
