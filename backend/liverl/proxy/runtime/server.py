"""Life cycle of one generation: start LiteLLM, serve on the inherited socket, reload, drain, exit."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from liverl.util.descriptors import unread
from liverl.util.http_limits import HTTP

from . import collector
from .connections import SEND_BUFFER, limited_protocol
from .generation_state import GenerationState
from .middleware import RequestMiddleware
from .reload import apply_models
from .settings import (
    ModelConfig,
    Settings,
    SettingsError,
    prepare_environment,
    read_model_config,
    read_settings,
)

# Longer than the idle timeout of any client library, so that normally the client closes first and
# never sends a request into a connection that the server is closing.
KEEP_ALIVE = 900  # seconds
WAITING = 2048  # connections that wait in the kernel to be accepted
TERM_GRACE = 3  # seconds that open requests get after SIGTERM
SETTLE = 5.0  # seconds for LiteLLM to report ended calls
EXIT_SETTINGS, EXIT_NOT_STARTED, EXIT_CUT = 2, 3, 4


def say(text: str) -> None:
    """Log a line to stderr."""
    print(f"liverl-proxy: {text}", file=sys.stderr, flush=True)


class EarlySignals:
    """Records signals that arrive while LiteLLM is imported; by default HUP and USR1 would kill the process."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        for number in (signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.seen.add(number)


def main() -> int:
    """Run this generation; returns the exit code."""
    early = EarlySignals()
    collector.hold()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # LiteLLM uses print; keep the order in the log file
    try:
        settings = read_settings(os.environ)
        import yaml

        models = read_model_config(settings.config, yaml.safe_load)
        listener = socket.socket(fileno=settings.listen_fd)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # its connections inherit it
    except SettingsError as error:
        say(str(error))
        return EXIT_SETTINGS
    except OSError as error:
        say(f"the listening socket on descriptor {settings.listen_fd} is not usable: {error.strerror}")
        return EXIT_SETTINGS
    try:
        desk = GenerationState(settings, models)
    except OSError as error:
        say(f"cannot use {settings.run_dir}/proxy: {error.strerror}")
        return EXIT_SETTINGS
    desk.publish()
    prepare_environment(os.environ, settings, desk.connections.limits.connections)
    try:
        from litellm.proxy import proxy_server
    except Exception as error:  # noqa: BLE001 - a broken environment raises any exception; it is reported in the status
        reason = f"LiteLLM cannot be imported from {sys.prefix}: {type(error).__name__}: {error}"
        desk.set_state("starting", reason)
        say(reason)
        return EXIT_NOT_STARTED
    return Generation(settings, desk, proxy_server, listener, early).run()


