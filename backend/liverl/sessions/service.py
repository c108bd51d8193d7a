"""The sessions of a run as a service: agents' part on the run's listening socket, the trainer's on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from liverl.sessions.access_log import access_log, access_logger_class
from liverl.sessions.journal import set_aside
from liverl.sessions.layout import share_out
from liverl.sessions.local_engine import Tokenizers
from liverl.sessions.replica_file import REPLICAS, file_digest, read_replicas
from liverl.sessions.replicas import KEEPALIVE_S, ReplicaList
from liverl.sessions.report import ReportFile
from liverl.sessions.scheduler import MOST_WAITING, Scheduler
from liverl.sessions.server import TRAINER_BODY, AgentRoutes, TrainerRoutes
from liverl.sessions.settings import SOCKET, SchedulerSettings, Settings
from liverl.sessions.shares import ALL, Share
from liverl.sessions.store import EXPIRED_S, Store
from liverl.sessions.time_limit import Looks
from liverl.sessions.token_trust import Batch, Doubt
from liverl.sessions.worker import Worker
from liverl.util import clocks
from liverl.util.bad_json import BAD_JSON
from liverl.util.base_url import base_url
from liverl.util.decode import decode_json
from liverl.util.faults import Faults
from liverl.util.http_server import Elsewhere, Gate, HttpServer
from liverl.util.primary_address import primary_address
from liverl.util.regular_file import read_regular
from liverl.util.signals import StopRequests
from liverl.util.socket_path import usable_address

logger = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::")  # what a socket says that listens at all addresses
REPORT_S = 1.0  # seconds between two reports
CONNECT_S = 10.0  # seconds for a connection to a replica
SAME_REQUEST_S = 0.5  # seconds in which SIGTERMs are one: shorter than any stage of a stop
LAST_BYTES_S = 1.0  # seconds for replies that were sampled to reach their clients when the service is stopped


class Keys(msgspec.Struct, frozen=True):
    """``control``: of the trainer's part; ``replicas``: what the replicas require. ``repr`` must not be logged."""

    control: str
    replicas: str

    def __repr__(self) -> str:
        return "Keys(...)"


