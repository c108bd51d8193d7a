"""Trials that end at a limit of their own: how many of a step do, and which limit that is."""

from __future__ import annotations

from typing import Any

import pytest
from kit.learning_histories import LEARNING, read
from kit.screens import through_sessions, trial
from kit.symptoms import proof
from msgspec.structs import replace

from liverl.diagnose.catalogue.trial_limits import trials_at_limit
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import Snapshot, StepTrials, Symptom, TrialsStatus
from liverl.observe.metrics.recent import of_steps


def state(step: StepTrials, *more: StepTrials, **fields: Any) -> Snapshot:
    heads = tuple(trial(n, step.step, ended_by=name) for n, name in enumerate(step.ended_by))
    known = {"trials_per_step": step.total, "step": step.step - 1, **fields}
    return through_sessions(trials=TrialsStatus(newest=heads, steps=(step, *more)), **known)


def ended(total: int = 64, finished: int = 64, number: int = 9, **by: int) -> StepTrials:
    return StepTrials(number, total, finished, 0, 0.5, calling=0, ended_by=by)


def found(now: Snapshot, **beside: Any) -> list[Symptom]:
    seen = Window(now, None, RunContext(**beside))
    return [one for one in trials_at_limit(seen) if isinstance(one, Symptom)]


@pytest.mark.parametrize(
    ("by", "what", "key"),
    [
        ({"max_iterations": 32, "exit": 32}, "turns", "harbor_agent.max_iterations"),
        ({"response_length": 40, "exit": 24}, "tokens", "training.max_response_length"),
        ({"context_length": 64}, "context", "vllm.max_model_length"),
        ({"AgentTimeoutError": 20, "TrialTimeoutError": 20}, "time", "harbor_agent.override_timeout_sec"),
    ],
)
def test_half_of_a_step_at_one_limit(by: dict[str, int], what: str, key: str) -> None:
    (told,) = found(state(ended(**by)))
    share = sum(number for name, number in by.items() if name != "exit") / 64
    assert told.title == f"{share:.0%} of the trials of step 9 ran out of {what}"
    assert told.severity == "info" and key in told.fix and told.step == 9
    assert proof(told)[0].startswith("trials/step_0009/")


@pytest.mark.parametrize(
    "by", [{"max_iterations": 31}, {"max_iterations": 20, "response_length": 20}, {"exit": 64}, {}]
)
def test_fewer_end_as_they_may(by: dict[str, int]) -> None:
    """As in a recorded run, of whose 64 trials four had all their turns."""
    assert found(state(ended(**by))) == []


def test_the_shortest_trials_of_a_step_do_not_speak_for_it() -> None:
    begun = ended(64, 47, max_iterations=47)
    assert found(state(begun)) == []
    assert len(found(state(replace(begun, finished=48, ended_by={"max_iterations": 48})))) == 1
    assert found(state(begun, ended(number=8, max_iterations=40)))[0].step == 8, (
        "the newest that can be judged"
    )
    assert found(state(ended(3, 3, max_iterations=3))) == []


def test_it_is_silent_where_another_alert_says_it() -> None:
    cut = ended(response_length=64)
    broken = of_steps(read(LEARNING / "update-too-large.jsonl"))
    assert found(state(cut)) and found(state(cut), recent=broken) == []
    times = ended(AgentTimeoutError=64)
    assert found(state(times))
    assert found(state(replace(times, endings={"timeout zeroed": 64}))) == [], "trials_not_trained"
