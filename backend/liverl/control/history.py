"""The events of a run from ``events.jsonl``, for a run without a backend."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path

from liverl.model import Event
from liverl.rundir.layout import RunDir
from liverl.util.backward_lines import lines_backwards
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder
from liverl.util.regular_file import open_binary

STARTED = "run_started"  # the event that begins an attempt
_VERDICTS = ("run_failed", "run_unfinished", "run_done")  # what a run is about to end as
READY = "run_ready"  # all services that the run needs were ready for the first time in the attempt


def read_events(run_dir: Path, from_seq: int = 0) -> Iterator[Event]:
    """The events after ``from_seq``, oldest first. Incomplete lines (after a crash or on a full disk) are skipped; no
    events if the file cannot be opened."""
    decoder = JsonDecoder(Event)
    try:
        file = open_binary(RunDir(run_dir).events)
    except OSError:
        return
    with file:
        for line in file:
            try:
                event = decoder.decode(line)
            except BAD_JSON:
                continue
            if event.seq > from_seq:
                yield event


def was_ready(run_dir: Path) -> bool:
    """Whether the newest attempt has been ready once, as far as its events say."""
    try:
        kinds = (event.kind for event in _newest_first(run_dir))
        return next((kind for kind in kinds if kind in (READY, STARTED)), None) == READY
    except OSError:
        return False


def last_step_told(run_dir: Path) -> int | None:
    """The number of the newest step that an event reports; None if there is none."""
    try:
        steps = (event.data.get("step") for event in _newest_first(run_dir) if event.kind == "step")
        return next((step for step in steps if isinstance(step, int)), None)
    except OSError:
        return None


def end_told(run_dir: Path) -> str:
    """Why the newest attempt has begun to end, as its events tell it: ``the run failed: trainer: exit 1``; "" if none
    does."""
    told = (event.text for event in reversed(events_of_attempt(run_dir)) if event.kind in _VERDICTS)
    return next(told, "")


def last_events(run_dir: Path, count: int) -> list[Event]:
    """The newest ``count`` events, oldest first. Only the end of the file is read. Empty if it cannot be read."""
    try:
        return list(islice(_newest_first(run_dir), count))[::-1]
    except OSError:
        return []


def events_after(run_dir: Path, seq: int) -> list[Event]:
    """The events after that one, oldest first. Only the end of the file is read. Empty if it cannot be read."""
    try:
        return list(takewhile(lambda event: event.seq > seq, _newest_first(run_dir)))[::-1]
    except OSError:
        return []


def events_of_attempt(run_dir: Path) -> list[Event]:
    """The events of the newest attempt, oldest first. Only the end of the file is read. Empty if it cannot be read."""
    try:
        return list(takewhile(lambda event: event.kind != STARTED, _newest_first(run_dir)))[::-1]
    except OSError:
        return []


def _newest_first(run_dir: Path) -> Iterator[Event]:
    """The events, newest first, read from the end of the file as they are consumed. Raises OSError."""
    decoder = JsonDecoder(Event)
    for line in lines_backwards(RunDir(run_dir).events):
        try:
            yield decoder.decode(line)
        except BAD_JSON:
            continue
