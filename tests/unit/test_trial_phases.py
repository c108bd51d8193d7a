"""Phases of trials: what each file tells of them, what a trial waits for, and what a step says of all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.trial_folders import FILE, T, call, lines, put

from liverl.model import PhaseTimes, SlowTrial, StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.cut_off import cut_off
from liverl.observe.trials.moments import moment
from liverl.observe.trials.phases import (
    SILENT,
    Busy,
    Phases,
    phases_of,
    seen_by_sessions,
    slowness,
    spent_on,
    waits_for,
)
from liverl.observe.trials.scanner import LineReader, TrialScanner
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import Trial

HARBOR = Path(__file__).parents[1] / "data" / "harbor"


def span(begin: float, end: float | None) -> dict[str, Any]:
    return {"started_at": T + begin, "finished_at": None if end is None else T + end}


def harbor(**more: Any) -> dict[str, Any]:
    return {
        "started_at": T,
        "finished_at": T + 60,
        "environment_setup": span(1, 9),
        "agent_setup": span(9, 12),
        "agent_execution": span(12, 50),
        "verifier": span(51, 56),
        **more,
    }


WHOLE = {"setup": 11.0, "agent": 38.0, "verifier": 5.0}


@pytest.mark.parametrize(
    ("result", "begun", "queued_at", "expected"),
    [
        (harbor(), {}, None, Phases(WHOLE, "verifier", T + 51)),
        (harbor(), {}, T - 20, Phases({"queue": 21.0, **WHOLE}, "verifier", T + 51)),
        # what the runner told while it ran does not count beside Harbor's own times
        (harbor(), {"setup": T + 5}, None, Phases(WHOLE, "verifier", T + 51)),
        # an error in the setup of the sandbox: nothing else began
        (
            harbor(environment_setup=span(1, 31), agent_setup=None, agent_execution=None, verifier=None),
            {}, None, Phases({"setup": 30.0}, "setup", T + 1),
        ),
        # the agent's time was over, and the verifier ran nevertheless: the error is the agent's
        (
            harbor(exception_info={"exception_type": "AgentTimeoutError", "occurred_at": T + 50}),
            {}, None, Phases(WHOLE, "agent", T + 12),
        ),
        # a phase that has no end goes on until the trial's
        (harbor(verifier=span(51, None)), {}, None, Phases({**WHOLE, "verifier": 9.0}, "verifier", T + 51)),
        # ... but one in the middle is not known
        (harbor(agent_setup=span(9, None)), {}, None, Phases({"agent": 38.0, "verifier": 5.0}, "verifier", T + 51)),
        # a clock that was set back
        (harbor(verifier=span(51, 40)), {}, None, Phases({**WHOLE, "verifier": 0.0}, "verifier", T + 51)),
        # a task of several steps has the times in them
        (
            harbor(agent_execution=None, verifier=None, step_results=[
                {"agent_execution": span(12, 20), "verifier": span(20, 22)},
                {"agent_execution": span(22, 40), "verifier": span(40, 41)}, "x",
            ]),
            {}, None, Phases({"setup": 11.0, "agent": 26.0, "verifier": 3.0}, "verifier", T + 20),
        ),
        # ... unless it has times of its own, which are those of all steps
        (harbor(step_results=[{"agent_execution": span(12, 20)}]), {}, None, Phases(WHOLE, "verifier", T + 51)),
        # one of ours that Harbor did not run
        ({"ended_by": "submit", "started_at": T, "finished_at": T + 7}, {}, T - 2,
         Phases({"queue": 2.0, "agent": 7.0}, "agent", T)),
        # Harbor's process was lost: the result is ours, and the phases are those that it told
        (
            {"ended_by": "exception", "started_at": T - 1, "finished_at": T + 30},
            {"setup": T, "agent": T + 10}, T - 5, Phases({"queue": 5.0, "setup": 10.0, "agent": 20.0}, "agent", T + 10),
        ),
        # while it runs
        (None, {}, None, Phases()),
        (None, {}, T, Phases()),
        (None, {"setup": T}, None, Phases({}, "setup", T)),
        (None, {"setup": T, "agent": T + 3, "verifier": T + 9}, T - 1,
         Phases({"queue": 1.0, "setup": 3.0, "agent": 6.0}, "verifier", T + 9)),
        (None, {"setup": "x", "agent": None, "other": T}, None, Phases()),
        # nothing of the kind
        ({}, {}, None, Phases()),
        ({"environment_setup": [1], "agent_execution": {"started_at": True}}, {}, None, Phases()),
        ({"exception_info": "x", "verifier": span(0, 1)}, {}, None, Phases({"verifier": 1.0}, "verifier", T)),
    ],
)  # fmt: skip
def test_phases_by_what_the_files_say(
    result: dict[str, Any] | None, begun: dict[str, Any], queued_at: float | None, expected: Phases
) -> None:
    assert phases_of(result, begun, queued_at) == expected


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (T, T), (T * 1000, T), ("2027-01-15T08:00:00Z", T), (5, None), (True, None), (None, None), ([], None),
        ("9999-12-31T00:00:00Z", None), (1e300, None), (float("nan"), None), ("soon", None),
    ],
)  # fmt: skip
def test_points_in_time(value: object, at: float | None) -> None:
    assert moment(value) == at


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_time_in_which_a_call_is_in_flight_counts_once(calls: list[tuple[int, int]]) -> None:
    busy = Busy()
    for began, seconds in calls:
        busy.add(float(began), float(seconds))
    covered = {second for began, seconds in calls for second in range(began, began + seconds)}
    assert (busy.total or 0.0) == len(covered)
    assert (busy.total is None) == (not calls)


@pytest.mark.parametrize(("began", "seconds"), [(None, 1.0), (T, None), (T, -1.0), (T, 1e10)])
def test_a_call_without_times_counts_for_nothing(began: float | None, seconds: float | None) -> None:
    busy = Busy()
    busy.add(began, seconds)
    assert busy.total is None


@pytest.mark.parametrize(
    ("seconds", "model", "expected"),
    [
        ({}, None, ""), ({}, 3.0, ""), ({"setup": 0.0}, None, ""),
        ({"setup": 9.0, "agent": 8.0}, None, "sandbox"), ({"setup": 7.0, "agent": 8.0}, None, "agent"),
        ({"agent": 8.0, "verifier": 3.0}, 6.0, "model"), ({"agent": 8.0, "verifier": 3.0}, 1.0, "tool"),
        ({"agent": 8.0, "verifier": 9.0}, 99.0, "verifier"), ({"queue": 9.0, "agent": 8.0}, 8.0, "queue"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("more", "rest"),
    [
        ({"kind": "task", "tool_calls": 1}, "tool"), ({"kind": "", "turns": 2}, "tool"),
        ({"kind": "command", "turns": 3}, "agent"), ({"kind": "python", "turns": 3}, "agent"),  # a program of its own
        ({"kind": "command", "turns": 3, "tool_calls": 1}, "tool"), ({"kind": "harbor", "turns": 3}, "tool"),
        ({"kind": "task", "turns": 1}, "agent"),  # who does nothing waits for no tool
        ({"kind": "chat", "turns": 1}, "reward"), ({"kind": "chat", "turns": 5}, "reward"),  # it has no tools
    ],
)  # fmt: skip
def test_what_most_of_the_time_went_to(
    seconds: dict[str, float], model: float | None, expected: str, more: dict[str, Any], rest: str
) -> None:
    ended = head(**{"state": "finished", "phases": seconds, "model_seconds": model, **more})
    assert spent_on(ended) == (rest if expected == "tool" else expected)


def head(name: str = "a", **more: Any) -> TrialHead:
    values: dict[str, Any] = {
        "name": name, "step": 1, "task": "t", "state": "running", "turns": 0, "tool_calls": 0, "reward": None,
        "finish_reason": None, "completion_tokens": 0, "replica": None, "started_at": T, "updated_at": T,
        "path": f"trials/step_0001/{name}",
    }  # fmt: skip
    return TrialHead(**{**values, **more})


@pytest.mark.parametrize(
    ("more", "silent", "expected"),
    [
        ({"phase": "setup"}, None, "sandbox"), ({"phase": "verifier"}, frozenset(), "verifier"),
        ({"phase": "queue"}, None, "queue"), ({"phase": "agent"}, None, ""), ({}, None, ""),
        ({"phase": "agent", "rewrites": 0}, frozenset({"a"}), "tool"),
        ({"phase": "agent", "rewrites": 0}, frozenset({"b"}), "model"),
        ({"kind": "command", "rewrites": 0}, frozenset({"a"}), "agent"),  # a program that called no tool
        ({"kind": "command", "rewrites": 0, "tool_calls": 1}, frozenset({"a"}), "tool"),
        ({"phase": "agent"}, frozenset({"a"}), ""),  # through no session
        ({"rewrites": 0}, frozenset({"a"}), "tool"),  # one of ours
        ({"rewrites": 0}, None, ""),
        ({"state": "finished", "phase": "verifier"}, frozenset(), ""),
        ({"state": "cut_off", "phase": "setup"}, None, ""),
    ],
)  # fmt: skip
def test_what_a_trial_waits_for(more: dict[str, Any], silent: frozenset[str] | None, expected: str) -> None:
    assert waits_for(head(**more), silent) == expected


def test_sessions_tell_what_trials_and_the_slowest_of_a_step_wait_for() -> None:
    heads = (head("a", rewrites=0), head("b", rewrites=0), head("c", state="finished", rewrites=0))
    slow = tuple(SlowTrial(one.name, one.path, one.state, one.started_at) for one in heads)
    trials = TrialsStatus(3, 2, 1, newest=heads, steps=(StepTrials(1, 3, 1, 0, None, slowest=slow),))
    seen = seen_by_sessions(trials, ["b", "x"], 2)
    assert [one.waits_for for one in seen.newest] == ["model", "tool", ""]
    assert [one.waits_for for one in seen.steps[0].slowest] == ["model", "tool", ""]
    # As many silent sessions as are reported at most: others may be silent as well.
    assert seen_by_sessions(trials, ["b"], SILENT) is trials
    over = cut_off(seen)
    assert [(one.state, one.waits_for) for one in over.newest] == [
        ("cut_off", ""),
        ("cut_off", ""),
        ("finished", ""),
    ]
    assert [(one.state, one.waits_for) for one in over.steps[0].slowest] == [
        ("cut_off", ""), ("cut_off", ""), ("finished", ""),
    ]  # fmt: skip


def slow(name: str, state: Any, started: float | None, seconds: float | None) -> SlowTrial:
    return SlowTrial(name, name, state, started, seconds)


def test_running_trials_are_the_slowest_the_oldest_first() -> None:
    trials = [
        slow("short", "finished", T, 3.0), slow("new", "running", T + 9, None), slow("long", "finished", T, 30.0),
        slow("unknown", "running", None, None), slow("old", "running", T, None), slow("cut", "cut_off", T, 20.0),
    ]  # fmt: skip
    assert [one.name for one in sorted(trials, key=slowness)] == [
        "old",
        "new",
        "unknown",
        "long",
        "cut",
        "short",
    ]


class Folder:
    def __init__(self, root: Path) -> None:
        self.root, self.trial = root, Trial(str(root / "trials"), "step_0001/a", 1)
        self.path = root / "trials" / "step_0001" / "a"
        self.path.mkdir(parents=True)

    def put(self, name: str, document: object, at: float) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        put(self.path / name, text, at)
        os.utime(self.path, (at, at))

    def head(self, now: float) -> TrialHead:
        assert self.trial.check(LineReader(), now)
        return self.trial.head()


def test_a_trial_of_harbors_from_its_queue_to_its_end(tmp_path: Path) -> None:
    one = Folder(tmp_path)
    facts = {"step": 1, "task": "t", "agent": "harbor", "queued_at": T - 5}
    one.put("liverl.json", facts, T)
    assert (one.head(T).phase, one.head(T).phases, one.head(T).waits_for) == (None, {}, "")
    one.put("phases.json", {"setup": T + 1}, T + 1)
    found = one.head(T + 1)
    assert (found.phase, found.phase_since, found.phases) == ("setup", T + 1, {"queue": 6.0})
    assert found.waits_for == "sandbox"
    one.put("phases.json", {"setup": T + 1, "agent": T + 12}, T + 12)
    first, again = call(request_time=T + 13, duration_ms=4000), call(request_time=T + 20, duration_ms=6000)
    one.put(FILE, lines(first, again), T + 26)
    found = one.head(T + 30)
    assert (found.phase, found.phases, found.model_seconds) == ("agent", {"queue": 6.0, "setup": 11.0}, 10.0)
    assert (found.waits_for, found.spent_on) == ("", "")
    one.put("phases.json", {"setup": T + 1, "agent": T + 12, "verifier": T + 51}, T + 51)
    assert one.head(T + 52).waits_for == "verifier"
    told = {
        "verifier_result": {"rewards": {"reward": 0.5, "style": 2}},
        "ended_by": "exit",
        "started_at": T - 1,
    }
    one.put("result.json", harbor(), T + 60)
    one.put("liverl.json", {**facts, "result": {**told, "finished_at": T + 60}}, T + 61)
    found = one.head(T + 70)
    assert (found.state, found.phases, found.phase) == ("finished", {"queue": 6.0, **WHOLE}, "verifier")
    assert (found.rewards, found.reward, found.error) == ({"reward": 0.5, "style": 2.0}, 0.5, "")
    assert (found.waits_for, found.spent_on) == ("", "tool")  # 10 of the agent's 38 s were the model's
    page = read_trajectory(one.path)
    assert (page.phases.seconds, page.model_seconds) == (found.phases, 10.0)
    assert "phases.json" not in [file.name for file in page.files]


def test_files_of_phases_that_are_none_say_nothing(tmp_path: Path) -> None:
    for text in ("", "[1]", "{", '{"setup": "x"}', "\0" * 100, '{"setup": ' + "[" * 100_000):
        one = Folder(tmp_path / str(len(text)))
        one.put("phases.json", text, T)
        assert (one.head(T).phase, one.head(T).phases) == (None, {})
    large = Folder(tmp_path / "large")
    large.put("phases.json", json.dumps({"setup": T, "x": "y" * 70_000}), T)
    assert large.head(T).phase is None and large.trial.unreadable["phases.json"]


@pytest.mark.parametrize(
    ("folder", "phases", "last"),
    [
        ("trial-api/step_0001/hello-0a1b2c3d", {"setup", "agent", "verifier"}, "verifier"),
        ("trial-terminus-2/hello-t2", {"setup", "agent", "verifier"}, "verifier"),
        ("job-rewardfile-missing/hello__bqFX82c", {"setup", "agent", "verifier"}, "verifier"),
    ],
)
def test_recorded_trials_of_harbors(folder: str, phases: set[str], last: str) -> None:
    root, _, name = folder.partition("/")
    trial = Trial(str(HARBOR / root), name, None)
    assert trial.check(LineReader(), T * 2)
    found = trial.head()
    assert set(found.phases) == phases and found.phase == last
    result = json.loads((HARBOR / folder / "result.json").read_text())
    took = (moment(result["finished_at"]) or 0) - (moment(result["started_at"]) or 0)
    assert 0 < sum(found.phases.values()) <= took
    assert found.error == ((result["exception_info"] or {}).get("exception_type") or "")
    assert found.spent_on


def step_of(root: Path, trials: Iterable[tuple[str, dict[str, Any] | None]], now: float) -> StepTrials:
    for name, result in trials:
        folder = root / "trials" / "step_0001" / name
        put(folder / FILE, lines(call(request_time=T)), T)
        if result is not None:
            put(folder / "result.json", json.dumps(result), T + 60)
    status = TrialScanner(root).scan(60.0, now)
    return status.steps[0]


def test_a_head_can_be_remembered_by_what_it_says() -> None:
    one = head(phases={"setup": 1.0}, rewards={"reward": 1.0})
    assert hash(one) == hash(head(phases={"setup": 1.0}, rewards={"reward": 1.0}))
    assert {one: 1}.get(head(phases={"setup": 2.0}, rewards={"reward": 1.0})) is None


def test_a_step_sums_up_its_trials(tmp_path: Path) -> None:
    def failed(kind: str, at: float, **more: Any) -> dict[str, Any]:
        return harbor(exception_info={"exception_type": kind, "occurred_at": T + at}, **more)

    none = {"agent_setup": None, "agent_execution": None, "verifier": None}
    trials = [
        ("a", harbor(finished_at=T + 50)),
        ("b", failed("AgentTimeoutError", 50)),
        ("c", failed("EnvironmentStartTimeoutError", 40, environment_setup=span(1, 41), **none)),
        ("d", failed("EnvironmentStartTimeoutError", 20, environment_setup=span(1, 21), **none)),
        ("e", None),
    ]
    for now in (T + 61, T + 600):  # before and after the finished ones are counted for good
        step = step_of(tmp_path, trials, now)
        assert step.ended_by == {"AgentTimeoutError": 1, "EnvironmentStartTimeoutError": 2}
        assert step.failed_in == {"agent": 1, "setup": 2}
        assert step.phases == {
            "setup": PhaseTimes(4, (11 + 11 + 40 + 20) / 4, 40.0),
            "agent": PhaseTimes(2, 38.0, 38.0),
            "verifier": PhaseTimes(2, 5.0, 5.0),
        }
        assert list(step.phases) == ["setup", "agent", "verifier"]
        assert [one.name for one in step.slowest] == ["e", "b", "c"]
        assert [(one.state, one.seconds) for one in step.slowest] == [
            ("running", None), ("finished", 60.0), ("finished", 60.0),
        ]  # fmt: skip
        assert [one.spent_on for one in step.slowest] == ["", "agent", "sandbox"]
