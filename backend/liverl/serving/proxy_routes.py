"""Sends LiteLLM its routes (``proxy/litellm.yaml``), and reads what its processes report."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from liverl.model import Clients, ProxyStatus
from liverl.plan.spec import Plan
from liverl.proxy.config import config_sha, render_litellm_config
from liverl.rundir.layout import RunDir
from liverl.serving.proxy_counters import ProxyCounters, counts_of, ended_counts, unknown_models
from liverl.serving.route_file import RouteFile, number_of, text_of
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.newest_file import NewestFile
from liverl.util.regular_file import read_text


class ProxyRoutes(RouteFile):
    """The routes and reports of the run's proxy. ``cooldown``: seconds that a replica stays in cooldown after its
    requests failed."""

    def __init__(self, supervisor: Supervisor, plan: Plan, cooldown: float) -> None:
        super().__init__(supervisor, "proxy", "proxy/litellm.yaml", lambda data: config_sha(data.decode()))
        self._plan = plan
        # The list of a run that ends has no replicas: for a later look at the run there is its last one with some.
        self._kept = NewestFile(
            RunDir(supervisor.run_dir).attempt(supervisor.attempt) / "litellm.yaml",
            written=lambda data: None,
            failed=supervisor.records.write_failed,
            late=functools.partial(supervisor.records.warn, "storage"),
            mode=0o600,
        )
        self._cooldown = cooldown
        self._token = _replica_token(supervisor, plan)
        self._ended: dict[int, ProxyCounters] | None = None  # generation -> its counters; None = not read yet

    def render(self, backends: Sequence[str], draining: Sequence[str]) -> bytes | None:
        """See ``RouteFile.render``."""
        if isinstance(self._token, OSError):
            self._supervisor.records.write_failed(
                f"litellm.yaml: cannot read {self._token.filename}: {self._token.strerror}"
            )
            return None
        return render_litellm_config(
            backends,
            self._plan.served_model,
            request_timeout=self._plan.trial_timeout,
            cooldown=self._cooldown,
            draining=draining,
            prefix=self._plan.replica_engine.litellm_prefix,
            token=self._token,
        ).encode()

    def _keep(self, data: bytes) -> None:
        token = self._token if isinstance(self._token, str) else ""
        self._kept.put(data.replace(token.encode(), b"REPLICA_TOKEN") if token else data)

    def _more(self, wanted: set[int]) -> Callable[[], Callable[[], None]]:
        """The counters of processes that have ended."""
        folder = self._folder
        more_ended = self._ended is None or not wanted.issuperset(self.reports)

        def read() -> Callable[[], None]:
            ended = ended_counts(folder, wanted) if more_ended else None
            return lambda: self._take_ended(ended, wanted)

        return read

    def _take_ended(self, ended: dict[int, ProxyCounters] | None, wanted: set[int]) -> None:
        if ended is not None:
            # A process writes its last report when it exits, after the one that was read here.
            last = {g: counts_of(r) for g, r in self.reports.items() if g not in wanted}
            self._ended = (self._ended or {}) | last | ended

    def status(self) -> ProxyStatus:
        """For the snapshot: the routes of the current process, and the counters of all processes of the run."""
        slot, current = self.slot, self.report
        if slot is None:
            return ProxyStatus()
        sums = sum([*map(counts_of, self.reports.values()), *(self._ended or {}).values()], ProxyCounters())
        return ProxyStatus(
            address=self.address,
            backends=tuple(current.get("backends", ())),
            config=self.file,
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
            descriptors=number_of(current, "descriptors"),
            descriptor_limit=number_of(current, "descriptor_limit"),
            record_error=text_of(current, "record_error"),
            clients=clients_of(current),
        )


def clients_of(report: Mapping[str, Any]) -> Clients | None:
    """What a process reports of its connections; None if it reports nothing of them."""
    try:
        return msgspec.convert(report["clients"], Clients)
    except (KeyError, msgspec.ValidationError):
        return None


def _replica_token(supervisor: Supervisor, plan: Plan) -> str | OSError:
    """The token that the replicas require, or why its file cannot be read; "" if they require none."""
    try:
        return (
            read_text(supervisor.run_dir / plan.replica_token_file).strip() if plan.replica_token_file else ""
        )
    except OSError as error:
        return error
