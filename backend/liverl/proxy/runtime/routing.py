"""Chooses the replica of a request: a trial stays on its replica, a new one goes to the least loaded
reachable one.

LiteLLM's own choice is not used, as its cooldown counts each alias of a replica separately and by percentage.
LiteLLM calls ``async_filter_deployments`` and gets exactly one deployment.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from .assignments import Assignments, least_loaded

FAILURES_IN_A_ROW = 3  # consecutive server errors of a reachable replica before its cooldown

# Texts and type names of unreachable replicas in LiteLLM's wrapped aiohttp and httpx errors.
_UNREACHABLE_TEXT = (
    "cannot connect to host",
    "connection refused",
    "connect call failed",
    "all connection attempts failed",
    "server disconnected",
    "connection reset",
    "name or service not known",
    "no route to host",
    "payload is not completed",  # it died while responding
    "peer closed connection",
)
_UNREACHABLE_TYPES = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "ClientConnectorError",
        "ServerDisconnectedError",
        "RemoteProtocolError",
    }
)
_GATEWAY_STATUS = (502, 503)
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def _chain(error: BaseException) -> Iterator[BaseException]:
    visited: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in visited:
        visited.add(id(step))
        yield step
        step = step.__cause__ or step.__context__


def is_unreachable(error: BaseException) -> bool:
    """Whether ``error`` means that the replica cannot be reached, rather than that one request failed."""
    if getattr(error, "status_code", None) in _GATEWAY_STATUS:
        return True
    for step in _chain(error):
        if isinstance(step, ConnectionError) or type(step).__name__ in _UNREACHABLE_TYPES:
            return True
        text = str(step).lower()
        if any(sign in text for sign in _UNREACHABLE_TEXT):
            return True
    return False


def is_without_descriptor(error: BaseException) -> bool:
    """Whether ``error`` means that this process could not open another file or connection."""
    words = [os.strerror(number).lower() for number in _OUT_OF_DESCRIPTORS]
    return any(
        getattr(step, "errno", None) in _OUT_OF_DESCRIPTORS or any(w in str(step).lower() for w in words)
        for step in _chain(error)
    )


class Routing:
    """Chooses a replica per request. Replicas are identified by their root address."""

    def __init__(
        self,
        assignments: Assignments,
        cooldown: float,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cooldown = cooldown  # seconds
        self._draining: frozenset[str] = frozenset()
        self.error: str | None = None  # why the last assignment could not be written, or None
        self.without_descriptor = 0  # requests that failed because this process could open no connection
        self.in_flight: Counter[str] = Counter()
        self._assignments = assignments
        self._members: frozenset[str] = frozenset()  # candidates for the last new trial
        self._on_change = on_change
        self._clock = clock
        self._cold: dict[str, float] = {}  # replica -> monotonic time at which its cooldown ends
        self._failures: Counter[str] = Counter()

    def configure(self, listed: Collection[str], draining: Collection[str], cooldown: float) -> None:
        """Set the replicas and the cooldown (seconds). ``draining`` replicas keep their trials and get no new
        ones.

        Failures and cooldowns of replicas in neither list are dropped.
        """
        self.cooldown = cooldown
        self._draining = frozenset(draining)
        all_replicas = {*listed, *draining}
        self._cold = {name: until for name, until in self._cold.items() if name in all_replicas}
        self._failures = Counter(
            {name: count for name, count in self._failures.items() if name in all_replicas}
        )

    def choose(self, trial: str | None, candidates: Sequence[str]) -> tuple[str, str | None]:
        """Return the replica for the next request of ``trial`` among ``candidates`` (not empty), and the one
        it moved from or None.

        If all are in cooldown, all are tried again: a refused connection takes a millisecond and gives a more
        precise error.
        """
        cold = self.cooled_down()
        usable = [name for name in candidates if name not in cold] or list(candidates)
        open_ = [name for name in usable if name not in self._draining] or usable
        if trial is None:
            return least_loaded(open_, self.in_flight), None
        present = self._assignments.get(trial)
        if present in usable:
            self._assignments.touch(trial)
            return present, None

        def decide(latest: str | None) -> str:
            """Choose a replica; ``latest`` is the trial's current one."""
            if latest in usable:
                return latest
            if not self._members.issuperset(open_):
                self._assignments.level()
            self._members = frozenset(open_)
            return least_loaded(open_, self._assignments.live(), self.in_flight)

        try:
            chosen = self._assignments.settle(trial, decide)
        except OSError as error:
            self.error = f"cannot write the assignments: {error.strerror or error}"
            self._on_change()
            return self._assignments.get(trial) or decide(present), present
        self.error = None
        return chosen

    def cooled_down(self) -> tuple[str, ...]:
        """Return the replicas in cooldown."""
        now = self._clock()
        self._cold = {name: until for name, until in self._cold.items() if until > now}
        return tuple(self._cold)

    def succeeded(self, replica: str) -> None:
        """Reset the failures and the cooldown of ``replica``."""
        self._failures.pop(replica, None)
        if self._cold.pop(replica, None) is not None:
            self._on_change()

    def failed(self, replica: str, error: BaseException) -> None:
        """Count a failure of ``replica``; its cooldown starts if it is unreachable or after three consecutive
        server errors. Not counted: a failure of this process, which had no descriptor left."""
        if is_without_descriptor(error):
            self.without_descriptor += 1
            self._on_change()
            return
        status = getattr(error, "status_code", None)
        if not is_unreachable(error):
            if not isinstance(status, int) or status < 500 or status == 504:
                return  # an invalid request, or its own timeout
            self._failures[replica] += 1
            if self._failures[replica] < FAILURES_IN_A_ROW:
                return
        self._failures.pop(replica, None)
        self._cold[replica] = self._clock() + self.cooldown
        self._on_change()
