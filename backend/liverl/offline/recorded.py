"""The last state that the files of a run record. A backend writes its snapshot every few seconds and its events at
once: what they tell after it is newer. Every reader of alerts without a backend takes them from here."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import msgspec

from liverl.control.history import STARTED, events_after, events_of_attempt
from liverl.diagnose.standing import standing
from liverl.model import Snapshot, Symptom
from liverl.rundir.layout import RunDir

LAST_LOOK = "as of the backend's last look"  # of an alert that nothing has judged since


def recorded(run: RunDir) -> Snapshot | None:
    """The last snapshot, with the alerts that stand after the events that follow it; None if none can be read."""
    last = run.read_snapshot()
    return None if last is None else msgspec.structs.replace(last, symptoms=newest_alerts(run.path, last))


def newest_alerts(run_dir: Path, last: Snapshot | None) -> tuple[Symptom, ...]:
    """The alerts of the attempt of ``last``, muted ones apart. None: it has left no snapshot, and is the newest."""
    if last is None:
        return standing((), (), events_of_attempt(run_dir)).symptoms
    later = takewhile(lambda event: event.kind != STARTED, events_after(run_dir, last.seq))
    return standing(last.symptoms, (), later).symptoms
