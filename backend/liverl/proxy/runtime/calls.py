"""One request on its way through the proxy, visible to every hook that LiteLLM calls for it.

A context variable carries it: LiteLLM starts its hooks, also the ones in its background worker, in a copy of
the request's context. So a hook needs no lookup by id, and two hooks of one request share one "recorded".
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .auth import Caller
    from .generation_state import GenerationState


@dataclass(eq=False)
class Call:
    desk: GenerationState
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

    @property
    def trial(self) -> str | None:
        return self.caller.trial

    def duration_ms(self) -> int:
        end = self.ended if self.ended is not None else time.monotonic()
        return max(0, round((end - self.clock) * 1000))


current: ContextVar[Call | None] = ContextVar("liverl_call", default=None)
