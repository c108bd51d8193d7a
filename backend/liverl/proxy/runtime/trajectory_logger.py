"""LiteLLM callback that turns reports of calls into trajectory records."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from .calls import current
from .records import failure_of, failure_seen, plain, unfinished


class TrajectoryLogger(CustomLogger):  # type: ignore[misc]
    """LiteLLM passes the four arguments by name: with other parameter names every record would be lost."""

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        """Record a successful call; a stream that its client left is recorded as unfinished."""
        call = current.get()
        if call is None:
            return
        if call.replica is not None:
            call.desk.routing.succeeded(call.replica)
        response = plain(kwargs.get("async_complete_streaming_response") or response_obj)
        call_id = kwargs.get("litellm_call_id")
        if call.disconnected:
            # LiteLLM reports a stream whose client disconnected as a success, with an invented finish reason.
            call.desk.report(call, call_id, unfinished(response), failure_seen(call))
        else:
            call.desk.report(call, call_id, response, None)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        """Record a failed call and count the failure of its replica."""
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
