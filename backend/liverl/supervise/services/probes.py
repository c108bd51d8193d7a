"""Carrying out probes: is it ready, is it still ready, does it live? Each kind is one coroutine -> problem or None."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.plan.spec import Probe

if TYPE_CHECKING:
    import aiohttp

Report = Callable[[str, "str | None"], None]  # (meaning, problem or None)


def _nothing(_probe: str, _problem: str | None) -> None:
    pass


@dataclass(frozen=True)
class Target:
    """What a probe needs to know of the process it looks at."""

    host: str
    ports: Mapping[str, int]
    log: Path
    log_start: int
    run_dir: Path
    generation: int
    pid: int


class Http:
    """The backend's one HTTP session, made when the first probe needs it (aiohttp is a slow import)."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session

    async def get(
        self, url: str, timeout: float, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """GET; returns (status, text).

        Raises:
            OSError, asyncio.TimeoutError, aiohttp.ClientError: no answer.
        """
        import aiohttp

        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.session().get(url, timeout=limit, headers=headers) as reply:
            return reply.status, await reply.text()

    async def post(self, url: str, body: object, timeout: float) -> tuple[int, str]:
        import aiohttp

        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.session().post(url, json=body, timeout=limit) as reply:
            return reply.status, await reply.text()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def bearer(path: Path) -> dict[str, str]:
    """The header that proves who asks, by the token in the file ``path``.

    Raises:
        OSError: the file cannot be read.
    """
    return {"Authorization": f"Bearer {path.read_text().strip()}"}


async def check(probe: Probe, target: Target, http: Http) -> str | None:
    """One check: None = it holds, else the problem in words."""
    try:
        return await _check(probe, target, http)
    except Exception as error:  # noqa: BLE001 - a probe that fails in an unknown way is a problem to be told
        return f"the probe failed: {type(error).__name__}: {error}"


async def _check(probe: Probe, target: Target, http: Http) -> str | None:
    if probe.kind == "process":
        return None
    if probe.kind == "log_line":
        return await asyncio.get_running_loop().run_in_executor(None, _in_log, probe, target)
    if probe.kind == "status_file":
        return _status_file(probe, target)
    import aiohttp

    port = target.ports.get(probe.port)
    if port is None:
        return f"the service has no port {probe.port!r}"
    url = f"http://{target.host}:{port}"
    try:
        if probe.kind == "http":
            try:
                headers = bearer(target.run_dir / probe.token_file) if probe.token_file else None
            except OSError as error:
                return f"cannot read its token file: {error}"
            status, _ = await http.get(url + probe.path, probe.timeout, headers=headers)
            return None if status == 200 else f"GET {probe.path} answered {status}"
        return await _completion(probe, url, http)
    except TimeoutError:
        return f"no answer on port {port} within {probe.timeout:g} s"
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, ConnectionRefusedError):
            return f"nothing listens on port {port} yet"
        return f"no answer on port {port}: {error}"
    except (OSError, aiohttp.ClientError) as error:
        return f"no answer on port {port}: {error}"


async def _completion(probe: Probe, url: str, http: Http) -> str | None:
    body = {
        "model": probe.model,
        "messages": [{"role": "user", "content": "ping"}],
        "max_tokens": 1,
        "temperature": 0,
    }
    status, text = await http.post(f"{url}/v1/chat/completions", body, probe.timeout)
    if status != 200:
        return f"the test completion returned status {status}: {text[:200]}"
    try:
        choices = json.loads(text)["choices"]
    except (ValueError, KeyError, TypeError):
        return f"the test completion returned an unexpected reply: {text[:200]}"
    return None if choices else "the test completion returned no choices"


def _in_log(probe: Probe, target: Target) -> str | None:
    try:
        with target.log.open("rb") as file:
            file.seek(target.log_start)
            text = file.read(32 << 20).decode("utf-8", "replace")
    except OSError as error:
        return f"its log cannot be read: {error}"
    return None if re.search(probe.pattern, text) else f"no line in its log matches '{probe.pattern}' yet"


def _status_file(probe: Probe, target: Target) -> str | None:
    path = target.run_dir / probe.path.replace("{generation}", str(target.generation))
    try:
        status = json.loads(path.read_bytes())
    except FileNotFoundError:
        return "it has not written its status file yet"
    except (OSError, ValueError) as error:
        return f"{path.name} cannot be read: {error}"
    if status.get("pid") != target.pid:
        return "its status file was written by another process"
    state = status.get("state")
    return (
        None
        if state == probe.pattern
        else f"it reports {state!r}" + (f": {status['error']}" if status.get("error") else "")
    )


async def watch(
    startup: Probe,
    ready: Probe | None,
    live: Probe | None,
    target: Target,
    http: Http,
    report: Report,
    *,
    already_up: bool = False,
    degraded: bool = False,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    looked: Report = _nothing,
) -> None:
    """Probe until cancelled: ``report("up", None)`` when it is (again) ready, ``report("down", problem)`` when
    its ready probe failed often enough, ``report("dead", problem)`` when its live probe did, and
    ``report("startup", problem)`` after each start-up check that failed. ``degraded``: its ready probe had failed
    when an earlier backend last looked. ``looked`` is told of every check: (startup, ready or live; problem)."""
    if not already_up:
        delay = min(0.05, startup.interval)
        while True:
            problem = await check(startup, target, http)
            looked("startup", problem)
            if problem is None:
                break
            report("startup", problem)
            await pause(delay)
            delay = min(startup.interval, delay * 1.5)
        report("up", None)
    loops = []
    for bad, probe in (("down", ready), ("dead", live)):
        if probe is not None:
            failed = probe.failures if degraded and bad == "down" else 0
            loops.append(_keep(probe, bad, target, http, report, pause, failed, looked))
    await asyncio.gather(*loops)


async def _keep(
    probe: Probe,
    bad: str,
    target: Target,
    http: Http,
    report: Report,
    pause: Callable[[float], Awaitable[None]],
    failed: int,
    looked: Report,
) -> None:
    while True:
        await pause(probe.interval)
        problem = await check(probe, target, http)
        looked("ready" if bad == "down" else "live", problem)
        if problem is None:
            if failed >= probe.failures and bad == "down":
                report("up", None)
            failed = 0
            continue
        failed += 1
        if failed == probe.failures:
            report(bad, problem)
