"""The view without an interface: one line per event, and the facts in sentences, until the run ends.

Nothing that was written is written over: a screen reader, a pipe and a terminal that can do nothing get the same.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections import deque
from types import FrameType, TracebackType
from typing import TextIO

from liverl.control.blocking import Connection, await_gone
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
from liverl.rundir.layout import RunDir
from liverl_tui.text.facts import plain_facts
from liverl_tui.text.words import one_line

RESTARTS = 5  # of a dead backend under a foreground `up` ...
RESTART_WINDOW_S = 600.0  # ... in this time; more often means that starting it again does not help
ENDING_S = 10.0  # from a backend's ``bye`` to the end of its process
ANSWER_S = 5.0  # for a command that is only to be accepted
RETRY_S = 1.0
FACTS_S = 1.0  # between two looks at the state

_GLYPH: dict[Level, str] = {"debug": "·", "info": "•", "warning": "▲", "error": "✖"}
_COLOUR: dict[Level, str] = {"debug": "2", "info": "", "warning": "33", "error": "31"}


def wants_colour(out: TextIO) -> bool:
    """A terminal that can do it, and nobody who asked for none (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class EventLines:
    """Events as lines: with date and words in a file, with glyph and colour on a terminal."""

    def __init__(self, out: TextIO, *, keep_going: bool = False) -> None:
        """``keep_going``: an output that is gone silences the view instead of ending it."""
        self.out = out
        self.terminal = out.isatty()
        self.colour = wants_colour(out)
        self.keep_going = keep_going
        self._silent = False

    def format(self, at: float, service: str | None, text: str, level: Level = "info") -> str:
        """One line, without its end. ``at``: Unix seconds, shown in local time."""
        who = one_line(service or "run")
        said = one_line(text)
        if not self.terminal:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
            word = "" if level == "info" else f"{level}: "
            return f"{stamp}  {who:<10}  {word}{said}"
        line = f"{time.strftime('%H:%M:%S', time.localtime(at))} {_GLYPH[level]} {who:<10}  {said}"
        return f"\x1b[{_COLOUR[level]}m{line}\x1b[0m" if self.colour and _COLOUR[level] else line

    def event(self, event: Event) -> None:
        if event.level != "debug":  # `liverl-tui events` shows everything
            self.write(self.format(event.at, event.service, event.text, event.level))

    def state(self, at: float, sentence: str) -> None:
        """A fact of the run at a time."""
        self.write(self.format(at, "state", sentence))

    def note(self, text: str, level: Level = "info") -> None:
        """Something that this program has to say, not the run."""
        self.write(self.format(time.time(), "liverl-tui", text, level))

    def write(self, line: str) -> None:
        if self._silent:
            return
        try:
            self.out.write(line + "\n")
            self.out.flush()
        except OSError as error:
            if not self.keep_going:
                raise
            # The terminal or the pipe is gone: the run is not. A full disk may have room again later.
            self._silent = error.errno != errno.ENOSPC


class Asked:
    """Counts SIGINT and SIGTERM instead of dying of them, and ignores SIGHUP, inside a ``with`` block."""

    def __init__(self) -> None:
        self.times = 0
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.times += 1

    def __enter__(self) -> Asked:
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {n: signal.signal(n, self._count) for n in (signal.SIGINT, signal.SIGTERM)}
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
        """Empty the wake-up pipe."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def sleep(self, seconds: float) -> None:
        """Sleep, but not through a signal."""
        select.select([self.fd], [], [], seconds)
        self.clear()


class Follower:
    """Follows a run to its end. With ``asked`` it is the run's foreground: signals stop the run, and a dead
    backend is started again; without, it only looks."""

    def __init__(
        self,
        run: RunDir,
        lines: EventLines,
        *,
        from_seq: int = 0,
        asked: Asked | None = None,
        facts: bool = False,
    ) -> None:
        """``facts``: sentences about the state, beside the events."""
        self.run = run
        self.lines = lines
        self.cursor = Cursor(from_seq)
        self.asked = asked
        self.facts = facts
        self._known: Snapshot | None = None  # what the sentences have told
        self._attempt = 1
        self._restarts: deque[float] = deque()
        self._connected = False

    def follow(self) -> int:
        """Print events until the run ends; its exit code.

        Raises:
            ControlError: there is no backend to look at, and it is not ours to start.
        """
        while True:
            try:
                self._watch()
                await_gone(self.run.path, ENDING_S)
            except BackendSilent as error:
                if not self._connected and self.asked is None:
                    raise
                self.lines.note(f"{error}; trying again", "warning")
                self._pause()
                continue
            except BackendElsewhere:
                raise
            except BackendDead:
                if not self._connected and self.asked is None:
                    raise
            for event in self.cursor.new(read_events(self.run.path, self.cursor.seq)):
                self.lines.event(event)
            result = self._result()
            if result is not None:
                return result.exit_code
            if self.asked is None:
                raise BackendDead(
                    f"the backend of {self.run.name} has died; its services may still be running. "
                    f"To start it again: liverl-tui up --run {self.run.path}"
                )
            self._revive()

    def _watch(self) -> None:
        """One connection, to its orderly end.

        Raises:
            BackendDead, BackendSilent: the other kind of end.
        """
        sent = 0
        with Connection(self.run.path) as connection:
            self._attempt = connection.snapshot().attempt
            self._connected = True
            connection.subscribe(self.cursor.seq, snapshots=self.facts, interval=FACTS_S)
            while True:
                if self.asked is not None and self.asked.times > sent:
                    sent = self.asked.times
                    self._ask_to_stop(connection, now=sent > 1)
                message = connection.read(None, self.asked.fd if self.asked else None)
                if message is None:
                    if self.asked is not None:
                        self.asked.clear()
                elif message.event is not None:
                    for event in self.cursor.new((message.event,)):
                        self.lines.event(event)
                elif message.resync is not None:
                    for event in connection.events_after(self.cursor):
                        self.lines.event(event)
                elif message.snapshot is not None:
                    self._tell(message.snapshot)
                elif message.bye is not None:
                    return

    def _tell(self, snapshot: Snapshot) -> None:
        """The facts that are new."""
        for sentence in plain_facts(snapshot, self._known):
            self.lines.state(snapshot.at, sentence)
        self._known = snapshot

    def _ask_to_stop(self, connection: Connection, *, now: bool) -> None:
        self.lines.note(
            "stopping the run immediately: killing all processes without a grace period"
            if now
            else "stopping services in dependency order; press Ctrl-C again to kill immediately"
        )
        try:
            connection.command(
                "stop", {"now": now}, client=f"cli pid {os.getpid()}", wait=False, timeout=ANSWER_S
            )
        except CommandError as error:
            self.lines.note(f"the backend refused the stop command: {error}", "error")

    def _result(self) -> Result | None:
        """The result of the attempt that we followed; an older attempt's is none."""
        result = self.run.read_result()
        return result if result is not None and result.attempt >= self._attempt else None

    def _pause(self) -> None:
        if self.asked is not None:
            self.asked.sleep(RETRY_S)
        else:
            time.sleep(RETRY_S)

    def _revive(self) -> None:
        """Start the dead backend again.

        Raises:
            ControlError: that was done too often, or cannot be done.
        """
        from liverl.daemon.launch import LaunchError, start_backend

        now = time.monotonic()
        while self._restarts and now - self._restarts[0] > RESTART_WINDOW_S:
            self._restarts.popleft()
        if len(self._restarts) >= RESTARTS:
            raise ControlError(
                f"the backend of {self.run.name} died {RESTARTS + 1} times in "
                f"{RESTART_WINDOW_S / 60:g} minutes; not starting it again. See {self.run.backend_log}. "
                f"Its services may still be running; to try again: liverl-tui up --run {self.run.path}"
            )
        self._restarts.append(now)
        count = len(self._restarts)
        self.lines.note(
            f"the backend has died; starting it again ({count} of {RESTARTS}); "
            "it adopts the services that are still running",
            "warning",
        )
        try:
            start_backend(self.run.path)
        except LaunchError as error:
            self.lines.note(str(error), "error")
            self._pause()
