"""The view without an interface: one line per event, and the state of the run in sentences, until the run ends.

Lines are only appended, never overwritten, so that a screen reader, a pipe and a dumb terminal get the same text.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import time
from collections import deque
from types import FrameType, TracebackType
from typing import TextIO

from liverl.control.blocking import HELLO_S, Connection, await_gone
from liverl.control.history import read_events
from liverl.control.messages import (
    BackendDead,
    BackendElsewhere,
    BackendSilent,
    CommandError,
    ControlError,
    Cursor,
)
from liverl.model import Event, Level, Result, Snapshot
from liverl.rundir.commands import ended_commands, next_command
from liverl.rundir.layout import RunDir
from liverl.util.descriptors import readable
from liverl.util.signals import StopRequests
from liverl_tui.text.as_typed import as_typed
from liverl_tui.text.facts import plain_facts
from liverl_tui.text.words import one_line

RESTARTS = 5  # a foreground `up` starts a dead backend again at most this often ...
RESTART_WINDOW_S = 600.0  # ... in this time; if it dies more often, starting it again does not help
ENDING_S = 10.0  # the longest time from a backend's ``bye`` to the end of its process
ANSWER_S = 5.0  # timeout for the backend to accept a command
NOW_S = 1.0  # ... and for its greeting, once the run is to be killed
RETRY_S = 1.0  # between two attempts to reach the backend
FACTS_S = 1.0  # between two snapshots

_GLYPH: dict[Level, str] = {"debug": "·", "info": "•", "warning": "▲", "error": "✖"}
_COLOUR: dict[Level, str] = {"debug": "2", "info": "", "warning": "33", "error": "31"}


def wants_colour(out: TextIO) -> bool:
    """Whether to write colours to ``out``: a terminal that is not dumb, and no NO_COLOR (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class EventLines:
    """Writes events as lines: in a file with the date and the level as a word, on a terminal with the time of day, a
    glyph and a colour."""

    def __init__(self, out: TextIO, *, keep_going: bool = False) -> None:
        """``keep_going``: when ``out`` fails, drop further lines instead of raising OSError."""
        self.out = out
        self.terminal = out.isatty()
        self.colour = wants_colour(out)
        self.keep_going = keep_going
        self._silent = False

    def format(self, at: float, service: str | None, text: str, level: Level = "info") -> str:
        """One line without a line end. ``at``: Unix seconds, shown in local time; ``service``: None for the run."""
        source = one_line(service or "run")
        message = one_line(text)
        if not self.terminal:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
            word = "" if level == "info" else f"{level}: "
            return f"{stamp}  {source:<10}  {word}{message}"
        line = f"{time.strftime('%H:%M:%S', time.localtime(at))} {_GLYPH[level]} {source:<10}  {message}"
        return f"\x1b[{_COLOUR[level]}m{line}\x1b[0m" if self.colour and _COLOUR[level] else line

    def event(self, event: Event) -> None:
        """Write an event, unless its level is debug, and what to do about an alert."""
        if event.level != "debug":  # `liverl-tui events` shows everything
            self.write(self.format(event.at, event.service, event.text, event.level))
            has_fix = event.kind in ("symptom", "run_unfinished") and event.level != "info"
            fix = event.data.get("fix") if has_fix else None
            if isinstance(fix, str) and fix:
                self.write(self.format(event.at, event.service, f"what to do: {fix}"))

    def state(self, at: float, sentence: str) -> None:
        """Write a sentence about the run's state at ``at`` (Unix seconds)."""
        self.write(self.format(at, "state", sentence))

    def note(self, text: str, level: Level = "info") -> None:
        """Write a message of this program, not of the run, with the present time."""
        self.write(self.format(time.time(), "liverl-tui", as_typed(text), level))

    def write(self, line: str) -> None:
        """Write one line and flush it.

        Raises:
            OSError: the output failed, and ``keep_going`` is not set.
        """
        if self._silent:
            return
        try:
            self.out.write(line + "\n")
            self.out.flush()
        except OSError as error:
            if not self.keep_going:
                raise
            # The run goes on without its terminal or pipe. After a full disk try again: it may have room later.
            self._silent = error.errno != errno.ENOSPC


class StopSignals:
    """Inside a ``with`` block: SIGINT and SIGTERM are requests to stop, counted in ``count``, SIGUSR1 asks for a
    checkpoint, counted in ``saves``, and none of them ends the process; SIGHUP is ignored. ``fd`` becomes readable with
    each signal."""

    def __init__(self) -> None:
        self._requests = StopRequests()
        self.saves = 0
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def count(self) -> int:
        """How often a stop was requested."""
        return self._requests.count

    @property
    def newest(self) -> str:
        """The name of the signal that has requested the newest stop: ``SIGTERM``."""
        return self._requests.newest

    def _save(self, _number: int, _frame: FrameType | None) -> None:
        self.saves += 1

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._requests.received(number)

    def __enter__(self) -> StopSignals:
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, signal.SIGTERM)}
        self._before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._save)
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.fd)
        os.close(self._write)

    def clear(self) -> None:
        """Empty the wake-up pipe, so that ``fd`` is not readable until the next signal."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until a signal comes."""
        readable([self.fd], seconds)
        self.clear()


