"""XID errors, which the driver reports as events: NVML keeps none, so one has to watch."""

from __future__ import annotations

import time
from typing import Any

from msgspec.structs import replace

from liverl.control.gpu_detail import Xid
from liverl.observe.gpu.nvml import Questions

_XID_EVENT = 8  # nvmlEventTypeXidCriticalError
MOST = 64  # events taken in one look


class XidWatch:
    """The newest XID of each GPU, from the moment on at which ``look`` first saw it. Call it from one thread."""

    def __init__(self, nvml: Any) -> None:
        self._questions = Questions(nvml)
        self._events, self._why = self._questions.ask("nvmlEventSetCreate")
        self._newest: dict[str, Xid] = {}  # UUID of a board

    def of(self, uuid: str) -> Xid:
        """The newest XID of a board. May be called from any thread."""
        return self._newest.get(uuid, Xid(why=self._why or "not watched"))

    def watch(self, uuid: str, board: Any) -> None:
        """Count the XIDs of a board from now on, unless they are counted."""
        if uuid in self._newest:
            return
        reason = self._why
        if self._events is not None:
            _, reason = self._questions.ask("nvmlDeviceRegisterEvents", board, _XID_EVENT, self._events)
        self._newest[uuid] = Xid(why=reason) if reason else Xid(watched_since=time.time())

    def look(self) -> None:
        """Take what the driver has reported since the last look. Does not wait."""
        if self._events is None:
            return
        for _ in range(MOST):
            event, reason = self._questions.ask("nvmlEventSetWait_v2", self._events, 0)
            if reason:  # the usual one is that there is none (timeout)
                return
            uuid, reason = self._questions.ask("nvmlDeviceGetUUID", event.device)
            uuid = uuid.decode() if isinstance(uuid, bytes) else uuid
            known = self._newest.get(uuid or "")
            if known is not None and event.eventType & _XID_EVENT:
                self._newest[uuid] = replace(
                    known, code=int(event.eventData), at=time.time(), count=known.count + 1
                )

    def close(self) -> None:
        """Give the events back to the driver."""
        if self._events is not None:
            self._questions.ask("nvmlEventSetFree", self._events)
