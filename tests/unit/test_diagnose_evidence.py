"""Places in logs: as evidence names them, and the one at which a failed run's log is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kit.screens import service, view

from liverl.diagnose.evidence import LogPlace, failure_place, log_line, log_place
from liverl.model import Cause, Result, Snapshot, Symptom

LOG = "attempt_002/logs/my.trainer.1.log"
RESULT = Result("failed", 1, Cause("trainer", "ValueError: x", 5.0, LOG, 2008), 3, 0.0, 9.0)


def test_a_place_is_read_as_it_was_written():
    assert log_place(["trainer: exit 1", log_line(LOG, 2008, "at byte 3: x")]) == ("my.trainer", LOG, 2008)
    assert log_place([log_line(LOG, None, "x")]) == ("my.trainer", LOG, None)


@pytest.mark.parametrize(
    "line",
    [
        "trials/step_0007/sort-1",
        "r1: ready, 0 running",
        "said attempt_001/logs/x.1.log at byte 3: y",
        "attempt_001/logs/../x/y.1.log at byte 3: y",
        "attempt_001/logs/x.1.log is missing",
        "attempt_001/logs/x.1.log at byte -1: y",
    ],
)
def test_other_evidence_names_no_place(line):
    assert log_place([line]) is None


def snapshot(state: str, **fields: Any) -> Snapshot:
    made = view(
        services=(
            service("replica-0", "replica", "failed", since=20.0),
            service("trainer", "trainer", "failed", since=10.0),
            service("proxy", "proxy", "stopped"),
        )
    ).snapshot
    assert made is not None
    return msgspec.structs.replace(made, state=state, **fields)


def test_the_result_names_the_line_of_a_failed_run():
    assert failure_place(snapshot("failed", result=RESULT)) == LogPlace("trainer", LOG, 2008)


def test_before_there_is_a_result_the_first_failed_service_is_it():
    path = "attempt_001/logs/trainer.1.log"
    assert failure_place(snapshot("stopping")) == LogPlace("trainer", path)
    alert = Symptom("service_failed:trainer", "critical", "t", "c", "f", (log_line(path, 7, "x"),))
    assert failure_place(snapshot("stopping", symptoms=(alert,))) == LogPlace("trainer", path, 7)


def test_a_cause_without_a_line_leads_to_the_end_of_its_service_and_of_no_other():
    path = "attempt_001/logs/replica-0.1.log"
    killed = msgspec.structs.replace(RESULT, cause=Cause("replica-0", "killed by SIGKILL", 5.0))
    assert failure_place(snapshot("failed", result=killed)) == LogPlace("replica-0", path)
    run = msgspec.structs.replace(RESULT, cause=Cause(None, "no space left", 5.0))
    assert failure_place(snapshot("failed", result=run)) is None


@pytest.mark.parametrize("state", ["starting", "running", "done", "stopped", "dead"])
def test_a_run_that_did_not_fail_has_none(state):
    assert failure_place(snapshot(state, result=RESULT if state == "running" else None)) is None
