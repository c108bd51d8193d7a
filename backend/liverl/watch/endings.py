"""How the logs of a watched run end without an error: it hangs, it ended before its last step, or a log just stops.
Judged by the doctor, who reads the logs as a whole: while a trainer runs, only once they show no work any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from liverl.causes.finding import Explanation
from liverl.offline.doctor.ends import QUIET_S, STOPS
from liverl.offline.doctor.inputs import Input
from liverl.offline.doctor.logs import Log, dated
from liverl.offline.doctor.reading import Reading, read_logs
from liverl.offline.doctor.silence import HANGS
from liverl.watch.quiet import pace_at

AGAIN_S = 60.0  # seconds after which what only time tells is judged again
# Of a trainer that runs nothing else is said.
_WHILE_IT_RUNS = (HANGS, "engine-stuck")


class Ending(msgspec.Struct, frozen=True):
    """A log whose end is judged. ``shown``: its path as evidence names it; ``what``: its kind in words, or what its
    process is; ``size``: bytes; ``alive``: its process still runs; ``written``: when it last was, Unix seconds, None:
    as its own lines tell."""

    path: Path
    shown: str
    what: str
    size: int
    alive: bool
    written: float | None = None

    @property
    def trains(self) -> bool:
        """Whether a trainer writes it."""
        return "trainer" in self.what


class Endings:
    """One thread at a time. ``clock``: the monotonic one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown: dict[str, str] = {}
        self._logs: list[Log] = []
        self._reading = Reading()
        self._trains = False
        self._found: tuple[Explanation, ...] = ()
        self._judged = -AGAIN_S  # when ``_found`` was, on ``clock``

    def read(self, logs: Sequence[Ending], now: float) -> None:
        """Read ``logs``, which have changed. What cannot be read is left out: the judge of the logs tells of it.
        ``now``: Unix seconds."""
        self._shown = {str(one.path): one.shown for one in logs}
        self._trains = any(one.alive and one.trains for one in logs)
        works = self._trains and any(_works(one.path, now) for one in logs)
        inputs = (Input(str(one.path), one.what, True, one.size) for one in logs if not works)
        written = {str(one.path): one.written for one in logs}
        self._logs = [msgspec.structs.replace(log, written=written[log.path]) for log in dated(inputs)]
        self._reading = read_logs(self._logs, lambda _: None, foreign=True)
        self._judged = -AGAIN_S

    def found(self, now: float) -> tuple[Explanation, ...]:
        """What is wrong by the ends of the logs that were read. ``now``: Unix seconds."""
        if self._clock() - self._judged >= AGAIN_S:
            self._found = tuple(
                self._as_shown(one) for one in self._reading.silent_ends(now) if self._holds(one, now)
            )
            self._judged = self._clock()
        return self._found

    def _holds(self, one: Explanation, now: float) -> bool:
        if self._trains:
            return one.id in _WHILE_IT_RUNS
        # A log that was seen to grow a moment ago has not stopped, whatever its last stamp is.
        newest = max((log.over for log in self._logs if log.trains), default=0.0)
        return one.id != STOPS or now - newest >= QUIET_S

    def _as_shown(self, one: Explanation) -> Explanation:
        replace = msgspec.structs.replace
        return replace(
            one, evidence=tuple(replace(e, log=self._shown.get(e.log or "", e.log)) for e in one.evidence)
        )


def _works(log: Path, now: float) -> bool:
    pace = pace_at(log)
    return pace is not None and pace.quiet(now) is None
