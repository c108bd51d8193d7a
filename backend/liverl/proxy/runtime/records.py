"""Builds trajectory records from the state of a request, in the recorder's thread."""

from __future__ import annotations

import json
from typing import Any

from .calls import Call
from .recorder import iso, redact, without_tokens

CLIENT_GONE = "client_disconnected"
_ERROR_TEXT = 4000  # maximum characters kept of an error's text


def plain(value: Any) -> Any:
    """Return a LiteLLM response object as plain data."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(exclude_none=True)
    return value


def unfinished(response: Any) -> Any:
    """Return what was generated before the client disconnected, without the finish reason and usage that
    LiteLLM adds."""
    if not isinstance(response, dict):
        return response
    choices = [{**choice, "finish_reason": None} for choice in response.get("choices") or ()]
    return {**response, "choices": choices, "usage": None}


def make_record(
    call: Call,
    call_id: str | None,
    response: Any,
    failure: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the record of ``call``. ``response`` is plain data in OpenAI's format, or None."""
    request = _request_body(call)
    try:
        return _record(call, call_id, response, failure, request)
    except RecursionError:
        # A record without its conversation is better than none.
        return _record(call, call_id, None, failure, _unparsed(call))


def _record(
    call: Call,
    call_id: str | None,
    response: Any,
    failure: dict[str, Any] | None,
    request: Any,
) -> dict[str, Any]:
    body = without_tokens(response) if isinstance(response, dict) else None
    usage = body.get("usage") if body else None
    return {
        "session_id": call.trial,
        "success": failure is None,
        "request_time": round(call.started * 1000),
        "timestamp": iso(call.started),
        "duration_ms": call.duration_ms(),
        "api": "anthropic" if call.path == "/v1/messages" else "openai",
        "stream": isinstance(request, dict) and request.get("stream") is True,
        "replica": call.replica,
        "moved_from": call.moved_from,
        "litellm_call_id": call_id,
        **({"overridden": call.overridden} if call.overridden else {}),
        "request_body": redact(request),
        "response_body": redact(body),
        "usage": usage if isinstance(usage, dict) else None,
        "failure": failure,
    }


def _request_body(call: Call) -> Any:
    try:
        return json.loads(b"".join(call.body))
    except (ValueError, RecursionError):
        return _unparsed(call)


def _unparsed(call: Call) -> dict[str, str]:
    return {"unparsed": b"".join(call.body)[:_ERROR_TEXT].decode("utf-8", "replace")}


def failure_of(call: Call, error: BaseException, call_id: str | None, model: str | None) -> dict[str, Any]:
    """Return the ``failure`` part for an exception reported by LiteLLM."""
    status = getattr(error, "status_code", None)
    text = str(getattr(error, "message", None) or error)
    return {
        "error_type": CLIENT_GONE if call.disconnected or status == 499 else type(error).__name__,
        "status_code": status if isinstance(status, int) else call.status,
        "message": text[:_ERROR_TEXT],
        "litellm_call_id": call_id,
        "deployment": {"model": model, "api_base": call.replica} if call.replica else None,
        "raw_error": repr(error.__cause__)[:_ERROR_TEXT] if error.__cause__ else None,
    }


def failure_seen(call: Call) -> dict[str, Any] | None:
    """Return the ``failure`` part from the response to the client, if no hook reported the call; None if it
    succeeded."""
    if call.disconnected:
        kind, message = CLIENT_GONE, "the client closed the connection before the answer was complete"
    elif call.status is None:
        kind, message = "no_answer", "the request ended without an answer"
    elif call.status >= 400:
        kind, message = _answered_error(call)
    else:
        return None
    return {
        "error_type": kind,
        "status_code": call.status,
        "message": message[:_ERROR_TEXT],
        "litellm_call_id": None,
        "deployment": {"model": None, "api_base": call.replica} if call.replica else None,
        "raw_error": None,
    }


def _answered_error(call: Call) -> tuple[str, str]:
    text = call.error_body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        return str(error.get("type") or "error"), str(error.get("message") or text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "error", text
