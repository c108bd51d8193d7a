"""Every reader of a run without a backend shows the alerts that its events left, not those of its last snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from kit.cli import run_cli
from kit.ended_runs import a_run
from msgspec.structs import replace

from liverl.control.messages import BackendOfOther
from liverl.diagnose.tracker import SymptomChange, words
from liverl.model import Event, Symptom
from liverl.offline import compare, present
from liverl.offline.recorded import LAST_LOOK, recorded
from liverl.offline.run import OfflineRun
from liverl.offline.run_report import RunReport
from liverl.offline.state import snapshot
from liverl.rundir.layout import RunDir, hostname
from liverl.snapshot_json import encode_snapshot

IDLE = Symptom("replica_idle:r1", "warning", "r1 is idle", "it has run no request", "look", since=50.0)
LATE = Symptom("replica_late:r2", "warning", "r2 is late", "it loads for 9 minutes", "look at it", since=60.0)
SEQ = 3  # the last event that the snapshot knows


def told(symptom: Symptom, what: str, seq: int) -> Event:
    """As a backend writes it."""
    text, level = words(SymptomChange(what, symptom), 170.0)  # type: ignore[arg-type]
    more = {} if what == "cleared" else {"fix": symptom.fix, "title": symptom.title}
    return Event(seq, 170.0, "symptom", text, level, data={"id": symptom.id, "what": what, **more})


def lost(root: Path, *, attempt: int = 1, result: bool = False) -> RunDir:
    """A run whose backend was killed: an alert of its snapshot was over then, and another one had begun. ``attempt``: 2
    is one whose backend has written no snapshot."""
    run = RunDir(a_run(root, "lost"))
    last = run.read_snapshot()
    assert last is not None
    state = "done" if result else "running"
    run.snapshot.write_bytes(
        encode_snapshot(replace(last, seq=SEQ, symptoms=(IDLE,), state=state))  # type: ignore[arg-type]
    )
    events = [told(IDLE, "new", 2), told(IDLE, "cleared", SEQ + 1)]
    if attempt == 2:
        old = replace(LATE, id="replica_late:r9")
        events += [told(old, "new", SEQ + 2), Event(SEQ + 3, 171.0, "run_started", "run started")]
        run.journal.write_text(json.dumps({"k": "attempt", "n": 2, "at": 171.0, "era": "x"}) + "\n")
    events.append(told(LATE, "new", SEQ + 4))
    run.events.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    if not result:
        run.result.unlink()
    return run


def of_status(run: RunDir) -> Iterator[Symptom]:
    printed = run_cli("status", "--json", "--run", run.path)
    yield from msgspec.convert(json.loads(printed.stdout)["symptoms"], list[Symptom])


def of_another_user(run: RunDir) -> Iterator[Symptom]:
    """The backend lives, and does not answer this user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(present, "Connection", refuses)
        state, live = present.present(run)
    assert state is not None and live
    yield from state.symptoms


def refuses(_: Path) -> None:
    raise BackendOfOther("of another user")


def of_poll(run: RunDir) -> Iterator[Symptom]:
    state = OfflineRun(run.path).poll()
    assert state is not None
    yield from state.symptoms


def of_recorded(run: RunDir) -> Iterator[Symptom]:
    state = recorded(run)
    assert state is not None
    yield from state.symptoms


def of_report(run: RunDir) -> Iterator[Symptom]:
    run.report(1).write_text("# done\n")
    state = RunReport(run, 1).state
    assert state is not None
    yield from state.symptoms


def of_comparison(run: RunDir) -> Iterator[Symptom]:
    state = compare._snapshot(run, [])
    assert state is not None
    yield from state.symptoms


READERS: dict[str, Callable[[RunDir], Iterator[Symptom]]] = {
    "status": of_status,
    "present, of another user": of_another_user,
    "attach": of_poll,
    "recorded": of_recorded,
    "report": of_report,
    "compare": of_comparison,
    "scripts": lambda run: iter(snapshot(run.path).symptoms),
}


@pytest.mark.parametrize("result", [False, True], ids=["lost", "ended"])
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_shows_an_alert_that_was_over(tmp_path: Path, reader: str, result: bool) -> None:
    (alert,) = READERS[reader](lost(tmp_path, result=result))
    cause = alert.cause.removesuffix(f" ({LAST_LOOK})").removesuffix(".")
    assert replace(alert, cause=cause) == replace(LATE, since=170.0)


def test_of_an_attempt_without_a_snapshot_the_alerts_are_those_of_its_events(tmp_path: Path) -> None:
    run = lost(tmp_path, attempt=2)
    assert [alert.id for alert in of_poll(run)] == [LATE.id]
    assert [alert.id for alert in of_recorded(run)] == ["replica_late:r9"], "as the attempt before it ended"


@pytest.mark.parametrize("end", ["", "the run failed: trainer: the disk is full"], ids=["killed", "ending"])
def test_why_a_run_without_a_result_was_ending_is_told_by_its_events(tmp_path: Path, end: str) -> None:
    """The disk was full, so that the result could not be written: it read as if the backend had crashed."""
    run = lost(tmp_path)
    last = run.read_snapshot()
    assert last is not None
    run.snapshot.write_bytes(encode_snapshot(replace(last, backend=replace(last.backend, host=hostname()))))
    if end:
        with run.events.open("ab") as file:
            file.write(msgspec.json.encode(Event(99, 180.0, "run_failed", end, "error")) + b"\n")
    state = OfflineRun(run.path).poll()
    assert state is not None and state.phase.startswith(f"{end}; backend died " if end else "backend died ")
    assert ("before it could write the result" in state.phase) == bool(end)
    (listed,) = json.loads(run_cli("ls", "--json", "--run-root", tmp_path).stdout)
    assert (listed["state"], listed["cause"]) == ("lost", end)
    waited = run_cli("wait", "--run", run.path)
    assert waited.returncode == 4
    assert f"; {end}; none of its services is left" in waited.stderr or not end
