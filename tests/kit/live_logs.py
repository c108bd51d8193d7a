"""Logs of services that run, followed as the backend follows them, and what the rules say of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kit.screens import service, snapshot
from liverl.diagnose.catalogue import live_logs
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import ServiceStatus, Snapshot, Symptom, TrialsStatus
from liverl.observe.live_logs.facts import LiveLog
from liverl.observe.live_logs.reader import FollowedLog, LiveLogs
from liverl.observe.metrics.recent import RecentSteps

UP_S = 3600.0  # seconds for which the services of these runs have been up
KINDS = {"proxy": "proxy", "trainer": "trainer", "ray": "ray", "sessions": "sessions"}

NO_STEPS = RecentSteps()


class Followed:
    """A run directory with logs, followed from the first ``look`` on. ``now``: Unix time, which only ``look`` moves."""

    def __init__(self, run_dir: Path, now: float | None = None) -> None:
        self.run_dir = run_dir
        self.now = time.time() if now is None else now
        self.names: list[str] = []
        self.live = LiveLogs(run_dir)

    def path(self, name: str) -> Path:
        """The log of a service."""
        path = self.run_dir / "attempt_001" / "logs" / f"{name}.1.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        if name not in self.names:
            self.names.append(name)
        return path

    def write(self, name: str, *lines: str) -> None:
        """Append lines to the log of a service."""
        with self.path(name).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def look(self, seconds: float = 1.0) -> tuple[LiveLog, ...]:
        """Let time pass, and read what was appended; twice, so that the last record is complete."""
        self.now += seconds
        logs = [FollowedLog(name, self.path(name)) for name in self.names]
        self.live.look(logs, self.now)
        self.live.look(logs, self.now)
        return self.live.facts

    def services(self, **fields: Any) -> tuple[ServiceStatus, ...]:
        """All services of the run, up for a long time unless ``fields`` say otherwise."""
        up = {"ready_at": self.now - UP_S, "since": self.now - UP_S, "started_at": self.now - UP_S - 60}
        values = {**up, **fields}
        return tuple(service(name, KINDS.get(name, "replica"), **values) for name in self.names)

    def snapshot(self, **fields: Any) -> Snapshot:
        """The run now; ``fields`` replace."""
        return snapshot(**{"at": self.now, "services": self.services(), **fields})

    def symptoms(
        self, tool_parser: str | None = None, recent: RecentSteps = NO_STEPS, **fields: Any
    ) -> dict[str, Symptom]:
        """What the rules for logs find at one look of a run whose trials are not known; ``fields`` of the snapshot
        replace."""
        beside = RunContext(tool_parser=tool_parser, live_logs=self.live.facts, recent=recent)
        window = Window(self.snapshot(**{"trials": TrialsStatus(), **fields}), None, beside)
        rules = (live_logs.logged, live_logs.requests_fail, live_logs.requests_refused)
        found = [s for rule in rules for s in rule(window)]
        return {s.id: s for s in found if isinstance(s, Symptom)}
