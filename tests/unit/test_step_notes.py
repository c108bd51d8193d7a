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


def begun(at: float, attempt: int) -> dict[str, Any]:
    return {"at": AT + at, "kind": "run_started", "text": "", "data": {"attempt": attempt}}


def trainer(state: str, at: float) -> dict[str, Any]:
    return {"at": AT + at, "kind": "state", "text": "", "service": "trainer", "data": {"state": state}}


def test_no_alert_of_an_earlier_attempt_marks_a_step_of_this_one(tmp_path: Path) -> None:
    notes = StepNotes(tmp_path)
    write(
        tmp_path,
        begun(0, 1),
        alert("boot", 1),
        trainer("starting", 2),
        *(step(n, 10.0 * n) for n in (1, 2, 3)),
    )
    write(tmp_path, alert("killed", 35), alert("replica_slow:r1", 36))
    assert texts(notes) == {1: ["boot!"], 4: ["killed!", "replica_slow:r1!"]}
    # without a checkpoint: it begins at step 1
    write(tmp_path, begun(100, 2), trainer("starting", 101))
    write(tmp_path, step(1, 110), alert("own", 115), step(2, 120))
    assert texts(notes) == {2: ["own!"]}
    assert texts(StepNotes(tmp_path)) == {2: ["own!"]}
    # from the checkpoint of step 1
    write(tmp_path, alert("stopped", 125), begun(200, 3), alert("again", 202), trainer("starting", 203))
    write(tmp_path, step(2, 210))
    assert texts(notes) == {}


def test_no_alert_of_a_step_that_is_made_again_marks_it(tmp_path: Path) -> None:
    write(tmp_path, begun(0, 1), trainer("starting", 2), step(1, 10), step(2, 20), alert("kl_rises", 25))
    write(tmp_path, step(3, 30), alert("killed", 35), trainer("failed", 35), trainer("starting", 36))
    write(tmp_path, step(2, 40), alert("own", 45), step(3, 50))
    assert texts(StepNotes(tmp_path)) == {3: ["own!"]}
