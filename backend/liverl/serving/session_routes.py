"""Sends the service ``sessions`` its replicas (``sessions/replicas.json``), and reads what it reports."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from liverl.model import SessionsStatus
from liverl.plan.spec import Plan
from liverl.serving.route_file import RouteFile, text_of
from liverl.sessions.replica_file import REPLICAS, file_digest, replica_file
from liverl.supervise.services.supervisor import Supervisor


class SessionRoutes(RouteFile):
    """The replicas and reports of the run's sessions."""

    def __init__(self, supervisor: Supervisor, plan: Plan) -> None:
        super().__init__(supervisor, "sessions", REPLICAS, file_digest)
        self._model = plan.served_model

    def render(self, backends: Sequence[str], draining: Sequence[str]) -> bytes | None:
        """See ``RouteFile.render``."""
        return replica_file(backends, draining, self._model)

    def placed_on(self, address: str | None) -> int:
        """Open sessions whose next request goes to the replica at this URL, as the service last reported."""
        placed = self.report.get("placed")
        return int(placed.get(address, 0)) if isinstance(placed, dict) else 0

    def status(self) -> SessionsStatus | None:
        """For the snapshot; None if the run has no such service."""
        slot, report = self.slot, self.report
        if slot is None:
            return None
        try:
            told = msgspec.convert(report, SessionsStatus)
        except msgspec.ValidationError:
            told = SessionsStatus()
        return msgspec.structs.replace(
            told,
            address=self.address,
            generation=slot.current.machine.generation,
            error=text_of(report, "error"),
        )
