"""Stopping a run, whether its backend lives or not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from liverl.control.blocking import DYING_S, Connection, await_gone
from liverl.control.messages import NO_EVENTS, BackendDead, BackendElsewhere, BackendSilent
from liverl.exit_codes import ExitCode
from liverl.model import Result, Snapshot
from liverl.rundir.index import describe, elsewhere_message
from liverl.rundir.layout import LiveBackend, RunDir, hostname, read_backend

STARTS = 3  # of a backend that only stops, in one call; one that dies each time does not help
HELD_S = 20.0  # for another backend that has just taken the run to answer
ENDING_S = 10.0  # from a backend's ``bye`` to the end of its process
ANSWER_S = 5.0  # for the request to be accepted
RETRY_S = 0.1


def stop_run(
    run_dir: str | os.PathLike[str],
    *,
    now: bool = False,
    wait: bool = True,
    client: str = "",
    on_note: Callable[[str], None] = lambda _: None,
    on_snapshot: Callable[[Snapshot], None] = lambda _: None,
) -> Result | None:
    """Stop a run in dependency order and return its result; a run that has ended is left as it is.

    Where the backend has died, one is started that adopts what still runs and stops it. It starts no service and
    restarts none.

    ``now``: kill without grace. ``wait``: with False, return None as soon as the stop is accepted. ``client``: who
    asks, for events and result. ``on_note``: called with one sentence when a backend is started. ``on_snapshot``:
    called with the run's state whenever it changes.

    Raises:
        BackendElsewhere: the run's backend lives, or was last seen, on another host.
        BackendDead: there is no run in this directory.
        BackendSilent: the backend lives and does not answer.
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
                # One that is ending closes its socket first, then its process ends.
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
        """Have the backend that lives stop the run, and follow it to its end; False where nobody is to wait.

        Raises:
            BackendDead: there is none, or it died before the end.
        """
        with Connection(self._run.path) as connection:
            connection.subscribe(NO_EVENTS, snapshots=True)  # before the end can come
            if connection.hello.pid not in self._started:  # else it was started to stop
                args = {"now": self._now}
                connection.command("stop", args, client=self._who, wait=False, timeout=ANSWER_S)
            if not wait:
                return False
            while (message := connection.read(None)) is None or message.bye is None:
                if message is not None and message.snapshot is not None:
                    self._on_snapshot(message.snapshot)
        await_gone(self._run.path, ENDING_S)
        return True

    def _check_here(self) -> None:
        """
        Raises:
            BackendDead: there is no run.
            BackendElsewhere: its processes are those of another host.
        """
        run, record = self._run, read_backend(self._run.path)
        if not run.is_run():
            raise BackendDead(f"{run.path} is not a run directory")
        if record is not None and record.host != hostname():
            raise BackendElsewhere(
                f"the backend of {run.name} ran on {record.host} and is not running; its services may still "
                f"be running there; run: "
                f"ssh {record.host} liverl-tui stop --run {run.path}",
                record.host,
            )

    def _start(self) -> None:
        """Start a backend that only stops; or wait a moment, where another one is just coming up.

        Raises:
            LaunchError: neither of them comes up.
        """
        from liverl.daemon.launch import LaunchError, RunHeld, StopRequest, start_backend

        if len(self._started) >= STARTS:
            raise LaunchError(
                f"the backend of {self._run.name} exited unexpectedly {STARTS} times while stopping the run; "
                f"see {self._run.backend_log}",
                ExitCode.FAILED,
            )
        if not self._started:
            self._on_note(f"the backend of {self._run.name} is not running; starting one to stop the run")
        try:
            self._started.append(start_backend(self._run.path, stop=StopRequest(self._now, self._who)))
            self._held_until = None
        except RunHeld:
            self._held_until = self._held_until or time.monotonic() + HELD_S
            if time.monotonic() > self._held_until:
                raise
            time.sleep(RETRY_S)
