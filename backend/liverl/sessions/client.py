"""How a trainer opens and ends sessions: those of the run's service, or of a host in its own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec

from liverl.sessions.result import SessionResult
from liverl.sessions.sampling import Limits
from liverl.sessions.settings import SOCKET
from liverl.util import clocks
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_text
from liverl.util.socket_path import usable_address

AGAIN_S = 0.2  # seconds between two requests to a service that is being restarted
FINISH_S = 60.0  # seconds for the end of a session, beyond the trial's own time; for its begin without one


class SessionFailed(Exception):
    """The sessions refused, or did not answer in time. ``kind``: the exception type for a trial's result."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class OpenSession(msgspec.Struct, frozen=True):
    """An open session. ``openai_url`` ends with ``/v1``; ``anthropic_url``: an agent's ANTHROPIC_BASE_URL. ``key``: a
    secret of the trial."""

    id: str
    openai_url: str
    anthropic_url: str
    key: str

    def __repr__(self) -> str:
        return f"OpenSession({self.id!r})"


def opened_at(address: str, session: str, key: str) -> OpenSession:
    """The session of this id on a host. ``address``: the URL of its chat APIs."""
    base = f"{address}/sess/{session}"
    return OpenSession(session, f"{base}/v1", base, key)


class SessionHost(Protocol):
    """Where a trainer opens sessions."""

    async def open(self, session: str, trial_dir: Path, limits: Limits) -> OpenSession:
        """Open a session named as its trial. ``trial_dir``: absolute path, below a trial root of the run.

        Raises:
            SessionFailed: it is refused, or there was no answer for ``limits.seconds`` (None: for ``FINISH_S``).
        """

    async def finish(self, session: str, seconds: float) -> SessionResult:
        """End a session and return what is left of it.

        Raises:
            SessionFailed: it is refused, or there was no answer for ``seconds``.
        """


class ServiceSessions:
    """The sessions of the run's service. Implements ``SessionHost``."""

    def __init__(self, http: aiohttp.ClientSession, key: str) -> None:
        """``http``: connected to the socket of the trainer's part; ``key``: the control key."""
        self._http, self._headers = http, {"Authorization": f"Bearer {key}"}

    async def open(self, session: str, trial_dir: Path, limits: Limits) -> OpenSession:
        """See ``SessionHost.open``."""

        def body(left: float) -> dict[str, Any]:
            """What is sent while so many seconds are left."""
            own = limits
            if limits.seconds is not None:
                # A service of an earlier version, which may have stayed with the run, knows the deadline only.
                own = msgspec.structs.replace(limits, seconds=left, deadline=time.time() + left)
            return {"id": session, "trial_dir": str(trial_dir), "limits": msgspec.to_builtins(own)}

        seconds = FINISH_S if limits.seconds is None else limits.seconds
        return msgspec.convert(await self._ask("/sessions", seconds, body), OpenSession)

    async def finish(self, session: str, seconds: float) -> SessionResult:
        """See ``SessionHost.finish``."""
        return msgspec.convert(await self._ask(f"/sessions/{session}/finish", seconds), SessionResult)

    async def _ask(self, path: str, seconds: float, body: Callable[[float], Any] = lambda _: None) -> Any:
        """POST; again while the service is being restarted, for ``seconds``. ``body`` gets those that are left."""
        why, end = "no time left", clocks.ran() + seconds
        while (left := end - clocks.ran()) > 0:
            try:
                async with self._http.post(
                    f"http://sessions{path}",
                    json=body(left),
                    headers=self._headers,
                    timeout=aiohttp.ClientTimeout(total=left),
                ) as response:
                    text = await response.text()
                    if response.status < 300:
                        return decode_json(text)
                    why = f"HTTP {response.status}: {text[:300]}"
                    if response.status < 500:
                        raise SessionFailed("SessionRefusedError", why)
            except (aiohttp.ClientError, OSError, ValueError, asyncio.TimeoutError) as error:
                why = f"{type(error).__name__}: {error}"
            await asyncio.sleep(AGAIN_S)
        raise SessionFailed("SessionTimeoutError", f"the sessions did not answer in time; last: {why}")


@asynccontextmanager
async def service_sessions(run_dir: Path, key_file: Path) -> AsyncIterator[ServiceSessions]:
    """The sessions of the service of the run in ``run_dir``.

    Raises:
        OSError: the key cannot be read, or the socket's directory does not exist.
    """
    key = read_text(key_file).strip()
    with usable_address(run_dir / SOCKET) as address:
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(address, limit=0)) as http:
            yield ServiceSessions(http, key)
