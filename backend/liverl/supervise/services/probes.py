"""Run the startup, ready and live probes of a process. Each check returns the problem in words, or None."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from liverl.plan.spec import Probe
from liverl.supervise.services.asked import TokenRoutes
from liverl.util.decode import decode_loose_json
from liverl.util.http_get import Getter, UnusualError
from liverl.util.regular_file import open_binary, read_regular, read_text
from liverl.util.ticks import until_tick

if TYPE_CHECKING:
    import aiohttp

UNUSUAL_S = 60.0  # seconds for which an address that only aiohttp could ask is asked by that at once

Report = Callable[[str, "str | None"], None]  # (what happened or which probe, problem or None)


class Refusal(str):
    """A problem that no later check of the same process can change."""

    __slots__ = ()


def _ignore(_probe: str, _problem: str | None) -> None:
    pass


@dataclass(frozen=True)
class Target:
    """The process that is probed. ``ports``: numbers by the port's name. ``log_start``: byte offset in ``log`` at
    which this generation begins."""

    host: str
    ports: Mapping[str, int]
    log: Path
    log_start: int
    run_dir: Path
    generation: int
    pid: int


class Http:
    """The backend's shared HTTP client; aiohttp's is created on first use since importing it is slow. It ignores the
    proxy variables of the environment. A request opens a new connection, as a probe is to see whether the server
    accepts one, unless it may use one that is kept. ``token_routes``: the check of probes that ask for it."""

    def __init__(self, token_routes: TokenRoutes | None = None) -> None:
        self.token_routes = token_routes
        self._session: aiohttp.ClientSession | None = None
        self._getter = Getter()
        self._unusual: dict[str, float] = {}  # URL -> until when aiohttp asks it, seconds of the loop's clock

    def session(self) -> aiohttp.ClientSession:
        """A session; must be called on the event loop."""
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session

    async def poll(
        self, url: str, timeout: float, *, headers: Mapping[str, str] | None = None, kept: bool = False
    ) -> tuple[int, str]:
        """``get`` for who asks every second, for a third of the CPU. ``kept``: over the connection of the request
        before.

        Raises:
            OSError: no answer, as ``TimeoutError`` if there was none in time.
        """
        now = asyncio.get_running_loop().time
        end = now() + timeout
        if now() >= self._unusual.get(url, 0.0):
            try:
                return await self._getter.get(url, timeout, headers, kept=kept)
            except UnusualError:
                self._unusual = {one: until for one, until in self._unusual.items() if until > now()}
                self._unusual[url] = now() + UNUSUAL_S
        left = end - now()
        if left <= 0:  # which aiohttp would take for no limit
            raise TimeoutError
        with _as_os_error():
            return await self.get(url, left, headers=headers)

    async def get(
        self, url: str, timeout: float, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """GET ``url``; returns (status, body). ``timeout``: seconds for the whole request.

        Raises:
            OSError, asyncio.TimeoutError, aiohttp.ClientError: no answer.
        """
        import aiohttp

        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.session().get(url, timeout=limit, headers=headers) as reply:
            return reply.status, await reply.text(errors="replace")

    async def post(
        self, url: str, body: object, timeout: float, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """POST ``body`` as JSON; returns (status, body of the reply). ``timeout``: seconds for the whole request.

        Raises:
            OSError: no answer, as ``TimeoutError`` if there was none in time.
        """
        import aiohttp

        limit = aiohttp.ClientTimeout(total=timeout)
        with _as_os_error():
            async with self.session().post(url, json=body, timeout=limit, headers=headers) as reply:
                return reply.status, await reply.text(errors="replace")

    async def close(self) -> None:
        """Close what was opened."""
        self._getter.close()
        if self._session is not None:
            await self._session.close()


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raises the errors of aiohttp that are none as such; those of names and encodings, too."""
    import aiohttp

    try:
        yield
    except OSError:
        raise
    except (aiohttp.ClientError, UnicodeError, LookupError) as error:
        raise OSError(str(error)) from error


