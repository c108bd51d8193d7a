"""The access log of the service, without the polls of the backend."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from liverl.util.log_path import log_path
from liverl.util.poll_filter import hide_polls

access_logger = logging.getLogger("liverl.sessions.access")


class AccessLogger(AbstractAccessLogger):
    """One line per request: client, request, status, seconds."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Log one request, in the order of arguments that ``poll_filter`` knows."""
        version = f"{request.version.major}.{request.version.minor}"
        arguments = (
            request.remote or "unix",
            request.method,
            log_path(request.raw_path),
            version,
            response.status,
            time,
        )
        self.logger.info('%s "%s %s HTTP/%s" %d, %.3f s', *arguments)


def access_log() -> logging.Logger:
    """The logger, which leaves out polls that succeeded."""
    hide_polls(access_logger.name)
    return access_logger
