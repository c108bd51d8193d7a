"""Stopping a run, with or without a running backend."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from liverl.control.blocking import DYING_S, HELLO_S, NOW_S, Connection, await_gone
from liverl.control.messages import NO_EVENTS, BackendDead, BackendElsewhere, BackendSilent
from liverl.exit_codes import ExitCode
from liverl.model import Result, Snapshot
from liverl.rundir.index import describe, elsewhere_message, line_there
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive, hostname, read_backend
from liverl.supervise.keeper.kill import kill_backend, kill_services
from liverl.util.plural import quantity

STARTS = 3  # maximum backends started by one call; if each one dies, another one would not help
HELD_S = 20.0  # seconds for another backend that holds the run to answer
ENDING_S = 10.0  # seconds from a backend's ``bye`` to the exit of its process
ANSWER_S = 5.0  # seconds for the stop request to be accepted
# Seconds for the backend that a busy one has replaced itself by to answer, or to end the run
SUCCESSOR_S = 20.0
RETRY_S = 0.1  # seconds between two attempts while another backend holds the run


def stop_run(
    run_dir: str | os.PathLike[str],
    *,
    now: bool = False,
    wait: bool = True,
    client: str = "",
    on_note: Callable[[str], None] = lambda _: None,
    on_snapshot: Callable[[Snapshot], None] = lambda _: None,
) -> Result | None:
    """Stop a run in dependency order and return its result; for a run that has ended, just return that.

    If the backend has died, a new one is started that adopts the running services and stops them. It starts and
    restarts no service.

    ``now``: kill without grace. ``wait``: if False, return None as soon as the stop is accepted. ``client``: name
    of the requester in events and result. ``on_note``: called with one sentence when a backend is started.
    ``on_snapshot``: called with the run's state whenever it changes.

    Raises:
        BackendElsewhere: the run's backend runs, or ran last, on another host.
        BackendDead: there is no run in this directory.
        BackendSilent: the backend runs and does not answer.
        LaunchError: no backend can be started, or each one died.
    """
    stopping = _Stopping(RunDir(Path(run_dir)), now, client or f"pid {os.getpid()}", on_note, on_snapshot)
    return stopping.carry_out(wait)


class _Stopping:
    def __init__(
        self,
        run: RunDir,
        now: bool,
        who: str,
        on_note: Callable[[str], None],
        on_snapshot: Callable[[Snapshot], None],
    ) -> None:
        self._run = run
        self._now = now
        self._who = who
        self._on_note = on_note
        self._on_snapshot = on_snapshot
        self._started: list[int] = []  # pids of backends
        self._killed = 0  # pid of a backend that did not respond
        self._replaced = 0  # pid of a backend that was busy, and of the one that it became
        self._held_until: float | None = None  # monotonic seconds

    def carry_out(self, wait: bool) -> Result | None:
        while True:
            try:
                if not self._ask(wait):
                    return None
            except BackendElsewhere as error:
                text = elsewhere_message(describe(self._run.path), "stop")
                raise BackendElsewhere(text, error.host) from None
            except BackendSilent:
                if self._now and self._kill():
                    continue
                # A backend that ends closes its socket before its process exits.
                if isinstance(await_gone(self._run.path, DYING_S), LiveBackend):
                    raise
            except BackendDead:
                pass
            result = self._run.read_result()
            if result is not None:
                return result
            self._check_here()
            self._start()

    def _ask(self, wait: bool) -> bool:
        """Ask the running backend to stop the run, and wait for its end; return False at once without ``wait``.

        Raises:
            BackendDead: no backend runs, or it died before the run's end.
        """
        seconds = NOW_S if self._now else HELLO_S
        with Connection(self._run.path, timeout=seconds) as connection:
            # Before the request, not to miss the end.
            connection.subscribe(NO_EVENTS, snapshots=True, timeout=seconds)
            pid = connection.hello.pid
            if pid not in (*self._started, self._replaced):  # those stop the run unasked
                answer = self._order(connection)
                if "text" in answer:
                    self._on_note(answer["text"])
                if "killed" in answer:
                    self._replaced = pid
                    return self._await_successor() if wait else False
            if not wait:
                return False
            self._follow(connection)
        await_gone(self._run.path, ENDING_S)
        return True

    def _order(self, connection: Connection) -> dict[str, Any]:
        if self._now:
            return connection.stop_now(self._who)
        return connection.command("stop", {"now": False}, client=self._who, wait=False, timeout=ANSWER_S)

    def _follow(self, connection: Connection) -> None:
        while (message := connection.read(None)) is None or message.bye is None:
            if message is not None and message.snapshot is not None:
                self._on_snapshot(message.snapshot)

    def _await_successor(self) -> bool:
        """Wait for the end of the run by the backend that a busy one has replaced itself by.

        Raises:
            BackendDead: it died, or has ended the run.
            BackendSilent: it does not answer within ``SUCCESSOR_S`` seconds.
        """
        until = time.monotonic() + SUCCESSOR_S
        while True:
            try:
                with Connection(self._run.path, timeout=NOW_S) as connection:
                    connection.subscribe(NO_EVENTS, snapshots=True, timeout=NOW_S)
                    self._follow(connection)
                await_gone(self._run.path, ENDING_S)
                return True
            except BackendSilent:  # it is starting
                if time.monotonic() > until:
                    raise
            time.sleep(RETRY_S)

    def _kill(self) -> bool:
        """Kill a backend that does not respond, and through the keeper all processes of the run; whether there was one.
        A backend that is started afterwards ends what is left, and writes the result."""
        alive = backend_alive(self._run.path)
        if not isinstance(alive, LiveBackend) or alive.record.pid in (*self._started, self._killed):
            return False
        if not kill_backend(alive):
            return False
        self._killed = alive.record.pid
        number = kill_services(self._run.path)
        services = (
            "" if number is None else f", and {quantity(number, 'process', 'processes')} of its services"
        )
        await_gone(self._run.path, DYING_S)
        self._on_note(
            f"the backend of {self._run.name} (pid {alive.record.pid}) does not respond; killed it{services}"
        )
        return True

    def _check_here(self) -> None:
        """Check that a backend of this host can stop the run.

        Raises:
            BackendDead: there is no run.
            BackendElsewhere: the run's processes are on another host.
        """
        run, record = self._run, read_backend(self._run.path)
        if not run.is_run():
            raise BackendDead(f"{run.path} is not a run directory")
        if record is not None and record.host != hostname():
            raise BackendElsewhere(
                f"the backend of {run.name} ran on {record.host} and is not running; its services may still "
                "be running there; run: " + line_there(record.host, "stop", run.path),
                record.host,
            )

    def _start(self) -> None:
        """Start a backend that only stops the run; wait a moment if another backend holds the run.

        Raises:
            LaunchError: neither of the two answers.
        """
        from liverl.daemon.launch import LaunchError, RunHeld, StopRequest, start_backend

        if len(self._started) >= STARTS:
            raise LaunchError(
                f"{self._run.name} may still be running: {STARTS} backends were started to stop it, and each exited "
                f"before it had done so; their log: {self._run.backend_log}",
                ExitCode.FAILED,
            )
        if not self._started:
            self._on_note(f"the backend of {self._run.name} is not running; starting one to stop the run")
        try:
            self._started.append(
                start_backend(
                    self._run.path,
                    stop=StopRequest(self._now, self._who, bool(self._killed)),
                    tell=self._on_note,
                )
            )
            self._held_until = None
        except RunHeld:
            self._held_until = self._held_until or time.monotonic() + HELD_S
            if time.monotonic() > self._held_until:
                raise
            time.sleep(RETRY_S)
