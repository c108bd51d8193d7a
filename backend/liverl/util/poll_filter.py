"""Keeps the backend's own polls out of a server's access log. Standard library only, as ``token_guard``.

A replica is asked for its health, metrics and policy version several times a second: some 5,900 lines in ten minutes,
among which nobody finds anything else.
"""

from __future__ import annotations

import logging

POLLED = ("/health", "/metrics", "/policy_version")
# What sessions ask of a replica for each turn: two to four lines of a turn, which the trial's file tells better.
TOKEN_ROUTES = (
    "/inference/v1/generate",
    "/v1/chat/completions/render",
    "/v1/chat/completions/derender",
    "/detokenize",
)
_ACCESS = "uvicorn.access"
_HIDDEN = {"GET": POLLED, "POST": TOKEN_ROUTES}
_FAILED = 400  # HTTP status from which on a poll is worth a line


class PollFilter(logging.Filter):
    """Drops access records of successful polls and of token routes that succeeded. Uvicorn's records have the arguments
    client, method, path, HTTP version and status; what has others passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        args = record.args
        if not isinstance(args, tuple) or len(args) < 5 or args[1] not in _HIDDEN:
            return True
        path, status = str(args[2]).partition("?")[0], args[4]
        return path not in _HIDDEN[args[1]] or not isinstance(status, int) or status >= _FAILED


def hide_polls(logger: str = _ACCESS) -> None:
    """Add the filter to a logger, by default to that of uvicorn's access log."""
    target = logging.getLogger(logger)
    if not any(isinstance(known, PollFilter) for known in target.filters):
        target.addFilter(PollFilter())
