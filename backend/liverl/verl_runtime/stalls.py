"""Code that keeps the event loop of an agent-loop worker from going on: a user's class that calls ``time.sleep``, or a
client that blocks, stops all trials of its worker. Their time stands still meanwhile, and the log says where it was.

Independent of verl; for Python 3.10 with few packages.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from liverl.util import clocks

logger = logging.getLogger(__name__)

BEAT_S = 0.1  # seconds between two signs of life of the loop
LATE_S = 0.05  # seconds that a sign of life may be late; less is the work of an ordinary loop
LOOK_S = 0.25  # seconds between two looks at a loop that gives no sign of life
WORTH_TELLING_S = 1.0  # seconds of one stop that a log is told of
AGAIN_S = 60.0  # seconds until the log is told again of the same place
_OURS = str(Path(__file__).resolve().parents[1])
_PACKAGES = re.compile(r"[/](site|dist)-packages[/]")
_LIBRARY = str(Path(asyncio.__file__).resolve().parents[1])


class Stalls:
    """The stops of one event loop, while trials run on it."""

    def __init__(self) -> None:
        self.total = 0.0  # seconds so far
        self._of: dict[str, float] = {}  # of them, by the trial whose code it was
        self._owners: weakref.WeakKeyDictionary[asyncio.Task[object], str] = weakref.WeakKeyDictionary()
        self._running: set[str] = set()
        self._due = 0.0  # when the next sign of life is due, on ``clocks.ran``
        self._handle: asyncio.TimerHandle | None = None
        self._over = threading.Event()
        self._seen: Counter[tuple[str, str]] = Counter()  # of the present stop: (trial, place)
        self._told: dict[str, _Place] = {}

    def by_others(self, trial: str) -> float:
        """Seconds for which other code than that of this trial has stopped the loop so far."""
        self._note()  # what waited for a stop to end may go on before the next sign of life
        return self.total - self._of.get(trial, 0.0)

    def of(self, trial: str) -> None:
        """What the present task does from now on is this trial's code."""
        task = asyncio.current_task()
        if task is not None:
            self._owners[task] = trial

    @contextmanager
    def watched(self, trial: str) -> Iterator[Callable[[], float]]:
        """Watch the running loop while a trial runs in the present task. Yields how many seconds the code of others has
        stopped it since."""
        loop = asyncio.get_running_loop()
        self.of(trial)
        if not self._running:
            self._begin(loop)
        self._running.add(trial)
        before = self.by_others(trial)
        try:
            yield lambda: self.by_others(trial) - before
        finally:
            self._running.discard(trial)
            self._of.pop(trial, None)
            if not self._running:
                self._end()
            self.of("")  # what follows in this task is verl's

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._over = threading.Event()
        self._due = clocks.ran() + BEAT_S
        self._handle = loop.call_later(BEAT_S, self._beat, loop)
        words = (loop, threading.get_ident(), self._over)
        threading.Thread(target=self._look, args=words, name="liverl-stalls", daemon=True).start()

    def _end(self) -> None:
        self._over.set()
        if self._handle is not None:
            self._handle.cancel()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """A sign of life."""
        self._note()
        self._due = clocks.ran() + BEAT_S
        self._handle = loop.call_later(BEAT_S, self._beat, loop)

    def _note(self) -> None:
        """Count a stop that has just ended."""
        now = clocks.ran()
        late = now - self._due
        if self._running and late > LATE_S:
            self._due = now + BEAT_S
            self._stopped(late)

    def _stopped(self, seconds: float) -> None:
        """The loop stood still for so long."""
        self.total += seconds
        seen, self._seen = self._seen, Counter()
        looks, places = seen.total(), Counter[str]()
        for (trial, place), number in seen.items():
            if trial in self._running:
                self._of[trial] = self._of.get(trial, 0.0) + seconds * number / looks
            places[place] += number
        place, number = places.most_common(1)[0] if places else ("", 0)
        if place and seconds >= WORTH_TELLING_S:
            words = self._told.setdefault(place, _Place()).words(seconds * number / looks)
            if words:
                logger.warning(
                    "%s blocked its worker for %s: no other trial of the worker could go on meanwhile, which is not "
                    "counted as their time", place, words,
                )  # fmt: skip

    def _look(self, loop: asyncio.AbstractEventLoop, thread: int, over: threading.Event) -> None:
        """See what a loop does that gives no sign of life: in a thread of its own."""
        while not over.wait(LOOK_S):
            if clocks.ran() - self._due < LOOK_S:
                continue
            task = asyncio.current_task(loop)
            trial = self._owners.get(task, "") if task is not None else ""
            self._seen[trial, place_of(sys._current_frames().get(thread))] += 1


class _Place:
    """What the log was told of one place."""

    def __init__(self) -> None:
        self._next, self._times, self._seconds = 0.0, 0, 0.0

    def words(self, seconds: float) -> str:
        """``6.0 s``, with what was not told before; "" if it is too soon."""
        self._times, self._seconds = self._times + 1, self._seconds + seconds
        if clocks.ran() < self._next:
            return ""
        self._next = clocks.ran() + AGAIN_S
        if self._times == 1:
            return f"{seconds:.1f} s"
        return f"{seconds:.1f} s ({self._seconds:.0f} s in {self._times} times so far)"


def place_of(frame: FrameType | None) -> str:
    """Where the user's code is, as ``/home/me/solver.py:19 (run)``: the innermost call that is neither Python's own nor
    ours, nor that of an installed package; "" if there is none."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OURS, _LIBRARY, "<")) and not _PACKAGES.search(file):
            return f"{file}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return ""


STALLS = Stalls()  # of this process: verl's worker has one loop
