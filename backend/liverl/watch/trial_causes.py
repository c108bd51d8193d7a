"""Why trials of a watched run failed, by the rules of ``doctor`` on their logs and exceptions. They are read again when
another trial has failed; reading takes at most about a tenth of the time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from liverl.causes.match import whole
from liverl.model import Symptom, TrialsStatus
from liverl.offline.doctor.trials import failures, of_run
from liverl.watch.verdicts import SHARE, symptom

ALERT = "trials_failed"  # it only says that trials fail, and so do rows of logs: once it is known why, that is told


class TrialCauses:
    """``run``: the directory in which the trials' paths are."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._key: object = None
        self._rest_until = 0.0
        self._found: tuple[Symptom, ...] = ()
        self.left_out: tuple[str, ...] = ()  # what of the failed trials was not read, in words

    def look(self, trials: TrialsStatus) -> tuple[Symptom, ...]:
        """The causes of the newest failures as alerts, the most frequent one first; those of the last look while no
        other trial has failed."""
        key = tuple(sorted((one.path, one.updated_at) for one in trials.newest if one.failure))
        if key == self._key or time.monotonic() < self._rest_until:
            return self._found
        began, missed, self._key = time.monotonic(), list[str](), key
        found = failures(of_run(trials, self._run), missed=missed.append) if key else ()
        since = min((one.updated_at for one in trials.newest if one.failure), default=None)
        self._found = tuple(_alert(symptom(one.explanation, ()), since) for one in found)
        self.left_out = tuple(missed)
        self._rest_until = time.monotonic() + SHARE * (time.monotonic() - began)
        return self._found


def _alert(found: Symptom, since: float | None) -> Symptom:
    return found if since is None or found.since is not None else replace(found, since=since)


def told_once(found: Iterable[Symptom], causes: Iterable[Symptom]) -> tuple[Symptom, ...]:
    """``causes``, and those of ``found`` that say more than that trials failed; all of ``found`` without a cause."""
    causes, matcher = tuple(causes), whole()
    if not causes:
        return tuple(found)
    return (
        *causes,
        *(one for one in found if ALERT not in (one.id, matcher.told_by(one.id.removeprefix("log:")))),
    )