class _Token(NamedTuple):
    """A token as it was read. ``file``: which file that was, and in which state."""

    file: tuple[int, ...]
    text: str


_tokens: dict[Path, _Token] = {}


def bearer(path: Path | None) -> dict[str, str]:
    """The ``Authorization`` header with the token in the file ``path``, which is read again once it has changed; no
    header if that is None.

    Raises:
        OSError: the file cannot be read.
    """
    if path is None:
        return {}
    info = os.stat(path)  # of what a link leads to: a mounted secret is a link that stays, to another file
    file = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    known = _tokens.get(path)
    if known is None or known.file != file:
        known = _tokens[path] = _Token(file, read_text(path).strip())
    return {"Authorization": f"Bearer {known.text}"}


async def check(probe: Probe, target: Target, http: Http) -> str | None:
    """Check once. Returns None if the probe succeeds, else the problem in words, as a ``Refusal`` if it is final; never
    raises an ``Exception``."""
    try:
        return await _check(probe, target, http)
    except Exception as error:  # noqa: BLE001 - reported as the problem
        return f"the probe failed: {type(error).__name__}: {error}"


async def _check(probe: Probe, target: Target, http: Http) -> str | None:
    if probe.kind == "process":
        return None
    if probe.kind == "log_line":
        return await asyncio.get_running_loop().run_in_executor(None, _in_log, probe, target)
    if probe.kind == "status_file":
        return _status_file(probe, target)
    port = target.ports.get(probe.port)
    if port is None:
        return f"the service has no port {probe.port!r}"
    url = f"http://{target.host}:{port}"
    try:
        try:
            headers = bearer(target.run_dir / probe.token_file if probe.token_file else None)
        except OSError as error:
            return f"cannot read the token file of the probe: {error}"
        if probe.kind == "http":
            status, _ = await http.poll(url + probe.path, probe.timeout, headers=headers)
            return None if status == 200 else f"GET {probe.path} answered {status}"
        return await _completion(probe, url, http, headers)
    except TimeoutError:
        return f"no answer on port {port} within {probe.timeout:g} s"
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            where = "" if target.host in ("127.0.0.1", "localhost") else f" of {target.host}"
            return f"nothing listens on port {port}{where} yet"
        return f"no answer on port {port}: {error}"


