"""What a run's files tell when no backend lives: its events, from ``events.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from liverl.model import Event
from liverl.rundir import RunDir


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
    from liverl.observe.history import lines_backwards

    decoder = msgspec.json.Decoder(Event)
    try:
        for line in lines_backwards(RunDir(run_dir).events):
            if b'"step"' not in line:
                continue
            try:
                event = decoder.decode(line)
            except msgspec.DecodeError:
                continue
            step = event.data.get("step")
            if event.kind == "step" and isinstance(step, int):
                return step
    except OSError:
        pass
    return None


def last_events(run_dir: Path, count: int) -> list[Event]:
    """The newest ``count`` events, oldest first. Only the end of the file is read."""
    from liverl.observe.history import lines_backwards

    decoder = msgspec.json.Decoder(Event)
    found: list[Event] = []
    try:
        for line in lines_backwards(RunDir(run_dir).events):
            if len(found) == count:
                break
            try:
                found.append(decoder.decode(line))
            except msgspec.DecodeError:
                continue
    except OSError:
        return []
    return found[::-1]
