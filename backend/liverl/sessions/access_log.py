"""The access log of the service, without the polls of the backend, and without most of what many agents ask at once."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from liverl.util import clocks
from liverl.util.log_path import log_path
from liverl.util.poll_filter import POLLED, hide_polls

access_logger = logging.getLogger("liverl.sessions.access")
# Lines of requests that succeeded in one second; each has a turn of a trial, which the trial's file tells better.
MOST = 20
_LONGEST = 300  # characters of such words in a line
_FAILED = 400  # HTTP status from which on a request always has its line


class RefusedResponse(web.Response):
    """The response to a request that is refused. ``why``: what its client is told."""

    why = ""


class Lines:
    """Which requests that succeeded have a line: ``MOST`` in a second."""

    def __init__(self) -> None:
        self._second = 0  # on ``clocks.ran``
        self._lines = 0  # of requests that succeeded, in that second
        self._without = 0  # requests since the last line

    def has_one(self) -> bool:
        """Whether the next one has; counts it."""
        now = int(clocks.ran())
        if now != self._second:
            self._second, self._lines = now, 0
        self._lines += 1
        has = self._lines <= MOST
        self._without += not has
        return has

    def without(self) -> int:
        """How many had none since the last call."""
        count, self._without = self._without, 0
        return count


class AccessLogger(AbstractAccessLogger):
    """One line per request: client, request, status, seconds, and why it was refused. Of those that succeeded ``MOST``
    in a second; the next line then says how many had none."""

    # Of the class: aiohttp makes an object of it for each connection, and each agent has a connection of its own.
    lines = Lines()

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Log one request, in the order of arguments that ``poll_filter`` knows."""
        if response.status < _FAILED:
            if request.path in POLLED:
                return  # the filter would hide its line, and with that what it says of others
            if not self.lines.has_one():
                return
        version = f"{request.version.major}.{request.version.minor}"
        without = self.lines.without()
        arguments = (
            request.remote or "unix",
            request.method,
            log_path(request.raw_path),
            version,
            response.status,
            time,
            f"; {without} more succeeded before" if without else "",
            f": {_line(response.why)}" if isinstance(response, RefusedResponse) else "",
        )
        self.logger.info('%s "%s %s HTTP/%s" %d, %.3f s%s%s', *arguments)


def _line(text: str) -> str:
    """On one line that a terminal shows as it is, of ``_LONGEST`` characters at most."""
    text = " ".join("".join(each if each.isprintable() else " " for each in text[: 2 * _LONGEST]).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def access_logger_class() -> type[AccessLogger]:
    """That of one server, whose connections share its lines."""
    return type("AccessLogger", (AccessLogger,), {"lines": Lines()})


def access_log() -> logging.Logger:
    """The logger, which leaves out polls that succeeded."""
    hide_polls(access_logger.name)
    return access_logger