class Follower:
    """Follows a run to its end. With ``signals`` this process owns the run: SIGINT and SIGTERM stop the run, and a
    dead backend is started again. Without, it only reads."""

    def __init__(
        self,
        run: RunDir,
        lines: EventLines,
        *,
        from_seq: int = 0,
        signals: StopSignals | None = None,
        facts: bool = False,
    ) -> None:
        """``from_seq``: print the events after this number; ``facts``: print sentences about the state too."""
        self.run = run
        self.lines = lines
        self.cursor = Cursor(from_seq)
        self.signals = signals
        self.facts = facts
        self._last: Snapshot | None = None  # the newest snapshot whose facts were printed
        self._attempt = 1
        self._restarts: deque[float] = deque()
        self._connected = False
        self._saves_sent = 0

    def follow(self) -> int:
        """Print events until the run ends; the run's exit code.

        Raises:
            ControlError: the backend cannot be reached, and this process does not own the run.
        """
        while True:
            try:
                self._watch()
                await_gone(self.run.path, ENDING_S)
            except BackendSilent as error:
                if not self._connected and self.signals is None:
                    raise
                if self.signals is None or self.signals.count < 2:
                    self.lines.note(f"{error}; {self._what_silence_means()}", "warning")
                    self._pause()
                    continue
                if not self._kill():
                    self._pause()
                    continue
            except BackendElsewhere:
                raise
            except BackendDead:
                if not self._connected and self.signals is None:
                    raise
            for event in self.cursor.new(read_events(self.run.path, self.cursor.seq)):
                self.lines.event(event)
            result = self._result()
            if result is not None:
                if (command := next_command(result)) is not None:
                    self.lines.note(f"to resume: {command}")
                self.lines.note(ended_commands(self.run.path))
                return result.exit_code
            if self.signals is None:
                raise BackendDead(f"the backend of {self.run.name} has died", self.run.path)
            self._revive()

    def _watch(self) -> None:
        """Print what one connection sends until the backend says bye, and pass stop signals on.

        Raises:
            BackendDead, BackendSilent: the connection ended without a bye.
        """
        stops_sent = 0
        kills = self.signals is not None and self.signals.count > 1
        with Connection(self.run.path, timeout=NOW_S if kills else HELLO_S) as connection:
            self._attempt = connection.snapshot().attempt
            self._connected = True
            connection.subscribe(self.cursor.seq, snapshots=self.facts, interval=FACTS_S)
            while True:
                if self.signals is not None and self.signals.count > stops_sent:
                    stops_sent = self.signals.count
                    self._request_stop(connection, now=stops_sent > 1)
                if self.signals is not None and self.signals.saves > self._saves_sent:
                    self._saves_sent = self.signals.saves
                    self._request_save(connection)
                message = connection.read(None, self.signals.fd if self.signals else None)
                if message is None:
                    if self.signals is not None:
                        self.signals.clear()
                elif message.event is not None:
                    for event in self.cursor.new((message.event,)):
                        self.lines.event(event)
                elif message.resync is not None:
                    for event in connection.events_after(self.cursor):
                        self.lines.event(event)
                elif message.snapshot is not None:
                    self._print_facts(message.snapshot)
                elif message.bye is not None:
                    return

    def _print_facts(self, snapshot: Snapshot) -> None:
        """Print the facts that differ from those of the previous snapshot."""
        for sentence in plain_facts(snapshot, self._last):
            self.lines.state(snapshot.at, sentence)
        self._last = snapshot

    def _request_stop(self, connection: Connection, *, now: bool) -> None:
        self.lines.note(
            "stopping the run immediately: killing all processes without a grace period"
            if now
            else "stopping services in dependency order; press Ctrl-C again to kill immediately"
        )
        try:
            assert self.signals is not None
            client = f"{self.signals.newest} to up (pid {os.getpid()})"
            if now:
                answer = connection.stop_now(client)
            else:
                answer = connection.command(
                    "stop", {"now": False}, client=client, wait=False, timeout=ANSWER_S
                )
            if "text" in answer:  # it is busy
                self.lines.note(answer["text"], "warning")
        except CommandError as error:
            self.lines.note(f"the backend refused the stop command: {error}", "error")

    def _request_save(self, connection: Connection) -> None:
        """Ask for a checkpoint; the backend adds an event that says what becomes of it."""
        client = f"SIGUSR1 to up (pid {os.getpid()})"
        try:
            connection.command("save_checkpoint", {}, client=client, wait=False, timeout=ANSWER_S)
        except CommandError as error:
            self.lines.note(f"SIGUSR1: {error}", "error")

    def _what_silence_means(self) -> str:
        """What this process does while the backend does not respond, in words."""
        if self.signals is not None and self.signals.count:
            return "it is asked again to stop the run; press Ctrl-C again to kill the run without it"
        return "trying again"

    def _kill(self) -> bool:
        """Kill a backend that does not respond, and its run; whether that was done."""
        from liverl.daemon.launch import LaunchError
        from liverl.offline.stop import stop_run

        assert self.signals is not None
        client = f"{self.signals.newest} to up (pid {os.getpid()})"
        try:
            stop_run(
                self.run.path, now=True, client=client, on_note=lambda text: self.lines.note(text, "warning")
            )
        except (ControlError, LaunchError) as error:
            self.lines.note(f"the run could not be killed: {error}; trying again", "error")
            return False
        return True

    def _result(self) -> Result | None:
        """The result of the attempt that was followed; None while the file holds an older attempt's."""
        result = self.run.read_result()
        return result if result is not None and result.attempt >= self._attempt else None

    def _pause(self) -> None:
        if self.signals is not None:
            self.signals.sleep(RETRY_S)
        else:
            time.sleep(RETRY_S)

    def _revive(self) -> None:
        """Start the dead backend again.

        Raises:
            ControlError: the backend died more than ``RESTARTS`` times within ``RESTART_WINDOW_S``.
        """
        from liverl.daemon.launch import LaunchError, start_or_join

        now = time.monotonic()
        while self._restarts and now - self._restarts[0] > RESTART_WINDOW_S:
            self._restarts.popleft()
        if len(self._restarts) >= RESTARTS:
            raise ControlError(
                f"the backend of {self.run.name} died {RESTARTS + 1} times in "
                f"{RESTART_WINDOW_S / 60:g} minutes; not starting it again. See {self.run.backend_log}. "
                "Its services may still be running; to try again: "
                f"liverl-tui up --run {shlex.quote(str(self.run.path))}"
            )
        self._restarts.append(now)
        count = len(self._restarts)
        self.lines.note(
            f"the backend has died; starting it again ({count} of {RESTARTS}); "
            "the new backend adopts the services that are still running",
            "warning",
        )
        try:
            signals = self.signals
            start_or_join(
                self.run.path,
                tell=lambda text: self.lines.note(text, "warning"),
                stops=lambda: signals.count if signals is not None else 0,
            )
        except LaunchError as error:
            self.lines.note(str(error), "error")
            self._pause()
