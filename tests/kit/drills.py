"""Drills: a fault is done to a real run, and the alert that names it is timed and compared with everything else that
tells of it. With ``LIVERL_DRILLS_TABLE`` in the environment, each drill appends its line to that file
(``tests/bench/drills_table.py``)."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kit.cli import run_cli
from kit.runs import ToyRun
from kit.waiting import wait_until
from liverl.model import Event, Result

NAMED_S = 10.0  # seconds from its evidence until a fault is named
TABLE = "LIVERL_DRILLS_TABLE"
HEALTHY = re.compile(r'GET /health|step:\d+ - |200 OK|" 20\d')  # last lines that explain no end


@dataclass(frozen=True)
class Drill:
    """One row. ``alert``: its id; ``cause`` and ``fix``: words that its title and cause, and its fix, hold."""

    fault: str
    alert: str
    cause: tuple[str, ...]
    fix: tuple[str, ...]


@dataclass(frozen=True)
class Named:
    """The alert of a drill, as ``status --json`` shows it, and its event, so many seconds after the evidence."""

    alert: dict[str, Any]
    event: Event
    seconds: float


def named(run: ToyRun, drill: Drill, evidence_at: float, last_line: str = "") -> Named:
    """Wait for the alert of a run that goes on, and check its words and its time. ``evidence_at``: Unix time from
    which on the fault could be known; ``last_line``: of a log, which is no cause."""
    event = wait_until(lambda: _told(run, drill, evidence_at), NAMED_S + 5, f"the alert {drill.alert}")
    assert event is not None
    alert, at = _alert(run, drill), event.at
    if not _has_fix(drill, alert):  # while the rest of a process tree ends, the cause is not known yet
        with suppress(AssertionError):
            wait_until(lambda: _has_fix(drill, _alert(run, drill)), NAMED_S, "the fix")
        alert, at = _alert(run, drill), time.time()
    _check(drill, f"{event.text}\n{alert['title']}: {alert['cause']}", alert, last_line)
    seconds = at - evidence_at
    note(drill, seconds, f"{alert['title']}: {alert['cause']}", alert["fix"])
    assert seconds < NAMED_S, f"{drill.fault}: named after {seconds:.1f} s"
    return Named(alert, event, seconds)


def changed(run: ToyRun, drill: Drill, evidence_at: float) -> None:
    """As ``named``, for an alert that may stand already, since something happened before: no event tells that its
    cause is another one now."""

    def seen() -> float | None:
        found = (f"{s.title}: {s.cause}" for s in run.snapshot().symptoms if s.id == drill.alert)
        return time.time() if any(all(word in text for word in drill.cause) for text in found) else None

    at = wait_until(seen, what=f"the alert {drill.alert} with {drill.cause}")
    assert at is not None
    alert = _alert(run, drill)
    said = f"{alert['title']}: {alert['cause']}"
    _check(drill, said, alert, "")
    seconds = at - evidence_at
    note(drill, seconds, said, alert["fix"])
    assert seconds < NAMED_S, f"{drill.fault}: named after {seconds:.1f} s"


def _alert(run: ToyRun, drill: Drill) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in status(run)["symptoms"] if one["id"] == drill.alert)
    return found


def _has_fix(drill: Drill, alert: dict[str, Any]) -> bool:
    return all(word in alert["fix"] for word in drill.fix)


def ended(run: ToyRun, drill: Drill, evidence_at: float, last_line: str = "") -> Result:
    """Wait for the end of a run that a fault ends: result, alert, events, ``status --json`` and the report say the
    same sentence, in time."""
    result = run.result(60)
    cause = result.cause
    assert cause is not None and result.state == "failed", result
    events = run.events()
    failed = next(e for e in events if e.kind == "run_failed")
    told = _told(run, drill, evidence_at)
    assert told is not None, [e.text for e in events if e.kind == "symptom"]
    shown = status(run)
    alert = next(one for one in shown["symptoms"] if one["id"] == drill.alert)
    report = (run.run_dir / f"attempt_{result.attempt:03d}" / "report.md").read_text()
    flat = " ".join(report.split())
    for place, text in {
        "the event run_failed": failed.text,
        "the event of the alert": told.text,
        "the alert": alert["cause"],
        "the result of status": shown["result"]["cause"]["text"],
        "the report": flat,
    }.items():
        # an alert begins its sentence with a capital letter
        assert cause.text.lower() in text.lower(), f"{place}: {text}\nresult: {cause.text}"
    assert cause.fix.rstrip(".") in alert["fix"], "and the same fix"
    sentence = f"{cause.service} {cause.text}"
    everything = "\n".join((result.summary, cause.why, cause.fix, failed.text, told.text, flat))
    _check(drill, f"{sentence}\n{alert['title']}: {alert['cause']}", alert, last_line)
    assert not last_line or last_line not in everything
    assert not last_line or HEALTHY.search(everything) is None, everything
    seconds = max(failed.at, told.at) - evidence_at
    note(drill, seconds, sentence, alert["fix"])
    assert seconds < NAMED_S, f"{drill.fault}: named after {seconds:.1f} s"
    return result


def _check(drill: Drill, said: str, alert: dict[str, Any], last_line: str) -> None:
    assert [word for word in drill.cause if word not in said] == [], said
    assert [word for word in drill.fix if word not in alert["fix"]] == [], alert["fix"]
    everything = " ".join((said, alert["fix"], json.dumps(alert.get("evidence", []))))
    assert not last_line or last_line not in everything
    assert not last_line or HEALTHY.search(everything) is None, everything


def kill(run: ToyRun, service: str, name: str) -> tuple[float, str]:
    """Send a signal to the main process of a service; when, and the last line of its log until then."""
    pid, line = run.service(service).pid, last_line(run, service)
    assert pid is not None
    at = time.time()
    os.kill(pid, signal.Signals[f"SIG{name}"])
    return at, line


def last_line(run: ToyRun, service: str) -> str:
    """The last line of the log of a service's newest process; empty without one."""
    log = run.service(service).log
    assert log is not None
    lines = (run.run_dir / log).read_text().splitlines()
    return lines[-1] if lines else ""


def status(run: ToyRun) -> dict[str, Any]:
    """What ``status --json`` prints."""
    done = run_cli("status", "--run", run.run_dir, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def a_step(run: ToyRun) -> None:
    """Wait for a step that ends from now on."""
    before = run.snapshot().step or 0
    wait_until(lambda: (run.snapshot().step or 0) > before, what="a step")


def _told(run: ToyRun, drill: Drill, since: float) -> Event | None:
    """The first event of the alert after the evidence."""
    if drill.alert.encode() not in (run.run_dir / "events.jsonl").read_bytes():
        return None
    found = (e for e in run.events() if e.kind == "symptom" and e.at >= since)
    return next((e for e in found if e.data["id"] == drill.alert and e.data["what"] != "cleared"), None)


def note(drill: Drill, seconds: float, sentence: str, fix: str) -> None:
    """Add a line to the table, if one is wanted."""
    table = os.environ.get(TABLE)
    if table:
        with open(table, "a") as file:
            file.write(json.dumps([drill.fault, round(seconds, 2), drill.alert, sentence, fix]) + "\n")
