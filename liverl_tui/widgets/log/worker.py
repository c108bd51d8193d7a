"""The thread that reads logs for one view, so that a slow disk or a long search never blocks the interface."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context

from liverl_tui.widgets.log.frame import Frame
from liverl_tui.widgets.log.session import LogSession

POLL_S = 0.25  # seconds between two polls of the files: a terminal over ssh can take four frames a second
SLICE_S = 0.005  # seconds of searching before queued operations run
TURN_S = 0.001  # seconds: longest interval between switches of threads
PICTURE_S = 0.1  # seconds between two frames during a search

Operation = Callable[[LogSession], object]
Outcome = Frame | Exception


class LogWorker:
    """Runs a session in a thread. ``deliver`` is called in that thread with each new frame, or with the exception
    that ended the thread."""

    def __init__(self, session: LogSession, deliver: Callable[[Outcome], None]) -> None:
        self._session = session
        self._deliver = deliver
        self._operations: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._awake = threading.Event()
        self._awake.set()
        self._frame: Frame | None = None
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="logs", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        # A search computes without a pause, and for each key the drawing thread waits several such intervals.
        sys.setswitchinterval(min(sys.getswitchinterval(), TURN_S))
        self._thread.start()

    def do(self, operation: Operation) -> None:
        """Queue an operation and return at once; operations run in order."""
        self._operations.put(operation)

    def rest(self, rest: bool) -> None:
        """Stop polling the files while the view is not visible (True), or poll again (False). Operations still
        run."""
        if rest:
            self._awake.clear()
        elif not self._awake.is_set():
            self._awake.set()
            self._operations.put(LogSession.poll)

    def close(self) -> None:
        """End the thread after the operation that runs now; operations still queued are dropped. The thread closes
        the files."""
        self._operations.put(None)

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # noqa: BLE001  (delivered to the interface, which raises it)
            self._deliver(error)
        finally:
            self._session.close()

    def _loop(self) -> None:
        session = self._session
        due = drawn = time.monotonic()
        begin = due + POLL_S  # of searching and counting: they would delay the first paint of the interface
        unread = undrawn = True  # whether there may be something to search or count, or to draw
        busy = False
        while True:
            operations = self._take(0.0 if busy else max(0.0, due - time.monotonic()))
            if operations is None:
                return
            began = time.monotonic()
            polls = began >= due and self._awake.is_set()
            news, told = bool(operations), (session.error, session.lag)
            try:
                for operation in operations:
                    operation(session)
                if polls:
                    session.error = ""
                    news = session.poll() or news
                busy = (unread or news) and began >= begin
                undrawn = undrawn or news or busy
                unread = session.work(SLICE_S) if busy else unread or news
                busy = busy and unread
            except OSError as error:
                session.error, busy, unread = _words(error), False, True
            now = time.monotonic()
            if began >= due:
                # A poll that comes late or takes long is the time by which the view is behind the files.
                session.lag = float(int(now - due)) if polls else 0.0
                due = now + POLL_S
            undrawn = undrawn or told != (session.error, session.lag)
            if undrawn and (operations or polls or now - drawn >= PICTURE_S):
                drawn, undrawn = now, False
                self._draw()

    def _take(self, timeout: float) -> list[Operation] | None:
        """The queued operations, after at most ``timeout`` seconds of waiting for the first; None if the thread shall
        end."""
        operations: list[Operation] = []
        try:
            item = self._operations.get(timeout=timeout) if timeout > 0 else self._operations.get_nowait()
            while item is not None:
                operations.append(item)
                item = self._operations.get_nowait()
        except queue.Empty:
            return operations
        return None

    def _draw(self) -> None:
        try:
            frame = self._session.frame()
        except OSError as error:
            frame = Frame(tab=self._session.tab, error=_words(error))
        if frame != self._frame:
            self._frame = frame
            self._deliver(frame)


def _words(error: OSError) -> str:
    return f"cannot read the log: {error.strerror or error}"