class Handed(msgspec.Struct, frozen=True):
    """What the front hands on, so that all processes have the same, whenever they start. ``settings``, ``keys``: as it
    has read them; ``differs``: model -> where our tokens of it were seen to differ from the engine's, by any of
    them."""

    settings: Settings
    keys: Keys
    differs: dict[str, str] = {}

    def in_memory(self) -> int:
        """A new file in memory with it: no other process of the host can see the keys in it.

        Raises:
            OSError: it cannot be made.
        """
        fd = os.memfd_create("liverl-settings", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(msgspec.json.encode(self))
        return fd

    @classmethod
    def read(cls, fd: int) -> Handed:
        """Read such a file, and close it.

        Raises:
            OSError: it cannot be read.
            ValueError: it is another one.
        """
        with os.fdopen(fd, "rb") as file:
            file.seek(0)
            try:
                return decode_json(file.read(), type=cls)
            except BAD_JSON as error:
                raise ValueError(f"the settings that the front hands on: {error}") from error


class Service:
    """One process of the service."""

    def __init__(
        self,
        settings: Settings,
        keys: Keys,
        listener: socket.socket,
        generation: int,
        sandboxes: socket.socket | None = None,
        worker: Worker | None = None,
        differs: Mapping[str, str] | None = None,
    ) -> None:
        """``listener``: the agents' listening socket, which the run holds; ``sandboxes``: a further one, at an address
        that sandboxes reach: then agents are given that; ``worker``: None for the only process; ``differs``:
        see ``Handed``."""
        self._settings, self._keys = settings, keys
        self._worker, self._differs = worker, differs or {}
        self._share = ALL if worker is None else worker.share
        self._listeners = [listener, *([sandboxes] if sandboxes is not None else [])]
        host, self._port = self._listeners[-1].getsockname()[:2]
        self._host = settings.host or (primary_address() if host in _EVERYWHERE else host)
        self._generation = generation
        self._file = Path(settings.run_dir) / REPLICAS
        self._digest = ""  # of the list of replicas
        self._state = "starting"
        self._error: str | None = None
        self._report = worker or ReportFile(settings.folder / f"status.{generation}.json")
        self._faults = Faults(logger)
        self._agents: HttpServer | None = None

    @property
    def address(self) -> str:
        """The URL of the agents' part, as agents reach it."""
        return base_url(self._host, self._port)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; until a second one replies that are being sampled are recorded and sent.

        Raises:
            OSError: the directory of the sessions, or the socket of the trainer's part, cannot be used.
        """
        stop, now, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
        requests = StopRequests(SAME_REQUEST_S)

        def end(number: int) -> None:
            # Of several processes the front says when to stop: a signal to all of them is one request.
            if self._worker is None and requests.received(number):
                (now if stop.is_set() else stop).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        if self._worker is None:
            share_out(self._settings.folder, 1)
        else:
            await self._worker.connect()
        limits = aiohttp.ClientTimeout(total=self._settings.request_timeout, sock_connect=CONNECT_S)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
        jar = aiohttp.DummyCookieJar()  # a replica sets none, and a jar looks at each request
        async with aiohttp.ClientSession(connector=connector, timeout=limits, cookie_jar=jar) as http:
            tokenizers = Tokenizers(self._settings.model_path) if self._settings.tokenizer == "auto" else None
            replicas = ReplicaList(http, self._keys.replicas or None, tokenizers, self._share)
            store = Store(
                self._settings.folder,
                (Path(self._settings.run_dir) / "trials",),
                replicas,
                prefix_match=self._settings.main_agent_prefix_match,
                rewrite=self._settings.rewrite,
                asides=self._settings.asides,
                patience=self._settings.patience,
                most_deaths=self._settings.max_replica_deaths,
                in_flight=self._settings.in_flight,
                most_rows=self._settings.rows_per_trial,
                scheduler=_scheduler(self._settings.scheduler, replicas, self._share),
                share=self._share,
            )
            if tokenizers is not None:
                tokenizers.doubt = self._doubt(store, replicas)
            logger.info("restored %d open sessions", store.restore())
            for model, words in self._differs.items():
                if tokenizers is not None:
                    tokenizers.differs(model, words)
            self._read_replicas(replicas)
            if self._worker is None:  # else the front passes it on
                loop.add_signal_handler(signal.SIGHUP, self._read_replicas, replicas)
            async with self._serving(store, replicas) as servers:
                self._state = "serving"
                logger.info(
                    "%s is serving on %s; replicas: %d",
                    f"generation {self._generation}" if self._worker is None else self._worker.name,
                    self.address,
                    len(replicas.listed),
                )
                self._obey(stop, now, replicas, tokenizers)
                reports = asyncio.ensure_future(self._reports(store, replicas))
                await stop.wait()
                reports.cancel()
                self._state = "draining"
                self._write_report(store, replicas)
                await self._stop(store, servers, now)
            await store.close()
            replicas.close()
            if self._worker is not None:
                self._worker.close()

    def _obey(
        self, stop: asyncio.Event, now: asyncio.Event, replicas: ReplicaList, tokenizers: Tokenizers | None
    ) -> None:
        """Do what the front says, if there is one."""
        if self._worker is None:
            return

        def end(at_once: bool) -> None:
            stop.set()
            if at_once:
                now.set()

        def differs(model: str, words: str) -> None:
            if tokenizers is not None:
                tokenizers.differs(model, words)

        self._worker.obey(lambda: self._read_replicas(replicas), end, differs)

    def _doubt(self, store: Store, replicas: ReplicaList) -> Doubt:
        """See ``Store.doubt``. The other processes are told at once, by a report behind the difference."""

        def doubt(batches: Sequence[Batch], earlier: bool) -> int:
            if self._worker is not None:
                asyncio.get_running_loop().call_soon(self._write_report, store, replicas)
            return store.doubt(batches, earlier)

        return doubt

    @contextlib.asynccontextmanager
    async def _serving(self, store: Store, replicas: ReplicaList) -> AsyncIterator[list[HttpServer]]:
        agents = AgentRoutes(store, self._settings.models)
        trainer = TrainerRoutes(
            store, replicas, self._keys.control, lambda: self.address, self._settings.decides
        )
        most = self._settings.max_body_bytes
        elsewhere = None if self._worker is None else self._worker.elsewhere
        servers = [
            http_server(agents.app(most), agents.gate, most, elsewhere),
            http_server(trainer.app(), trainer.gate, TRAINER_BODY),
        ]
        self._agents = servers[0]
        try:
            await servers[0].start(*self._listeners)
            if self._worker is None:
                await servers[1].start(control_socket(Path(self._settings.run_dir) / SOCKET))
            else:
                self._worker.take_over(servers[0])
                await servers[1].start(self._worker.control)
            yield servers
        finally:
            if self._worker is not None:
                self._worker.take_no_more()
            await asyncio.gather(*(server.close() for server in servers))

    async def _stop(self, store: Store, servers: list[HttpServer], now: asyncio.Event) -> None:
        """Accept nothing more; let replies that are being sampled be recorded and sent, until ``now``. What comes
        meanwhile waits in the run's listening socket for the next process."""
        logger.info("stopping; replies being sampled: %d", store.waiting)
        for server in servers:
            server.stop_accepting()
        ends = [asyncio.ensure_future(each) for each in (store.settle(), now.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        logger.info("stopped; replies cut: %d", store.waiting)

    def _read_replicas(self, replicas: ReplicaList) -> None:
        """Take over the list of replicas; keep the present one if it cannot be read."""
        try:
            data = read_regular(self._file)
            replicas.put(read_replicas(data))
        except FileNotFoundError:
            return  # requests wait for it
        except (OSError, *BAD_JSON) as error:
            self._error = f"{self._file}: {error}; keeping the previous list"
            logger.error("%s", self._error)
            return
        self._digest, self._error = file_digest(data), None
        urls = (each.url + (" (draining)" if each.draining else "") for each in replicas.listed)
        logger.info("replicas: %s", ", ".join(urls) or "none")

    async def _reports(self, store: Store, replicas: ReplicaList) -> None:
        looks = Looks(EXPIRED_S)
        while True:
            with self._faults.logged("sessions whose time is over cannot be ended"):
                if looks.steady():
                    await store.expire(clocks.ran())
            with self._faults.logged("the journals cannot be looked at"):
                store.mend_journals()
            self._write_report(store, replicas)
            await asyncio.sleep(REPORT_S)

    def _write_report(self, store: Store, replicas: ReplicaList) -> None:
        with self._faults.logged("the report cannot be written"):
            self._report.write(self._facts(store, replicas))

    def _facts(self, store: Store, replicas: ReplicaList) -> dict[str, Any]:
        """What the backend is told."""
        facts = store.facts()
        return {
            "pid": os.getpid(),
            "generation": self._generation,
            "state": self._state,
            **({} if self._worker is None else {"address": self.address}),
            "error": self._error,
            "config_sha": self._digest,
            "in_flight": facts["waiting"],
            "backends": [replica.url for replica in replicas.listed if not replica.draining],
            **facts,
            **replicas.facts(),
            **({} if self._agents is None else {"clients": self._agents.facts()}),
        }


def http_server(
    app: web.Application, gate: Gate, max_body: int, elsewhere: Elsewhere | None = None
) -> HttpServer:
    """A server of the sessions, with their access log."""
    return HttpServer(
        app,
        gate,
        max_body=max_body,
        access_log=access_log(),
        access_log_class=access_logger_class(),
        shutdown_timeout=LAST_BYTES_S,
        elsewhere=elsewhere,
    )


def _scheduler(settings: SchedulerSettings | None, replicas: ReplicaList, share: Share) -> Scheduler | None:
    if settings is None:
        return None
    poll, most = settings.poll, -(-MOST_WAITING // share.of)
    return Scheduler(settings.rules, poll, lambda engine: replicas.kv_cache(engine, poll), most)


def control_socket(path: Path) -> socket.socket:
    """The listening socket of the trainer's part, mode 0600. One that an earlier process has left is replaced.

    Raises:
        OSError: it cannot be created.
    """
    if path.is_socket():
        path.unlink(missing_ok=True)
    else:
        set_aside(path)  # a directory, or a file that somebody has put there
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(sock.fileno(), 0o600)  # ``bind`` creates the file with this mode
        with usable_address(path) as address:
            sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
