"""How the logs of a watched run end without an error: it hangs, it ended before its last step, or a log just stops.
Judged by the rules of the doctor; what a log says is read again when it has grown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from liverl.causes.finding import Explanation
from liverl.offline.doctor.early_ends import early_ends
from liverl.offline.doctor.ends import QUIET_S, STOPS
from liverl.offline.doctor.inputs import Input
from liverl.offline.doctor.logs import Log, dated
from liverl.offline.doctor.reading import Reading
from liverl.offline.doctor.silence import Tail, engine_stuck, hang, tail_of
from liverl.offline.doctor.training import Training, joined, training_of


class Ending(msgspec.Struct, frozen=True):
    """A log whose end is judged. ``shown``: its path as evidence names it; ``what``: its kind in words, or what its
    process is; ``alive``: its process still runs."""

    path: Path
    shown: str
    what: str
    size: int
    alive: bool


class Endings:
    """One thread at a time. ``unreadable``: logs that the last ``read`` could not read, and why."""

    def __init__(self) -> None:
        self.unreadable: dict[Path, str] = {}
        self._known: dict[str, tuple[int, Training, Tail]] = {}  # log -> its size, what it says, how it ends
        self._shown: dict[str, str] = {}
        self._reading = Reading()
        self._trains = False
        self._early: tuple[Explanation, ...] = ()

    def read(self, logs: Sequence[Ending], most: int) -> None:
        """Read those of ``logs`` that have grown, the last ``most`` bytes of each."""
        self.unreadable = {}
        self._shown = {str(one.path): one.shown for one in logs}
        self._trains = any(one.alive and "trainer" in one.what for one in logs)
        inputs = [Input(str(one.path), one.what, True, one.size) for one in logs]
        parts: list[tuple[float, Training]] = []
        tails: list[tuple[Log, Tail]] = []
        known: dict[str, tuple[int, Training, Tail]] = {}
        for log in dated(inputs):
            size = log.input.size or 0
            one = self._known.get(log.path)
            if one is None or one[0] != size:
                try:
                    one = size, training_of(log.path, max(0, size - most)), tail_of(log)
                except OSError as error:
                    self.unreadable[Path(log.path)] = error.strerror or str(error)
                    continue
            known[log.path] = one
            parts.append((log.over, one[1]))
            tails.append((log, one[2]))
        self._known = known
        training = joined([part for _, part in sorted(parts, key=lambda part: part[0])])
        self._reading = Reading(training=training, tails=tuple(tails))
        self._early = () if self._trains else early_ends((), [log.path for log, _ in tails])

    def found(self, now: float) -> tuple[Explanation, ...]:
        """What is wrong by the ends of the logs that were read. Of a trainer whose process runs only that it hangs.
        ``now``: Unix seconds."""
        tails, training = self._reading.tails, self._reading.training
        if not self._trains:
            ends = self._reading.silent_ends(now, self._early)
            # These are no copies: a log that grew a moment ago has not stopped, whatever its last stamp is.
            quiet = now - max((log.modified for log, _ in tails if log.trains), default=0.0)
            return self._as_shown(one for one in ends if one.id != STOPS or quiet >= QUIET_S)
        stuck = (engine_stuck(log, tail) for log, tail in tails)
        hangs = (hang(tails, training, now), next((one for one in stuck if one is not None), None))
        return self._as_shown(one for one in hangs if one is not None)

    def _as_shown(self, found: Iterable[Explanation]) -> tuple[Explanation, ...]:
        replace = msgspec.structs.replace
        return tuple(
            replace(
                one, evidence=tuple(replace(e, log=self._shown.get(e.log or "", e.log)) for e in one.evidence)
            )
            for one in found
        )
