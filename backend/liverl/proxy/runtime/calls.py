"""One request in the proxy, available to all LiteLLM hooks called for it.

It is kept in a context variable, as LiteLLM runs its hooks, including those in its background worker, in a
copy of the request's context. Hooks need no lookup by id, and share the state of whether the request was
recorded.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from .callers import Caller
from .routing import Routing


class Desk(Protocol):
    """The part of the generation's state that a call leads to."""

    @property
    def routing(self) -> Routing:
        """Which replica gets which trial."""

    @property
    def draining(self) -> bool:
        """Whether this generation is draining."""

    def route(self, call: Call, candidates: list[str]) -> str:
        """The replica for a call among the root addresses ``candidates``."""

    def report(self, call: Call, call_id: str | None, response: Any, failure: dict[str, Any] | None) -> None:
        """Record how a call ended."""


@dataclass(eq=False)
class Call:
    """State of one request."""

    desk: Desk
    caller: Caller
    path: str
    is_call: bool  # a call of the policy: counted, attributed, recorded
    started: float = field(default_factory=time.time)  # Unix seconds
    clock: float = field(default_factory=time.monotonic)
    ended: float | None = None  # monotonic seconds
    body: list[bytes] = field(default_factory=list)
    status: int | None = None
    error_body: bytes = b""
    disconnected: bool = False
    replica: str | None = None  # root address
    moved_from: str | None = None
    recorded: bool = False
    refused: str = ""  # why its body was refused before LiteLLM saw it
    # Sampling parameters that the trainer replaced -> what the client asked for; of its trial, each the first time.
    overridden: dict[str, Any] = field(default_factory=dict)

    @property
    def trial(self) -> str | None:
        """The trial that the request named, or None."""
        return self.caller.trial

    def duration_ms(self) -> int:
        """Milliseconds from the start to the end, or to now."""
        end = self.ended if self.ended is not None else time.monotonic()
        return max(0, round((end - self.clock) * 1000))


current: ContextVar[Call | None] = ContextVar("liverl_call", default=None)
