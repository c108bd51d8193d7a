"""State of one generation of the proxy: counters, listed replicas, routing and records."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from liverl.util.descriptors import descriptor_limit, open_descriptors
from liverl.util.http_limits import Bodies, Connections, limits_for

from .assignments import Assignments
from .callers import Caller
from .calls import Call
from .recorder import Recorder
from .records import failure_seen, make_record
from .refusals import Refusals
from .routing import Routing
from .settings import ModelConfig, Settings
from .status import StatusFile
from .trial_sampling import TrialSampling

# LiteLLM reports a call from a background task, usually within milliseconds; on 2 cores under a load of 20 more than
# 10 s passed for half of the calls. After this many seconds the record is made from the response to the client, without
# the answer, so that no call is lost if LiteLLM never reports. A report that comes later is dropped: a second record
# would be a second turn.
REPORT_GRACE = 120.0
FAILED_GRACE = 1.0  # seconds; the same for failed calls, which have no reply to wait for


class GenerationState:
    """State of this generation, published in its status file."""

    def __init__(self, settings: Settings, models: ModelConfig) -> None:
        self.settings = settings
        self.models = models  # last accepted configuration
        self.state = "starting"
        self.error: str | None = None  # a failed reload, or an interrupted drain
        self.requests = 0
        self.failures = 0
        self.unattributed = 0
        self.refusals = Refusals()
        self.descriptor_limit = descriptor_limit()
        self.descriptors = 0  # in use; counted by ``look``
        limits = limits_for(self.descriptor_limit, settings.max_body)
        limits = replace(
            limits,
            head_timeout=settings.head_timeout,
            body_timeout=settings.body_timeout,
            write_timeout=settings.write_timeout,
        )
        self.connections = Connections(limits)
        self.bodies = Bodies(limits.max_body, limits.total_bodies)
        self.open: set[Call] = set()
        self.count_connections: Callable[[], int] = lambda: 0
        proxy = settings.run_dir / "proxy"
        self._status = StatusFile(proxy / f"status.{settings.generation}.json")
        self._unreported: dict[Call, asyncio.TimerHandle | None] = {}
        self._writes: set[Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.routing = Routing(
            Assignments(proxy / "assignments.jsonl", settings.generation), models.cooldown, self.publish
        )
        self.routing.configure(models.backends, models.draining, models.cooldown)
        secrets = (settings.keys.master, settings.keys.run)
        self.recorder = Recorder(settings.run_dir, secrets, self._publish_from_thread)
        policy, trials = settings.sampling, settings.run_dir / "trials"
        self.sampling = TrialSampling(policy, trials) if policy is not None else None  # None: clients decide

    @property
    def draining(self) -> bool:
        """Whether this generation is draining."""
        return self.state == "draining"

    def take_models(self, models: ModelConfig) -> None:
        """Use a reloaded configuration, which the router has already accepted."""
        self.models = models
        self.routing.configure(models.backends, models.draining, models.cooldown)
        self.error = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop that reports are scheduled on."""
        self._loop = loop

    def set_state(self, state: str, error: str | None = None) -> None:
        """Change the state, and the error if given, and publish both."""
        self.state = state
        if error is not None:
            self.error = error
        self.publish()

    def publish(self, at_once: bool = False) -> None:
        """Write the status file if something changed; ``at_once``: even if counters were written a moment
        ago."""
        self._status.update(
            {
                "pid": os.getpid(),
                "generation": self.settings.generation,
                "config_sha": self.models.sha,
                "backends": list(self.models.backends),
                "draining_backends": list(self.models.draining),
                "state": self.state,
                "connections": self.count_connections(),
                "in_flight": len(self.open),
                "requests": self.requests,
                "failures": self.failures,
                "unattributed": self.unattributed,
                "refused": self.refusals.keys,
                "unknown_models": dict(self.refusals.models),
                "overridden": dict(self.sampling.overridden) if self.sampling is not None else {},
                "too_large": self.bodies.refused,
                "unrecorded": self.recorder.lost,
                "record_error": self.recorder.last_error,
                "turned_away": self.connections.turned_away + self.routing.without_descriptor,
                "dropped": sum(self.connections.dropped.values()),
                "descriptors": self.descriptors,
                "descriptor_limit": self.descriptor_limit,
                "clients": {
                    **self.connections.facts(),
                    "descriptors": self.descriptors,
                    "descriptor_limit": self.descriptor_limit,
                },
                "cooled_down": sorted(self.routing.cooled_down()),
                "error": self.error or self.recorder.error or self.routing.error,
            },
            at_once,
        )

    def look(self, now: float) -> None:
        """Close connections whose time is over, count descriptors, and publish. ``now``: monotonic seconds."""
        self.connections.close_expired(now)
        self.descriptors = open_descriptors(self.descriptor_limit)
        self.publish()

    def _publish_from_thread(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.publish)

    # Life cycle of a call: opened, (routed), closed, reported.

    def refused_key(self) -> None:
        """Count a request without a valid key; it is not a call."""
        self.refusals.keys += 1

    def open_call(self, caller: Caller, path: str, is_call: bool) -> Call:
        """Register a request, and count it if it is a call of the policy."""
        call = Call(desk=self, caller=caller, path=path, is_call=is_call)
        self.open.add(call)
        if is_call:
            self.requests += 1
            self._unreported[call] = None
            if call.trial is None:
                self.unattributed += 1
        return call

    def route(self, call: Call, candidates: list[str]) -> str:
        """Return the replica for ``call`` among the root addresses ``candidates``; it is kept for the rest of
        the call."""
        if call.replica in candidates:
            return call.replica
        self._leave(call)
        call.replica, moved_from = self.routing.choose(call.trial, candidates)
        call.moved_from = moved_from
        self.routing.in_flight[call.replica] += 1
        return call.replica

    def _leave(self, call: Call) -> None:
        if call.replica is not None:
            self.routing.in_flight[call.replica] -= 1

    def close_call(self, call: Call, ended: float) -> None:
        """Mark a request as ended at ``ended`` (monotonic seconds); a call is recorded even if LiteLLM does
        not report it."""
        call.ended = ended
        self.open.discard(call)
        self._leave(call)
        if not call.is_call:
            return
        failed = failure_seen(call) is not None
        self.failures += failed
        if call in self._unreported and self._loop is not None:
            grace = FAILED_GRACE if failed else REPORT_GRACE
            self._unreported[call] = self._loop.call_later(grace, self._report_as_seen, call)
        if failed:
            self.refusals.ended(call.status, call.body, (m["model_name"] for m in self.models.models))

    def report(self, call: Call, call_id: str | None, response: Any, failure: dict[str, Any] | None) -> None:
        """Record ``call``; every report after the first is ignored."""
        if call.recorded or not call.is_call:
            return
        call.recorded = True
        timer = self._unreported.pop(call, None)
        if timer is not None:
            timer.cancel()
        future = self.recorder.submit(call.trial, lambda: make_record(call, call_id, response, failure))
        self._writes.add(future)
        future.add_done_callback(self._writes.discard)

    def _report_as_seen(self, call: Call) -> None:
        self.report(call, None, None, failure_seen(call))

    async def settle(self, patience: float) -> None:
        """Return when every ended call is recorded and on disk.

        ``patience``: seconds to wait for LiteLLM's own reports.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while self._unreported and loop.time() < until:  # noqa: ASYNC110 - LiteLLM has no event for this
            await asyncio.sleep(0.02)
        for call in list(self._unreported):
            self._report_as_seen(call)
        await asyncio.to_thread(self.recorder.close)
