"""The thread that reads logs for one view: a slow disk or a long search never holds up the interface."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context

from liverl_tui.widgets.log.frame import Frame
from liverl_tui.widgets.log.session import LogSession

POLL_S = 0.25  # between two looks at the files: four pictures a second are what a terminal over ssh can take
SLICE_S = 0.005  # of searching before keys are looked at again
TURN_S = 0.001
PICTURE_S = 0.1  # between two pictures while a search goes on

Operation = Callable[[LogSession], None]
Outcome = Frame | Exception


class LogWorker:
    """Runs a session. ``do`` returns at once; ``deliver`` is called in the thread with each new picture, or with
    the exception that ended it."""

    def __init__(self, session: LogSession, deliver: Callable[[Outcome], None]) -> None:
        self._session = session
        self._deliver = deliver
        self._orders: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._awake = threading.Event()
        self._awake.set()
        self._frame: Frame | None = None
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="logs", daemon=True)

    def start(self) -> None:
        # A search computes without a pause; what draws then waits so long for its turn, several times per key.
        sys.setswitchinterval(min(sys.getswitchinterval(), TURN_S))
        self._thread.start()

    def do(self, operation: Operation) -> None:
        """Have something done, in order."""
        self._orders.put(operation)

    def rest(self, rest: bool) -> None:
        """Do not look at the files while nobody sees them."""
        if rest:
            self._awake.clear()
        elif not self._awake.is_set():
            self._awake.set()
            self._orders.put(LogSession.poll)

    def close(self) -> None:
        """End it; what it is doing it may finish. Files are closed by the thread itself."""
        self._orders.put(None)

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # noqa: BLE001  (told to the interface, which must not go on without logs)
            self._deliver(error)
        finally:
            self._session.close()

    def _loop(self) -> None:
        session = self._session
        busy = False
        due = drawn = time.monotonic()
        begin = due + POLL_S  # of searching and counting: they would hold up those who draw the first picture
        while True:
            asked = self._take(0.0 if busy else max(0.0, due - time.monotonic()))
            if asked is None:
                return
            began = time.monotonic()
            looked = began >= due and self._awake.is_set()
            try:
                for operation in asked:
                    operation(session)
                if looked:
                    session.error = ""
                    session.poll()
                busy = began >= begin and session.work(SLICE_S)
            except OSError as error:
                session.error, busy = _words(error), False
            now = time.monotonic()
            if began >= due:
                # A look that takes long, or that comes late, is what the view is behind by.
                session.lag = float(int(now - due)) if looked else 0.0
                due = now + POLL_S
            if asked or looked or now - drawn >= PICTURE_S:
                drawn = now
                self._draw()

    def _take(self, timeout: float) -> list[Operation] | None:
        """What has been asked for meanwhile; None when it is time to end."""
        asked: list[Operation] = []
        try:
            item = self._orders.get(timeout=timeout) if timeout > 0 else self._orders.get_nowait()
            while item is not None:
                asked.append(item)
                item = self._orders.get_nowait()
        except queue.Empty:
            return asked
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
    return f"cannot read: {error.strerror or error}"
