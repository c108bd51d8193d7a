"""What a process of the service has where there are several: its share of the sessions, and its ways to the others."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from liverl.sessions.handover import Handover
from liverl.sessions.link import Link, Reload, Report, Stop, TokensDiffer
from liverl.sessions.shares import Share, owner, session_in_head
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.http_server import HttpServer

VARIABLE = "LIVERL_SESSIONS_WORKER"
_SET_PDEATHSIG = 1  # prctl
FRONT_ENDED = 3  # exit code


class Inherited(msgspec.Struct, frozen=True):
    """What the front gives a process that it starts. ``front``: its process id; the others are descriptors:
    ``link``: see ``Link``; ``control``: the listening socket of its trainer's part; ``receiving``, ``sending``: see
    ``Handover``; ``lock``: see ``layout``; ``settings``: see ``Handed.read``."""

    front: int
    number: int
    of: int
    link: int
    control: int
    receiving: int
    sending: dict[int, int]
    lock: int
    settings: int

    @property
    def fds(self) -> list[int]:
        """All descriptors."""
        return [self.link, self.control, self.receiving, *self.sending.values(), self.lock, self.settings]


_libc = ctypes.CDLL(None)


def before_exec() -> None:
    """What a process does between its fork and its program: from its first moment on it ends with the front, whatever
    it does, as it must not write a journal, and holds the lock, when another front has started; and SIGHUP, which may
    go to a whole process group, does not end it: the front passes it on."""
    _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def inherited(text: str) -> Inherited:
    """What the front has given this process, which ends with it: see ``before_exec``.

    Raises:
        ValueError: it is not that, or the front has ended.
    """
    try:
        given = decode_json(text, type=Inherited)
    except BAD_JSON as error:
        raise ValueError(f"{VARIABLE}: {error}") from error
    for fd in given.fds:
        os.set_inheritable(fd, False)
    if os.getppid() != given.front:
        raise ValueError("the front of the sessions has ended")
    return given


class Worker:
    """This process as one of several."""

    def __init__(self, given: Inherited) -> None:
        self.share = Share(given.number, given.of)
        self.control = socket.socket(fileno=given.control)
        self.control.setblocking(False)
        self._link_socket = socket.socket(fileno=given.link)
        self._lock = given.lock  # until this process ends
        sending = {number: socket.socket(fileno=fd) for number, fd in given.sending.items()}
        self._handover = Handover(socket.socket(fileno=given.receiving), sending)
        self._link: Link | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """For the log."""
        return f"process {self.share.number + 1} of {self.share.of}"

    async def connect(self) -> None:
        """Open the link to the front."""
        self._link = await Link.of(self._link_socket)

    def obey(
        self,
        reload: Callable[[], None],
        stop: Callable[[bool], None],
        differs: Callable[[str, str], None],
    ) -> None:
        """Do what the front says from now on. ``stop``: called with whether nothing is waited for; ``differs``: (model,
        words), see ``Tokenizers.differs``."""
        self._listening = asyncio.ensure_future(self._obey(reload, stop, differs))

    async def _obey(
        self, reload: Callable[[], None], stop: Callable[[bool], None], differs: Callable[[str, str], None]
    ) -> None:
        assert self._link is not None
        async for message in self._link.messages():
            if isinstance(message, Reload):
                reload()
            elif isinstance(message, Stop):
                stop(message.now)
            elif isinstance(message, TokensDiffer):
                differs(message.model, message.words)
        os._exit(FRONT_ENDED)  # as if killed: journals are whole at any time

    def write(self, report: dict[str, Any]) -> None:
        """Send a report to the front. Each one is sent: it says that this process lives, too."""
        if self._link is not None:
            self._link.tell(Report(report))

    def elsewhere(self, sock: Any, received: bytes) -> bool:
        """See ``http_server.Elsewhere``: pass a connection on whose next request is for another process's session."""
        session = session_in_head(received)
        if session is None:
            return False
        to = owner(session, self.share.of)
        if to == self.share.number:
            return False
        self._handover.send(to, sock, received)
        return True

    def take_over(self, server: HttpServer) -> None:
        """Serve from now on what others pass on."""
        self._handover.listen(server.take_over)

    def take_no_more(self) -> None:
        """Neither pass connections on nor take others over."""
        self._handover.close()

    def close(self) -> None:
        """Leave the others."""
        if self._listening is not None:
            self._listening.cancel()
        if self._link is not None:
            self._link.close()
