"""What a run's files tell when no backend lives: its events, from ``events.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from liverl.model import Event
from liverl.rundir.layout import RunDir
from liverl.util.backward_lines import lines_backwards


def read_events(run_dir: Path, from_seq: int = 0) -> Iterator[Event]:
    """The events after ``from_seq``, oldest first. A line cut short (crash, full disk) is passed over."""
    decoder = msgspec.json.Decoder(Event)
    try:
        file = RunDir(run_dir).events.open("rb")
    except OSError:
        return
    with file:
        for line in file:
            try:
                event = decoder.decode(line)
            except msgspec.DecodeError:
                continue
            if event.seq > from_seq:
                yield event


def last_step_told(run_dir: Path) -> int | None:
    """The step of the newest event that told one."""
    try:
        steps = (event.data.get("step") for event in _newest_first(run_dir) if event.kind == "step")
        return next((step for step in steps if isinstance(step, int)), None)
    except OSError:
        return None


def last_events(run_dir: Path, count: int) -> list[Event]:
    """The newest ``count`` events, oldest first. Only the end of the file is read."""
    try:
        return list(islice(_newest_first(run_dir), count))[::-1]
    except OSError:
        return []


def _newest_first(run_dir: Path) -> Iterator[Event]:
    """The events from the end of the file on, as far as they are wanted. Raises OSError."""
    decoder = msgspec.json.Decoder(Event)
    for line in lines_backwards(RunDir(run_dir).events):
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            continue
