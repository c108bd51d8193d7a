"""LiteLLM's reports of each call, turned into trajectory records. Configured as a callback."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from .calls import current
from .records import failure_of, failure_seen, plain, unfinished


class TrajectoryLogger(CustomLogger):  # type: ignore[misc]
    """LiteLLM passes the four arguments by name: a hook that names them differently loses every record."""

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        call = current.get()
        if call is None:
            return
        if call.replica is not None:
            call.desk.routing.succeeded(call.replica)
        response = plain(kwargs.get("async_complete_streaming_response") or response_obj)
        call_id = kwargs.get("litellm_call_id")
        if call.disconnected:
            # LiteLLM calls a stream that its client left a success, and makes up how it ended.
            call.desk.report(call, call_id, unfinished(response), failure_seen(call))
        else:
            call.desk.report(call, call_id, response, None)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        call = current.get()
        if call is None:
            return
        error = kwargs.get("exception")
        if not isinstance(error, BaseException):
            error = RuntimeError(str(error or "LiteLLM reported a failure without an exception"))
        if call.replica is not None:
            call.desk.routing.failed(call.replica, error)
        call_id = kwargs.get("litellm_call_id")
        call.desk.report(call, call_id, None, failure_of(call, error, call_id, kwargs.get("model")))


handler = TrajectoryLogger()
