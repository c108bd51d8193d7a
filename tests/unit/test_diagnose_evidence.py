"""Places in logs: as evidence names them, and the one at which a failed run's log is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kit.screens import service, view

from liverl.diagnose.evidence import BEGINNING, LogPlace, failure_place, log_place, proving_lines
from liverl.model import Cause, Evidence, Result, Snapshot, Symptom

LOG = "attempt_002/logs/my.trainer.1.log"
RESULT = Result("failed", 1, Cause("trainer", "ValueError: x", 5.0, LOG, 2008), 3, 0.0, 9.0)


def test_the_first_log_of_a_service_is_the_place():
    exit_ = Evidence("trainer: exit 1")
    assert log_place([exit_, Evidence("x", LOG, 2008)]) == ("my.trainer", LOG, 2008)
    assert log_place([exit_, Evidence("", LOG), Evidence("x", LOG, 1)]) == ("my.trainer", LOG, None)


@pytest.mark.parametrize(
    "log",
    [
        None,
        "",
        "trials/_unattributed/litellm-trajectory.jsonl",
        "/attempt_001/logs/x.1.log",
        "ray/attempt_001/logs/x.1.log",
        "attempt_001/logs/../x/y.1.log",
        "attempt_001/trials/x.1.log",
        "attempt_001/logs/x.1.txt",
        "attempt_001/logs/x.log",
        "attempt_001/logs/.1.log",
        "attempt_001/logs/x.y.log",
    ],
)
def test_other_evidence_names_no_place(log):
    assert log_place([Evidence(f"{LOG} at byte 3: y", log, 3)]) is None


def test_the_words_of_evidence_say_where_it_stands():
    assert Evidence("r1: exit 1", value=1.0).words == "r1: exit 1"
    assert Evidence("x", LOG, 0).words == f"{LOG} at byte 0: x"
    assert (Evidence("", LOG).words, Evidence("x", LOG).words) == (LOG, f"x; log: {LOG}")


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
    alert = Symptom("service_failed:trainer", "critical", "t", "c", "f", (Evidence("x", path, 7),))
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


def test_the_lines_that_prove_something_are_known_by_their_beginning() -> None:
    long = Evidence("w" * 300, LOG, 7)
    cause = Cause(
        "trainer", "x", 5.0, evidence=(Evidence("ValueError: x", LOG, 3), Evidence("trainer exited", LOG))
    )
    result = msgspec.structs.replace(RESULT, cause=cause)
    again = Symptom(
        "a",
        "critical",
        "t",
        "c",
        "f",
        (Evidence("ValueError: x", LOG, 3), long, Evidence("no log"), Evidence("^", LOG, 9)),
    )
    shown = view(symptoms=(again,), result=result).snapshot
    assert proving_lines(shown) == ("ValueError: x", "w" * BEGINNING), (
        "each once, and none that fits everywhere"
    )
    assert proving_lines(None) == ()