class Generation:
    """One generation of the proxy: a uvicorn server around LiteLLM."""

    def __init__(
        self,
        settings: Settings,
        desk: GenerationState,
        proxy_server: Any,
        listener: socket.socket,
        early: EarlySignals,
    ) -> None:
        import uvicorn

        self._settings = settings
        self._desk = desk
        self._proxy_server = proxy_server
        self._listener = listener
        self._early = early
        self._drain_task: asyncio.Task[None] | None = None
        self._collecting: asyncio.Task[None] | None = None
        self._exit_code = 0
        config = uvicorn.Config(
            RequestMiddleware(proxy_server.app, desk),
            lifespan="on",
            ws="none",  # no permitted route uses websockets, and they would not be limited
            access_log=False,
            use_colors=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=TERM_GRACE,
            # As many are accepted before the rules about connections apply to them; see ``_started``.
            backlog=HTTP.accepted,
        )
        config.load()
        config.http_protocol_class = limited_protocol(config.http_protocol_class, desk.connections)
        generation = self

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield  # the signal handlers are set in _started

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets=sockets)
                generation._started()

        self._server = Server(config)
        desk.count_connections = lambda: len(self._server.server_state.connections)

    def run(self) -> int:
        """Serve until stopped or drained; returns the exit code."""
        import uvicorn

        config = self._server.config
        factory = config.get_loop_factory() if hasattr(config, "get_loop_factory") else None
        if factory is None and not hasattr(uvicorn.Config, "get_loop_factory"):
            config.setup_event_loop()
        with asyncio.Runner(loop_factory=factory) as runner:
            try:
                runner.run(self._serve())
            except SystemExit:  # raised by uvicorn if the startup of the application failed
                self._desk.set_state("starting", "LiteLLM did not start; see its log")
                return EXIT_NOT_STARTED
        return self._exit_code

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._desk.bind(loop)
        loop.add_signal_handler(signal.SIGTERM, self._end)
        loop.add_signal_handler(signal.SIGINT, self._end)
        ticker = asyncio.create_task(self._tick())
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            ticker.cancel()
            if self._collecting is not None:
                self._collecting.cancel()
            await self._desk.settle(SETTLE)
            self._desk.state = "draining"
            self._desk.publish(at_once=True)

    async def _tick(self) -> None:
        said: set[type[Exception]] = set()
        while True:
            await asyncio.sleep(1.0)
            try:
                self._desk.look(time.monotonic())
            except Exception as error:  # noqa: BLE001 - the reports must go on
                if type(error) not in said:
                    said.add(type(error))
                    say(f"the state cannot be reported; it is tried again: {type(error).__name__}: {error}")

    def _started(self) -> None:
        """LiteLLM has started and the socket accepts connections."""
        self._listener.listen(WAITING)  # in the kernel; the loop accepts few at a time all the same
        loop = asyncio.get_running_loop()
        self._collecting = loop.create_task(collector.collect())
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.add_signal_handler(signal.SIGUSR1, self._drain)
        self._desk.set_state("serving")
        host, port = self._listener.getsockname()[:2]
        backends = len(self._desk.models.backends)
        say(f"generation {self._settings.generation} is serving on {host}:{port}; replicas: {backends}")
        self._reload()  # the file may have changed while LiteLLM was starting
        if signal.SIGUSR1 in self._early.seen:
            self._drain()

    def _reload(self) -> None:
        import yaml

        desk = self._desk
        try:
            models = read_model_config(self._settings.config, yaml.safe_load)
            if models.sha == desk.models.sha and desk.error is None:
                return
            apply_models(self._proxy_server.llm_router, models)
        except SettingsError as error:
            desk.error = f"reload failed: {error}; keeping the previous list"
            say(desk.error)
        else:
            self._take(models)
        desk.publish()

    def _take(self, models: ModelConfig) -> None:
        self._desk.take_models(models)
        say(f"replicas: {', '.join(models.backends) or 'none'}")

    def _end(self) -> None:
        if self._server.should_exit:
            self._server.force_exit = True
        self._server.should_exit = True

    def _drain(self) -> None:
        if self._drain_task is None:
            self._drain_task = asyncio.create_task(self._drain_connections())

    async def _drain_connections(self) -> None:
        """Stop accepting, send ``connection: close`` with every response, and return when no connection is
        left.

        Only this process's handles of the listening socket are closed: the next generation accepts on it. A
        connection whose response began before the drain may send one more request, which also gets the whole
        timeout, so a drain takes at most twice the timeout.
        """
        self._desk.set_state("draining")
        for server in self._server.servers:
            server.close()
        connections = self._server.server_state.connections
        idle_since: dict[Any, float] = {}
        began, limit = time.monotonic(), self._settings.drain_timeout
        while connections and not self._server.should_exit:
            now = time.monotonic()
            ages = [now - max(call.clock, began) for call in self._desk.open]
            if (ages and min(ages) >= limit) or now - began >= 2 * limit + self._settings.idle_grace:
                self._exit_code = EXIT_CUT
                left = len(self._desk.open)
                self._desk.error = f"drain timed out after {limit:g} s; {left} requests were cut off"
                say(self._desk.error)
                self._server.should_exit = True
                return
            # The grace period of each starts with its last response: one that began before the drain lacked
            # ``connection: close``, so its client may send another request at once.
            idle_since = {c: idle_since.get(c, now) for c in connections if is_idle(c)}
            for connection, since in idle_since.items():
                if now - since >= self._settings.idle_grace:
                    close_if_idle(connection)
            await asyncio.sleep(0.05)
        if not self._server.should_exit:
            await self._desk.settle(SETTLE)
            self._server.should_exit = True


def is_idle(connection: Any) -> bool:
    """Whether a uvicorn connection has no unanswered request."""
    return connection.cycle is None or connection.cycle.response_complete


def close_if_idle(connection: Any) -> None:
    """Close a connection without an open request, unless the client's next one has just arrived."""
    if not unread(connection.transport):
        connection.shutdown()  # uvicorn closes it if idle, otherwise after the response
