"""What happened in each step, from the events of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from liverl.offline.step_notes import StepNote, StepNotes
from liverl_tui.widgets.timeline.steps import mark_of

AT = 1_700_000_000.0


def write(path: Path, *events: dict[str, Any]) -> None:
    lines = (json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    with (path / "events.jsonl").open("a") as file:
        file.writelines(lines)


def step(number: int, at: float) -> dict[str, Any]:
    return {"at": AT + at, "kind": "step", "text": "", "data": {"step": number}}


def alert(name: str, at: float, what: str = "new", level: str = "warning") -> dict[str, Any]:
    return {
        "at": AT + at,
        "kind": "symptom",
        "text": f"{name}!",
        "level": level,
        "data": {"id": name, "what": what},
    }


def texts(notes: StepNotes) -> dict[int, list[str]]:
    return {at: [note.text for note in found] for at, found in notes.poll().items()}


def test_an_alert_marks_the_step_in_which_it_began(tmp_path: Path) -> None:
    notes = StepNotes(tmp_path)
    assert texts(notes) == {}
    write(tmp_path, step(1, 10), alert("kl_rises", 15), step(2, 20), {"kind": "note", "at": 1, "text": "?"})
    assert texts(notes) == {2: ["kl_rises!"]}
    write(
        tmp_path,
        alert("flat", 21, level="info"),
        step(3, 30),
        alert("kl_rises", 31, "cleared"),
        alert("late", 36),
    )
    assert texts(notes) == {2: ["kl_rises!", "flat!"], 4: ["late!"]}, "flat is of the step that was just read"


def test_a_slow_replica_marks_each_step_for_as_long_as_it_is_slow(tmp_path: Path) -> None:
    write(tmp_path, step(1, 10), alert("replica_slow:r1", 15), step(2, 20), step(3, 30), step(4, 40))
    notes = StepNotes(tmp_path)
    still = ["r1 was still slow"]
    assert texts(notes) == {2: ["replica_slow:r1!"], 3: still, 4: still, 5: still}
    write(tmp_path, alert("replica_slow:r1", 35, "cleared"))
    assert texts(notes) == {2: ["replica_slow:r1!"], 3: still, 4: still}


def test_a_repeated_step_takes_the_place_of_those_of_the_attempt_before(tmp_path: Path) -> None:
    write(tmp_path, step(1, 10), step(2, 20), step(3, 30), step(2, 60), alert("again", 65), step(3, 70))
    assert texts(StepNotes(tmp_path)) == {3: ["again!"]}


def test_events_that_cannot_be_read_are_no_notes(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"kind":"step","data":7}\n{"kind":"symptom" broken\n')
    write(tmp_path, alert("real", 5))
    assert texts(StepNotes(tmp_path)) == {1: ["real!"]}


def test_the_worst_note_gives_the_sign() -> None:
    assert mark_of(()) == (" ", "text")
    found = [StepNote("a", "info"), StepNote("b", "error"), StepNote("c", "warning")]
    assert mark_of(found) == ("✖", "bad")
    assert mark_of(found[2:]) == ("▲", "warn")
