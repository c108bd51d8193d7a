"""Tells a service in front of the replicas which of them it may use: a file, and SIGHUP until it reports that file.

A process that starts reads the file by itself; one that serves gets SIGHUP until its report
(``<folder>/status.<generation>.json``) has the digest of the newest list.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from liverl.procs import tree
from liverl.rundir.journal import read_object
from liverl.supervise.services import state_machine
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.newest_file import NewestFile
from liverl.util.regular_file import read_regular

# Seconds until a process that has not loaded the list gets another SIGHUP, or a file is mended again
AGAIN = 1.0
SAID_S = 60.0  # seconds until it is said again that something else writes the file


class RouteFile:
    """The list and the reports of one service. What the list looks like is a subclass's."""

    def __init__(
        self, supervisor: Supervisor, service: str, file: str, digest: Callable[[bytes], str]
    ) -> None:
        """``file``: relative to the run directory, beside the reports; ``digest``: what the service reports of it."""
        self.service, self.file = service, file
        self.reports: dict[int, dict[str, Any]] = {}  # generation -> the last report of its process
        self._supervisor = supervisor
        self._digest = digest
        self._sha = ""  # of the newest list
        self._written_sha = ""  # of the list in the file; "" = this backend has not written one yet
        path = supervisor.run_dir / file
        self._folder = path.parent
        self._file = NewestFile(
            path,
            written=self._written,
            failed=supervisor.records.write_failed,
            late=partial(supervisor.records.warn, "storage"),
            mode=0o600,  # it may contain the replicas' token
            make_folder=True,
        )
        self._reload_sent: dict[int, float] = {}  # generation -> time of the last SIGHUP
        # When the file was last written over what another program had written, and when that was last told
        self._mended = self._said = -SAID_S
        self._mends = 0  # how often since it was last told

    @property
    def slot(self) -> Slot | None:
        """The service; None if this run has none."""
        return self._supervisor.slots.get(self.service)

    @property
    def exists(self) -> bool:
        """Whether the run has the service."""
        return self.slot is not None

    @property
    def serves(self) -> bool:
        """Whether a process of the service serves."""
        return self.slot is not None and self.slot.state in state_machine.SERVING

    # --- to the service ---

    def render(self, backends: Sequence[str], draining: Sequence[str]) -> bytes | None:
        """The file's content; None if it cannot be made now, which has been said."""
        raise NotImplementedError

    def publish(self, backends: Sequence[str], draining: Sequence[str]) -> None:
        """Make every serving process send new trials to ``backends`` only; trials on ``draining`` replicas go on
        there. Call again until ``knows``."""
        if not self.exists:
            return
        data = self.render(backends, draining)
        if data is None:
            return
        self._sha = self._digest(data)
        self._file.put(data)
        if backends:
            self._keep(data)
        self._reload()

    def _keep(self, data: bytes) -> None:
        """Called with each list that has replicas."""

    @property
    def unwritten(self) -> bool:
        """Whether the file has not got the newest list yet; a process that starts then would not know all replicas."""
        return self._file.pending

    def _written(self, data: bytes) -> None:
        self._written_sha = self._digest(data)
        self._reload_sent.clear()
        self._reload()
        self._supervisor.kick()  # the service may wait for it

    def _reload(self) -> None:
        """Send SIGHUP to each serving process with another list than the file has, at most once in ``AGAIN``
        seconds."""
        if not self._written_sha or self.slot is None:
            return
        for instance in self.slot.instances():
            process = instance.process
            if process is None or instance.machine.state not in state_machine.SERVING:
                continue
            report = self.reports.get(process.generation, {})
            now = self._supervisor.now()
            if (
                report.get("config_sha") == self._written_sha
                or now - self._reload_sent.get(process.generation, 0.0) < AGAIN
            ):
                continue
            if report.get("pid") == process.pid:
                self._reload_sent[process.generation] = now
                tree.send(process.member, signal.SIGHUP)

    def _write_again(self) -> None:
        """Something else has changed the file: write the newest list once more. A program that does so again and again
        is answered once in ``AGAIN`` seconds, and told once in ``SAID_S``."""
        now = self._supervisor.now()
        if 0 <= now - self._mended < AGAIN:
            return
        self._mended, self._mends = now, self._mends + 1
        if not 0 <= now - self._said < SAID_S:
            often = f", {self._mends} times since this was last said" if self._mends > 1 else ""
            text = (
                f"{self.file} was changed by another program{often}, and {self.service} does not have the run's list; "
                "writing it again"
            )
            self._supervisor.say("routes", text, "warning", self.service)
            self._said, self._mends = now, 0
        self._file.put_again()

    # --- from the service ---

    def reader(self) -> Callable[[], Callable[[], None]]:
        """A function that reads the reports of all its processes, in any thread. What it returns takes them over; it
        must be called on the event loop."""
        slot = self.slot
        if slot is None:
            return lambda: lambda: None
        wanted = {i.process.generation for i in slot.instances() if i.process is not None}
        folder, more, written = self._folder, self._more(wanted), self._written_sha

        def read() -> Callable[[], None]:
            reports = {g: read_object(folder / f"status.{g}.json") for g in wanted}
            take_more = more()
            found = {g: r for g, r in reports.items() if r is not None}
            other = any(r.get("config_sha") not in (None, written) for r in found.values())
            changed = written if written and other and self._sha_on_disk() != written else None
            return partial(self._take, found, wanted, take_more, changed)

        return read

    def _sha_on_disk(self) -> str | None:
        """The digest of what the file has now; None if it cannot be read."""
        try:
            return self._digest(read_regular(self._supervisor.run_dir / self.file))
        except (OSError, UnicodeDecodeError):
            return None

    def _more(self, wanted: set[int]) -> Callable[[], Callable[[], None]]:
        """What else to read, as ``reader``. ``wanted``: the generations of living processes."""
        return lambda: lambda: None

    def _take(
        self,
        reports: dict[int, dict[str, Any]],
        wanted: set[int],
        take_more: Callable[[], None],
        changed: str | None,
    ) -> None:
        """``changed``: the list that the file had by our last write, and has no more; None: it was not looked at, as
        the reports name that list, or it has it."""
        self.reports |= reports
        take_more()
        self.reports = {g: r for g, r in self.reports.items() if g in wanted}
        if changed is not None and changed == self._written_sha and not self._file.pending:
            self._write_again()

    def knows(self) -> bool:
        """Whether the serving process has loaded the newest list. Also True if no process serves."""
        slot = self.slot
        if slot is None or slot.state in state_machine.ENDED:
            return True
        report = self.reports.get(slot.current.machine.generation, {})
        return report.get("config_sha") == self._sha

    @property
    def behind(self) -> bool:
        """Whether a ready process has reported an older list."""
        slot = self.slot
        if slot is None or slot.state != "ready":
            return False
        report = self.reports.get(slot.current.machine.generation)
        return report is not None and report.get("config_sha") != self._sha

    def holds(self) -> bool:
        """Whether a living process has requests in flight."""
        slot = self.slot
        return slot is not None and any(
            self.reports.get(i.process.generation, {}).get("in_flight")
            for i in slot.instances()
            if i.process is not None and not i.machine.leader_gone
        )

    @property
    def report(self) -> dict[str, Any]:
        """The last report of the current process; empty without one."""
        slot = self.slot
        return {} if slot is None else self.reports.get(slot.current.machine.generation, {})

    @property
    def address(self) -> str | None:
        """The URL of the service, whichever process serves there; None before it has a port."""
        slot = self.slot
        if slot is None:
            return None
        port = slot.current.port("http") or self._supervisor.keeper_manager.held_port(f"{self.service}.http")
        return f"http://{slot.spec.host}:{port}" if port else None


def text_of(report: dict[str, Any], name: str) -> str | None:
    """A text of a report; None without one."""
    value = report.get(name)
    return value if isinstance(value, str) else None


def number_of(report: dict[str, Any], name: str) -> int | None:
    """A whole number of a report; None without one."""
    value = report.get(name)
    return value if isinstance(value, int) else None
