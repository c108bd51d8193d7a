"""What is told beside the panes: titles, toasts, last words."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from kit.screens import event, service, view

from liverl.model import BackendInfo, Cause, Result, Symptom
from liverl_tui.app.commands import answer_words
from liverl_tui.app.notifications import alerts, elsewhere, farewell, notices, title
from liverl_tui.data.verbs import CONSEQUENCES, consequence
from liverl_tui.data.view import View
from liverl_tui.term.terminal import title_sequence

HERE = BackendInfo(pid=990, started_at=0.0, host=os.uname().nodename, version="1")


def symptom(name: str, severity: Any = "critical") -> Symptom:
    return Symptom(name, severity, f"{name}!", "", "")


def result(state: Any = "done", code: int = 0, cause: str | None = None) -> Result:
    summary = f"{state}: {cause}" if cause else ""
    return Result(state, code, Cause(None, cause, 0.0) if cause else None, 20, 0.0, 1.0, summary=summary)


def linked(link: Any, **fields: Any) -> View:
    return msgspec.structs.replace(view(**fields), link=link)


def told(before: View, after: View, **more: Any) -> list[str]:
    return [n.text for n in notices(before, after, **more)]


def test_titles() -> None:
    assert title(View()) == "liverl-tui"
    assert title(view()) == "7/20 liverl/first"
    assert title(view(step=None, total_steps=300)) == "0/300 liverl/first"
    assert title(view(total_steps=None)) == "liverl/first"
    wrong = (symptom("a"), symptom("b", "warning"), symptom("c", "info"))
    assert (
        title(view(symptoms=wrong)) == "7/20 !2 liverl/first" and alerts(view(symptoms=wrong).snapshot) == 2
    )  # type: ignore[arg-type]
    assert title(linked("lost")) == "unsupervised 7/20 liverl/first"
    assert title(linked("ended", state="failed")) == "failed 7/20 liverl/first"
    assert title_sequence(title(view(run="a\x07\x1b]0;b"))).count("\x07") == 1


def test_nothing_is_new_to_who_has_just_come() -> None:
    everything = view(symptoms=(symptom("a"),))
    assert notices(View(), everything) == []
    assert notices(everything, everything) == []


def test_the_end_in_every_way() -> None:
    for it, words in (
        (result(), "run done, exit code 0; q quits"),
        (result("failed", 1, "CUDA out of memory"), "run failed: CUDA out of memory, exit code 1; q quits"),
        (result("stopped", 5, "stopped by me"), "run stopped: stopped by me, exit code 5; q quits"),
        (None, "the run has ended; q quits"),
    ):
        assert told(view(), linked("ended", result=it)) == [words]
    assert told(View(), linked("ended", result=result())) == [], "it is opened as what it is"


def test_a_failing_run_rings_once() -> None:
    failed = event(41, "the run failed: boom", "error", "trainer", kind="run_failed")
    after = msgspec.structs.replace(view(), events=(*view().events, failed))
    (notice,) = notices(view(), after)
    assert notice.bell and notice.severity == "error" and notice.text == "the run failed: boom"
    assert notices(after, after) == []


def test_many_new_symptoms_do_not_fill_the_screen() -> None:
    new = tuple(symptom(f"s{i}") for i in range(9))
    assert told(view(), view(symptoms=new)) == ["s0!", "s1!", "and 7 more"]
    assert told(view(), view(symptoms=(symptom("w", "warning"),))) == []


@pytest.mark.parametrize("before", ["live", "connecting"])
def test_a_lost_backend_and_what_can_be_done(before: Any) -> None:
    lost = msgspec.structs.replace(linked("lost", backend=HERE), why="the backend is dead")
    (text,) = told(linked(before, backend=HERE), lost)
    assert text.startswith("the backend is dead; showing the run's files. Press U to restart it")
    (text,) = told(linked(before, backend=HERE), lost, readonly=True)
    assert "U " not in text, "a read-only interface cannot"
    there = msgspec.structs.replace(HERE, host="node7")
    (text,) = told(linked(before), linked("lost", backend=there))
    assert "The backend ran on node7; restart it there" in text and "Press U" not in text


def test_a_new_backend_is_told_whoever_started_it() -> None:
    again = msgspec.structs.replace(HERE, pid=1200)
    assert told(linked("lost", backend=HERE), view(backend=again)) == [
        "the backend has been restarted (pid 1200) and has adopted the services"
    ]
    assert told(linked("connecting", backend=HERE), view(backend=HERE)) == [], "it was only silent"
    assert told(linked("ended", backend=HERE), view(backend=again, attempt=2)) == [
        "attempt 2 of this run has begun"
    ]


def test_the_last_words() -> None:
    words = farewell(linked("live"), "liverl/first", "/runs/liverl/first")
    assert (
        words == "detached; run liverl/first goes on\nto attach again: liverl-tui attach /runs/liverl/first"
    )
    words = farewell(linked("lost", backend=HERE), "liverl/first", "/runs/x")
    assert "its services may go on" in words and words.endswith("liverl-tui up --run /runs/x")
    words = farewell(linked("lost"), "liverl/first", "/runs/x")
    assert "on node1" in words and elsewhere(linked("lost").snapshot) == "node1"
    more = "its trials: liverl-tui trials ls /x/p/r   its report: liverl-tui report /x/p/r"
    assert farewell(linked("ended", result=result("failed", 137)), "r", "/x/p/r").endswith(
        f"failed, exit code 137\n{more}"
    )
    ended = msgspec.structs.replace(result("failed", 137, "killed"), resume="liverl-tui up --resume r")
    assert farewell(linked("ended", result=ended), "r", "/x/p/r") == (
        f"run r has ended: failed: killed, exit code 137\nto resume: liverl-tui up --resume r\n{more}"
    )
    assert farewell(linked("ended"), "p/r", "/x/p/r") == f"run p/r has ended\n{more}"


def test_answers_in_words() -> None:
    assert answer_words("stop run", {"text": "stopping"}) == "stop run: stopping"
    assert answer_words("restart r0", {"generation": 2, "pid": 7}) == "restart r0: done, generation 2, pid 7"
    assert answer_words("restart r0", {"generation": 2, "pid": None}) == "restart r0: done, generation 2"
    assert answer_words("stop r0", {"service": "r0", "state": "stopped"}) == "stop r0: stopped"
    assert answer_words("remove r0", {"replicas": 1, "removed": ["r0"]}).endswith("1 replica now (-r0)")
    assert answer_words("scale", {"replicas": 2}).endswith("2 replicas now (nothing changed)")
    assert answer_words("x", {}) == "x: done"


def test_every_kind_of_service_has_a_consequence() -> None:
    for kind in ("replica", "trainer", "proxy", "ray", "task"):
        for verb in ("stop", "restart"):
            text = consequence(verb, service("x", kind))
            assert text.endswith(".") and ("{" not in text)
            assert (verb, kind) in CONSEQUENCES or kind == "task"
    assert "started again (s)" in consequence("stop", service("x", "trainer"))
    assert "remove it instead (x)" in consequence("stop", service("x", "replica"))
