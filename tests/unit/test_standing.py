"""A backend that was killed leaves a snapshot that is some seconds old; its events are newer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from liverl.control.history import events_after
from liverl.diagnose.standing import standing
from liverl.diagnose.tracker import SymptomChange, words
from liverl.model import Event, Symptom
from liverl.rundir.layout import RunDir

IDLE = Symptom(
    "replica_idle:r1", "warning", "r1 is loaded but idle", "it has run no request", "look", since=50.0
)
FULL = Symptom("disk_full", "critical", "the disk is full", "0 bytes are free", "remove files", since=60.0)


def event(symptom: Symptom, what: Any, seq: int = 8, kind: str = "symptom") -> Event:
    """As a backend writes it."""
    text, level = words(SymptomChange(what, symptom), 99.0)
    more = {} if what in ("cleared", "muted") else {"fix": symptom.fix, "title": symptom.title}
    return Event(seq, 99.0, kind, text, level, data={"id": symptom.id, "what": what, **more})


@pytest.mark.parametrize(
    ("later", "found"),
    [
        ([], [IDLE]),
        ([event(IDLE, "cleared")], []),
        ([event(IDLE, "cleared"), event(IDLE, "new")], [msgspec.structs.replace(IDLE, since=99.0)]),
        ([event(FULL, "new")], [IDLE, msgspec.structs.replace(FULL, since=99.0)]),
        ([event(FULL, "new"), event(FULL, "cleared")], [IDLE]),
        (
            [event(msgspec.structs.replace(IDLE, severity="critical"), "worse")],
            [msgspec.structs.replace(IDLE, severity="critical")],
        ),
        ([event(FULL, "muted", kind="symptom_muted")], [IDLE]),
        ([Event(8, 99.0, "routes", "the list was changed", data={"id": IDLE.id, "what": "cleared"})], [IDLE]),
        ([Event(8, 99.0, "symptom", "of another version", data={"id": 5})], [IDLE]),
    ],
    ids=["nothing", "cleared", "again", "new", "come and gone", "worse", "muted", "other", "odd"],
)
def test_alerts_stand_as_the_events_tell(later: list[Event], found: list[Symptom]) -> None:
    assert list(standing([IDLE], [], later).symptoms) == found


def test_a_muted_alert_is_named_once() -> None:
    assert standing([], ["a"], [event(FULL, "muted", kind="symptom_muted")]).muted == {"a", FULL.id}


def test_only_the_events_after_a_snapshot_are_read(tmp_path: Path) -> None:
    assert events_after(tmp_path, 0) == []
    lines = [msgspec.json.encode(event(IDLE, "cleared", seq)) for seq in range(1, 6)]
    RunDir(tmp_path).events.write_bytes(b"\n".join([*lines, b'{"seq": 6, "at"']))
    assert [one.seq for one in events_after(tmp_path, 3)] == [4, 5]
    assert events_after(tmp_path, 5) == []
