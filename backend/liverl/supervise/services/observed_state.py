"""The state of a process that the run observes but does not start or stop."""

from __future__ import annotations

from liverl.model import Level, ServiceState
from liverl.supervise.services.supervisor import Supervisor


class ObservedState:
    """``name``: the service named in its events. ``why``: reason for the state. ``since``: Unix time of the last
    change of state. The state is ``waiting`` at first."""

    def __init__(self, supervisor: Supervisor, name: str, why: str) -> None:
        self.state: ServiceState = "waiting"
        self.why = why
        self.since = supervisor.now()
        self._supervisor = supervisor
        self._name = name

    def enter(self, state: ServiceState, why: str) -> None:
        """Set the state and its reason. A change of state adds an event; a new reason alone does not."""
        if state != self.state:
            level: Level = "warning" if state in ("degraded", "failed") else "info"
            text = f"{state}: {why}" if why else state
            self._supervisor.say("state", text, level, self._name, state=state)
            self.state, self.since = state, self._supervisor.now()
        self.why = why
