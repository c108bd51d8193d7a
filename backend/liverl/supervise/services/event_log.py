"""``events.jsonl``, one numbered event per line, and the texts of events about a service's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from liverl.model import Event, Level
from liverl.rundir.journal import LineFile
from liverl.supervise.services.state_machine import MachineState
from liverl.util import redact
from liverl.util.decode import JsonDecoder
from liverl.util.regular_file import open_binary

KEPT = 2000  # newest events in memory, for clients that reconnect and read the ones they missed

_EVENT = JsonDecoder(Event)


class EventLog:
    """Numbers events, writes them to ``path``, passes them to subscribers and keeps the newest ones in memory. Numbers
    continue after the last event in the file.

    Raises:
        OSError: the file cannot be opened. Later write errors go to ``on_error`` once per kind of error.
    """

    def __init__(self, path: Path, now: Callable[[], float], on_error: Callable[[str], None]) -> None:
        self.newest: deque[Event] = deque(maxlen=KEPT)
        self._file = LineFile(path, durable=False)  # cuts off an unfinished last line
        self._seq = last_seq(path)
        self._now = now
        self._on_error = on_error
        self._listeners: list[Callable[[Event], None]] = []

    @property
    def seq(self) -> int:
        """Number of the newest event; 0 before the first."""
        return self._seq

    def add(
        self, kind: str, text: str, level: Level = "info", service: str | None = None, **data: Any
    ) -> Event:
        """Add an event and return it. It is written in the background; ``service`` is the one that it is about,
        ``data`` its further fields in JSON. Secrets are hidden in both: an event may quote a log or an error."""
        self._seq += 1
        shown = redact.document(data)
        event = Event(self._seq, self._now(), kind, redact.value(text), level, service, shown)
        self.newest.append(event)
        self._file.append(event).add_done_callback(self._written)
        for listener in self._listeners:
            listener(event)
        return event

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Call ``listener`` with each event from now on."""
        self._listeners.append(listener)

    def since(self, seq: int) -> list[Event] | None:
        """Events with a number above ``seq``, oldest first; None if the first of them is no longer in memory and must
        be read from the file."""
        if self.newest and self.newest[0].seq > seq + 1:
            return None
        return [event for event in self.newest if event.seq > seq]

    def _written(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._on_error(str(error))

    def close(self) -> None:
        """Write what is queued and close the file."""
        self._file.close()


def last_seq(path: Path) -> int:
    """The number of the last event in the final MiB of a file; 0 if it holds none or does not exist."""
    try:
        with open_binary(path) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - (1 << 20)))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return 0
    for line in reversed(lines):
        try:
            return _EVENT.decode(line).seq
        except (ValueError, RecursionError):
            continue
    return 0


def words(
    before: MachineState, after: MachineState, now: float, *, completes: bool
) -> tuple[str, Level] | None:
    """Text and level of the event for a change of state; None for a change without an event. ``now``: Unix seconds.
    ``completes``: the service is a task, whose exit 0 is a success."""
    if before.state == after.state:
        if after.stuck and not before.stuck:
            return (
                "has not ended after the last signal: a process survived it, or its exit status was not reported yet",
                "error",
            )
        return None
    took = f"{now - before.since:.1f} s"
    match after.state:
        case "preparing":
            again = f" again (generation {after.generation}): {after.why}" if after.generation > 1 else ""
            return f"preparing{again}", "info"
        case "starting":
            return "process started", "info"
        case "ready":
            return (f"ready after {took}", "info") if before.state == "starting" else ("ready again", "info")
        case "degraded":
            return f"degraded: {after.why}", "warning"
        case "stopping":
            done = completes and after.exit is not None and after.exit.ok
            expected = after.after not in ("decide", "fail") or done
            return f"stopping: {after.why}", "info" if expected else "warning"
        case "stopped":
            how = after.exit.words() if after.exit is not None and after.generation else ""
            told = not how or "exit" in after.why or how in after.why
            # Ray's head exits with 1 whenever it is told to: alone that reads as a failure.
            asked = (
                ", after it was told to stop" if after.ended_by_us and after.exit and after.exit.code else ""
            )
            return after.why if told else f"{after.why} ({how}{asked})", "info"
        case "failed":
            return f"failed: {after.why}", "error"
        case "gave_up":
            return f"gave up: {after.why}", "error"
        case "backing_off":
            delay = (after.deadline or now) - now
            return f"restarting in {delay:.1f} s after: {after.why}", "warning"
        case "waiting":
            return None
    return None
