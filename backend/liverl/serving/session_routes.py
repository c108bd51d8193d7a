"""Sends the service ``sessions`` its replicas (``sessions/replicas.json``), and reads what it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from liverl.model import SessionsStatus
from liverl.plan.spec import Plan
from liverl.serving.route_file import RouteFile, text_of
from liverl.serving.session_events import SessionEvents, with_moments, with_numbers
from liverl.sessions.replica_file import REPLICAS, deaths_in, file_digest, read_replicas, replica_file
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.bad_json import BAD_JSON
from liverl.util.regular_file import read_regular


class SessionRoutes(RouteFile):
    """The replicas and reports of the run's sessions."""

    def __init__(self, supervisor: Supervisor, plan: Plan, deaths: Mapping[str, int] | None = None) -> None:
        """``deaths``: URL -> how often a process behind it has ended unasked, as of each ``publish``."""
        super().__init__(supervisor, "sessions", REPLICAS, file_digest)
        self._model = plan.served_model
        self._deaths = deaths if deaths is not None else {}
        self.events = SessionEvents(supervisor, self.service)

    def render(self, backends: Sequence[str], draining: Sequence[str]) -> bytes | None:
        """See ``RouteFile.render``."""
        return replica_file(backends, draining, self._model, self._deaths)

    def tell(self) -> None:
        """Write events about what the service has reported."""
        if self.report:
            self.events.take({self.service: self.report})

    def deaths_told(self) -> dict[str, int]:
        """The deaths in the file that an earlier backend has written; none if it cannot be read."""
        try:
            return deaths_in(read_replicas(read_regular(self._supervisor.run_dir / REPLICAS)))
        except (OSError, *BAD_JSON):
            return {}

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
            told = msgspec.convert(with_moments(with_numbers(report), self._supervisor.now()), SessionsStatus)
        except msgspec.ValidationError:
            told = SessionsStatus()
        return msgspec.structs.replace(
            told,
            address=self.address,
            generation=slot.current.machine.generation,
            error=text_of(report, "error"),
        )
