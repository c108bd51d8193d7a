"""What happened in each step of a run that a list of steps marks: alerts that began in it, and replicas that were slow
during it. Read from the events, of which only what is new is read again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

import msgspec

from liverl.logs.follow import LineFollower
from liverl.model import Level
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import RefusedFileError

_NEEDLES = (b'"kind":"step"', b'"kind":"symptom"', b'"kind":"run_started"', b'"service":"trainer"')
_SLOW = "replica_slow:"  # before the name of a replica, in the id of the alert that it is slow


# Rules look at a step when its metrics were read: an alert that begins so few seconds after the end of a step is of it.
_AFTER_S = 2.0


class StepNote(msgspec.Struct, frozen=True):
    """``text``: the reason, without the step; ``level``: as of the event."""

    text: str
    level: Level


class _Event(msgspec.Struct):
    at: float
    kind: str
    text: str = ""
    level: Level = "info"
    service: str | None = None
    data: dict[str, Any] = {}


class _Span(NamedTuple):
    """When a step was made: from the step before, or the start of its trainer, to when its metrics were read."""

    begin: float
    end: float


class _Alert(msgspec.Struct):
    name: str
    note: StepNote
    began: float
    ended: float = inf


class StepNotes:
    """The notes on the steps of one run."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._lines = LineFollower(os.path.join(run_dir, "events.jsonl"))
        self._resets = self._lines.resets
        self._forget()

    def _forget(self) -> None:
        self._steps: dict[int, _Span] = {}  # in the order of steps
        self._alerts: list[_Alert] = []
        self._since = -inf  # when the step began that has not ended

    def poll(self) -> Mapping[int, tuple[StepNote, ...]]:
        """Read what is new. The notes on each step that has any; what began after the last end is of the next step.

        Raises:
            OSError: the storage failed.
        """
        with contextlib.suppress(PermissionError, RefusedFileError):
            while lines := self._lines.poll():
                if self._lines.resets != self._resets:  # written anew
                    self._resets = self._lines.resets
                    self._forget()
                for line in lines:
                    if any(needle in line for needle in _NEEDLES):
                        self._take(line)
        return self._notes()

    def _take(self, line: bytes) -> None:
        try:
            event = decode_json(line, type=_Event)
        except BAD_JSON:
            return
        step, name, what = (event.data.get(key) for key in ("step", "id", "what"))
        if event.kind == "step" and isinstance(step, int):
            # A resumed trainer repeats steps: later ones of the attempt before are no longer of the run.
            span = _Span(self._since, event.at + _AFTER_S)
            self._steps = {one: made for one, made in self._steps.items() if one < step} | {step: span}
            self._since = span.end
        elif event.kind == "symptom" and isinstance(name, str):
            if what == "new":
                self._alerts.append(_Alert(name, StepNote(event.text, event.level), event.at))
            elif what == "cleared":
                for alert in self._alerts:
                    if alert.name == name and alert.ended == inf:
                        alert.ended = event.at
        elif event.kind == "run_started":
            # Its backend looks anew: no alert of the attempt before holds in this one.
            for alert in self._alerts:
                alert.ended = min(alert.ended, event.at)
            self._since = event.at
        elif event.service == "trainer" and event.data.get("state") == "starting" and self._steps:
            # What ended its process was in a step that it makes again.
            self._since = max(self._since, event.at)

    def _notes(self) -> dict[int, tuple[StepNote, ...]]:
        found: dict[int, list[StepNote]] = {}
        going = (max(self._steps, default=0) + 1, _Span(self._since, inf))
        for step, (begin, end) in [*self._steps.items(), going]:
            for alert in self._alerts:
                if begin < alert.began <= end:
                    found.setdefault(step, []).append(alert.note)
                elif alert.name.startswith(_SLOW) and alert.began <= end and alert.ended > begin:
                    replica = alert.name.removeprefix(_SLOW)
                    found.setdefault(step, []).append(StepNote(f"{replica} was still slow", "warning"))
        return {step: tuple(notes) for step, notes in found.items()}