async def _completion(probe: Probe, url: str, http: Http, headers: Mapping[str, str]) -> str | None:
    body = {
        "model": probe.model,
        "messages": [{"role": "user", "content": "ping"}],
        "max_tokens": 1,
        "temperature": 0,
    }
    status, text = await http.post(f"{url}/v1/chat/completions", body, probe.timeout, headers=headers)
    if status != 200:
        return f"the test completion returned status {status}: {text[:200]}"
    try:
        choices = decode_loose_json(text)["choices"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"the test completion returned an unexpected reply: {text[:200]}"
    if not choices:
        return "the test completion returned no choices"
    return await _token_routes(probe, url, http, headers) if probe.token_routes else None


async def _token_routes(probe: Probe, url: str, http: Http, headers: Mapping[str, str]) -> str | None:
    async def post(path: str, body: Mapping[str, object]) -> tuple[int, str]:
        return await http.post(url + path, body, probe.timeout, headers=headers)

    if http.token_routes is None:
        raise ValueError("it asks for token routes, and there is no check of them")
    problem = await http.token_routes(post, probe.model)
    if problem is None:
        return None
    return Refusal(problem.words) if problem.final else problem.words


def _in_log(probe: Probe, target: Target) -> str | None:
    try:
        with open_binary(target.log) as file:
            file.seek(target.log_start)
            text = file.read(32 << 20).decode("utf-8", "replace")
    except OSError as error:
        return f"cannot read the service's log: {error}"
    if re.search(probe.pattern, text):
        return None
    words = probe.waits_for or f"a line in its log that matches '{probe.pattern}'"
    return f"waits for {words}"


def _status_file(probe: Probe, target: Target) -> str | None:
    path = target.run_dir / probe.path.replace("{generation}", str(target.generation))
    try:
        status = decode_loose_json(read_regular(path))
    except FileNotFoundError:
        return "the service has not written its status file yet"
    except (OSError, ValueError, RecursionError) as error:
        return f"cannot read {path.name}: {error}"
    if status.get("pid") != target.pid:
        return f"{path.name} was written by another process"
    state = status.get("state")
    return (
        None
        if state == probe.pattern
        else ("it is loading" if state == "starting" else f"the service reports the state {state!r}")
        + (f": {status['error']}" if status.get("error") else "")
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
    pause: Callable[[float], Awaitable[None]] | None = None,
    looked: Report = _ignore,
) -> None:
    """Probe until cancelled, and report:

    ``report("startup", problem)`` after each failed startup check; ``report("refused", problem)`` after a startup
    check that failed for good, which ends the watch; ``report("up", None)`` when the service is ready
    for the first time or again; ``report("down", problem)`` and ``report("dead", problem)`` when the ready or the live
    probe has failed ``failures`` times in a row. ``looked(probe, problem)`` is called after every check, with
    ``startup``, ``ready`` or ``live``.

    ``already_up``: skip the startup probe. ``degraded``: the ready probe had failed under an earlier backend.
    ``pause``: replaces ``asyncio.sleep`` in tests. Ready and live probes of all services check at the same ticks (see
    ``until_tick``): each time that the backend wakes costs it more than a check.
    """
    if not already_up:
        delay = min(0.05, startup.interval)
        while True:
            problem = await check(startup, target, http)
            looked("startup", None if problem is None else str(problem))  # msgspec encodes no subclass of str
            if problem is None:
                break
            if isinstance(problem, Refusal):
                report("refused", str(problem))
                return
            report("startup", problem)
            await (pause or asyncio.sleep)(delay)
            delay = min(startup.interval, delay * 1.5)
        report("up", None)
    loops = []
    answers = _Answers() if ready is not None and live is not None and _asks_more(ready, live) else None
    for failure, probe in (("down", ready), ("dead", live)):
        if probe is not None:
            failed = probe.failures if degraded and failure == "down" else 0
            repeated = pause or _tick
            loops.append(_repeat(probe, failure, target, http, report, repeated, failed, looked, answers))
    await asyncio.gather(*loops)


async def _tick(seconds: float) -> None:
    await asyncio.sleep(until_tick(seconds))


class _Answers:
    """What the ready probe has learned for a live probe that asks the same: whether its last check since the last one
    of the live probe has succeeded. While it asks again nothing is known: a server that hangs may have answered before
    it did."""

    def __init__(self) -> None:
        self.good = False

    def take(self) -> bool:
        """Whether it has; each check counts for one of the live probe's."""
        good, self.good = self.good, False
        return good


def _asks_more(ready: Probe, live: Probe) -> bool:
    """Whether each success of the ready probe is one of the live probe, too: the same request, with no more time."""
    same = msgspec.structs.replace(
        live, interval=ready.interval, timeout=ready.timeout, failures=ready.failures
    )
    return ready.kind == "http" and ready == same and ready.timeout <= live.timeout


async def _repeat(
    probe: Probe,
    failure: str,
    target: Target,
    http: Http,
    report: Report,
    pause: Callable[[float], Awaitable[None]],
    failed: int,
    looked: Report,
    answers: _Answers | None,
) -> None:
    """Repeat a ready or live probe. ``failed``: failures in a row so far. ``answers``: of the ready probe, where the
    live one would ask the same."""
    while True:
        await pause(probe.interval)
        known = answers is not None and failure == "dead" and answers.take()
        if answers is not None and failure == "down":
            answers.good = False
        problem = None if known else await check(probe, target, http)
        if answers is not None and failure == "down":
            answers.good = problem is None
        looked("ready" if failure == "down" else "live", problem)
        if problem is None:
            if failed >= probe.failures and failure == "down":
                report("up", None)
            failed = 0
            continue
        failed += 1
        if failed == probe.failures:
            report(failure, problem)
