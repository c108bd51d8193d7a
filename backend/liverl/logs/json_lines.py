"""Log lines that are JSON objects, as the lines of text which they stand for. Pure.

``{"log": "text\\n", "stream": "stderr", "time": "..."}`` is a line of a container that Docker's ``json-file`` driver
keeps, and ``{"textPayload": "text", ...}`` one in an export of Google's logging.
``{"level": "error", "ts": ..., "msg": "...", "stacktrace": "..."}`` and alike are of structured loggers: those of Go
(zap, slog), Node.js (pino), Python (structlog, python-json-logger), and LiteLLM with ``json_logs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from liverl.logs.prefix_chain import split_prefixes
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json

LONGEST = 1 << 16  # characters of a line that is read as JSON
_MESSAGES = ("message", "msg", "event")
_LEVELS = ("level", "levelname", "severity", "log_level", "lvl")
_TIMES = ("timestamp", "time", "ts", "asctime", "@timestamp")
_TRACEBACKS = ("exc_info", "exception", "stacktrace", "stack_trace", "stack", "traceback")
_ERRORS = ("error", "err", "error_message")
_WORDS = {
    "trace": "DEBUG",
    "debug": "DEBUG",
    "info": "INFO",
    "notice": "INFO",
    "warn": "WARNING",
    "warning": "WARNING",
    "error": "ERROR",
    "err": "ERROR",
    "critical": "CRITICAL",
    "fatal": "CRITICAL",
    "panic": "CRITICAL",
    "alert": "CRITICAL",
    "emergency": "CRITICAL",
}
_PINO = {10: "DEBUG", 20: "DEBUG", 30: "INFO", 40: "WARNING", 50: "ERROR", 60: "CRITICAL"}
_MILLISECONDS = 1e11  # a time above it is in milliseconds since 1970


def plain_lines(text: str) -> list[str] | None:
    """Return the lines that ``text`` stands for; None if it is no log line in JSON."""
    if not (text.startswith('{"') and text.endswith("}")) or len(text) > LONGEST:
        return None
    try:
        fields = decode_json(text)
    except BAD_JSON:
        return None
    if not isinstance(fields, dict):
        return None
    return _of_container(fields) or _of_logger(fields)


def json_parts(line: str) -> list[str]:
    """Return the lines that a line in JSON stands for, each with the prefixes before it; any other line as it is."""
    begin = line.find('{"')
    if begin < 0 or not line.endswith("}"):
        return [line]
    before = split_prefixes(line).length
    lines = plain_lines(line[before:]) if begin == before else None
    return [line] if lines is None else [f"{line[:before]}{one.rstrip()}" for one in lines]


def _of_container(fields: Mapping[str, Any]) -> list[str] | None:
    """What a container wrote: Docker's own files, and what Google's and other collectors keep of its lines, whose
    severity tells the stream alone."""
    written = fields.get("log") if "stream" in fields else fields.get("textPayload")
    if not isinstance(written, str):
        return None
    stamp = _stamp(fields)
    return [f"{stamp}{line}" for line in written.rstrip("\r\n").split("\n")]


def _of_logger(fields: Mapping[str, Any]) -> list[str] | None:
    message = _first(fields, _MESSAGES)
    level = next((word for key in _LEVELS if (word := _level(fields.get(key)))), "")
    if message is None or not level:
        return None
    error = fields.get("error", fields.get("err"))
    stack = _first(error, ("stack",)) if isinstance(error, dict) else None
    reason = _first(error, _MESSAGES) if isinstance(error, dict) else _first(fields, _ERRORS)
    if reason is not None and reason not in message:
        message = f"{message}: {reason}" if message else reason
    further = _first(fields, _TRACEBACKS) or stack
    lines = [*message.split("\n"), *(further.split("\n") if further else ())]
    stamp = _stamp(fields)
    # Two blanks make it the head that uvicorn's lines have.
    return [f"{stamp}{level}:  {lines[0]}", *(f"{stamp}{line}" for line in lines[1:])]


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((value for key in keys if isinstance(value := fields.get(key), str)), None)


def _level(value: object) -> str:
    if isinstance(value, str):
        return _WORDS.get(value.lower(), "")
    return _PINO.get(value, "") if isinstance(value, int) else ""


def _stamp(fields: Mapping[str, Any]) -> str:
    """The time of a line, as collectors put it before lines; "" without one."""
    value = next((fields[key] for key in _TIMES if key in fields), None)
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
        elif isinstance(value, int | float):
            at = datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
        else:
            return ""
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{at.isoformat(timespec='milliseconds')} "
