"""Sends the proxy its routes (``proxy/litellm.yaml`` and SIGHUP), and reads its reports
(``proxy/status.<generation>.json``).

A proxy process that starts reads the file by itself; one that serves gets SIGHUP until it reports the newest list.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from liverl.model import ProxyStatus
from liverl.plan.spec import Plan
from liverl.procs import tree
from liverl.proxy.config import config_sha, render_litellm_config
from liverl.rundir.journal import read_object
from liverl.serving.proxy_counters import ProxyCounters, counts_of, ended_counts, unknown_models
from liverl.supervise.services import state_machine
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.newest_file import NewestFile
from liverl.util.regular_file import read_text

AGAIN = 1.0  # seconds until a proxy that has not loaded the list gets another SIGHUP


class ProxyRoutes:
    """The routes and reports of the run's proxy. ``cooldown``: seconds that a replica stays in cooldown after its
    requests failed."""

    def __init__(self, supervisor: Supervisor, plan: Plan, cooldown: float) -> None:
        self.reports: dict[int, dict[str, Any]] = {}  # generation -> the last report of its process
        self._supervisor = supervisor
        self._plan = plan
        self._cooldown = cooldown
        self._sha = ""  # of the newest list
        self._written_sha = ""  # of the list in the file; "" = this backend has not written one yet
        self._token = _replica_token(supervisor, plan)
        self._file = NewestFile(
            supervisor.run_dir / "proxy" / "litellm.yaml",
            written=self._written,
            failed=supervisor.records.write_failed,
            late=partial(supervisor.records.warn, "storage"),
            mode=0o600,  # it contains the replicas' token
            make_folder=True,
        )
        self._reload_sent: dict[int, float] = {}  # generation -> time of the last SIGHUP
        self._ended: dict[int, ProxyCounters] | None = None  # generation -> its counters; None = not read yet

    @property
    def exists(self) -> bool:
        """Whether the proxy is a service of this run."""
        return "proxy" in self._supervisor.slots

    # --- to the proxy ---

    def publish(self, backends: Sequence[str], draining: Sequence[str]) -> None:
        """Make every serving proxy process send new trials to ``backends`` only; trials on ``draining`` replicas go on
        there. Call again until ``knows``."""
        if not self.exists:
            return
        if isinstance(self._token, OSError):
            self._supervisor.records.write_failed(
                f"litellm.yaml: cannot read {self._token.filename}: {self._token.strerror}"
            )
            return
        text = render_litellm_config(
            backends,
            self._plan.served_model,
            request_timeout=self._plan.trial_timeout,
            cooldown=self._cooldown,
            draining=draining,
            prefix=self._plan.replica_engine.litellm_prefix,
            token=self._token,
        )
        self._sha = config_sha(text)
        self._file.put(text.encode())
        self._reload()

    @property
    def unwritten(self) -> bool:
        """Whether the file has not got the newest list yet; a process that starts then would not know all replicas."""
        return self._file.pending

    def _written(self, data: bytes) -> None:
        self._written_sha = config_sha(data.decode())
        self._reload_sent.clear()
        self._reload()
        self._supervisor.kick()  # the proxy may wait for it

    def _reload(self) -> None:
        """Send SIGHUP to each serving process with another list than the file has, at most once in ``AGAIN``
        seconds."""
        if not self._written_sha:
            return
        for instance in self._supervisor.slots["proxy"].instances():
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

    # --- from the proxy ---

    def reader(self) -> Callable[[], Callable[[], None]]:
        """A function that reads the reports of all proxy processes, in any thread. What it returns takes them over; it
        must be called on the event loop."""
        slot = self._supervisor.slots.get("proxy")
        if slot is None:
            return lambda: lambda: None
        wanted = {i.process.generation for i in slot.instances() if i.process is not None}
        folder = self._supervisor.run_dir / "proxy"
        more_ended = self._ended is None or not wanted.issuperset(self.reports)

        def read() -> Callable[[], None]:
            reports = {g: read_object(folder / f"status.{g}.json") for g in wanted}
            ended = ended_counts(folder, wanted) if more_ended else None
            return partial(self._take, {g: r for g, r in reports.items() if r is not None}, wanted, ended)

        return read

    def _take(
        self, reports: dict[int, dict[str, Any]], wanted: set[int], ended: dict[int, ProxyCounters] | None
    ) -> None:
        self.reports |= reports
        if ended is not None:
            # A process writes its last report when it exits, after the one that was read here.
            last = {g: counts_of(r) for g, r in self.reports.items() if g not in wanted}
            self._ended = (self._ended or {}) | last | ended
        self.reports = {g: r for g, r in self.reports.items() if g in wanted}

    def knows(self) -> bool:
        """Whether the serving process has loaded the newest list. Also True if no process serves."""
        slot = self._supervisor.slots.get("proxy")
        if slot is None or slot.state in state_machine.ENDED:
            return True
        report = self.reports.get(slot.current.machine.generation, {})
        return report.get("config_sha") == self._sha

    @property
    def behind(self) -> bool:
        """Whether a ready process has reported an older list."""
        slot = self._supervisor.slots.get("proxy")
        if slot is None or slot.state != "ready":
            return False
        report = self.reports.get(slot.current.machine.generation)
        return report is not None and report.get("config_sha") != self._sha

    def holds(self) -> bool:
        """Whether a living process has requests in flight."""
        slot = self._supervisor.slots.get("proxy")
        return slot is not None and any(
            self.reports.get(i.process.generation, {}).get("in_flight")
            for i in slot.instances()
            if i.process is not None and not i.machine.leader_gone
        )

    def status(self) -> ProxyStatus:
        """For the snapshot: the routes of the current process, and the counters of all processes of the run."""
        slot = self._supervisor.slots.get("proxy")
        if slot is None:
            return ProxyStatus()
        current = self.reports.get(slot.current.machine.generation, {})
        port = slot.current.port("http") or self._supervisor.keeper_manager.held_port("proxy.http")
        sums = sum([*map(counts_of, self.reports.values()), *(self._ended or {}).values()], ProxyCounters())
        return ProxyStatus(
            address=f"http://{slot.spec.host}:{port}" if port else None,
            backends=tuple(current.get("backends", ())),
            config="proxy/litellm.yaml",
            generation=slot.current.machine.generation,
            requests=sums.requests,
            failures=sums.failures,
            unattributed=sums.unattributed,
            refused=sums.refused,
            unknown=sums.unknown,
            unknown_models=unknown_models(self.reports.values()),
            cooled_down=tuple(current.get("cooled_down", ())),
            too_large=sums.too_large,
            unrecorded=sums.unrecorded,
            turned_away=sums.turned_away,
            dropped=sums.dropped,
            descriptors=_number(current, "descriptors"),
            descriptor_limit=_number(current, "descriptor_limit"),
            record_error=_text(current, "record_error"),
        )


def _replica_token(supervisor: Supervisor, plan: Plan) -> str | OSError:
    """The token that the replicas require, or why its file cannot be read; "" if they require none."""
    try:
        return (
            read_text(supervisor.run_dir / plan.replica_token_file).strip() if plan.replica_token_file else ""
        )
    except OSError as error:
        return error


def _number(report: dict[str, Any], name: str) -> int | None:
    value = report.get(name)
    return value if isinstance(value, int) else None


def _text(report: dict[str, Any], name: str) -> str | None:
    value = report.get(name)
    return value if isinstance(value, str) else None
