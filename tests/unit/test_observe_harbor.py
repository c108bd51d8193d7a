"""Trials of Harbor's as they are shown: recordings of Harbor 0.24.0, and what liverl.json adds to them."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from liverl.model import TrialHead
from liverl.observe.trials.atif import atif_counts, atif_turns
from liverl.observe.trials.records import parse_result
from liverl.observe.trials.tallies import StepTallies
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import SETTLE, Trial

DATA = Path(__file__).parents[1] / "data" / "harbor"


def no_lines(*_: Any) -> tuple[int, bool]:
    raise AssertionError("there are no records")


def checked(folder: Path, now: float | None = None) -> Trial:
    trial = Trial(str(folder.parent), folder.name, None)
    assert trial.check(no_lines, now or time.time())
    return trial


def head(folder: Path) -> TrialHead:
    return checked(folder).head()


@pytest.mark.parametrize(
    ("name", "reward", "ended_by"),
    [
        ("job-oracle-nop/hello__8jDNWLU", 1.0, None),
        ("job-oracle-nop/hello__T6snAt2", 0.0, None),
        ("job-rewardfile-missing/hello__bqFX82c", None, "RewardFileNotFoundError"),
        ("queue/step_0001/hello-00000002", None, "RuntimeError"),
        ("trial-api/step_0001/hello-0a1b2c3d", 1.0, None),
        ("trial-terminus-2/hello-t2", 0.0, None),
    ],
)
def test_reward_and_exception_of_a_trial(name: str, reward: float | None, ended_by: str | None) -> None:
    shown, whole = head(DATA / name), read_trajectory(DATA / name)
    assert (shown.state, shown.task, shown.reward, shown.ended_by) == (
        "finished",
        "me/hello",
        reward,
        ended_by,
    )
    assert whole.rewards == ({} if reward is None else {"reward": reward}) and not whole.running
    assert (whole.exception is None) is (ended_by is None)
    assert shown.failure.startswith(ended_by or "") and bool(shown.failure) is bool(ended_by)
    assert shown.started_at == whole.started_at and shown.started_at is not None
    assert shown.ended_at is not None and shown.ended_at - shown.started_at == pytest.approx(whole.seconds)


def test_turns_of_an_agent_of_harbors_are_those_of_its_own_record() -> None:
    folder = DATA / "trial-terminus-2" / "hello-t2"
    shown, whole = head(folder), read_trajectory(folder)
    assert (shown.turns, shown.completion_tokens, shown.preview) == (2, 6, "hello")
    assert whole.source == "agent/trajectory.json"
    assert [turn.written for turn in whole.turns] == ["hello", "hello"]
    assert [(turn.prompt_tokens, turn.completion_tokens) for turn in whole.turns] == [(5, 3), (5, 3)]
    assert "parsing errors" in whole.turns[0].after[0].text and whole.turns[0].before
    # It has no tools: that it called none is no fault.
    assert shown.flags == whole.flags == ()


STORY = {
    "schema_version": "ATIF-v1.8",
    "agent": {"name": "a", "tool_definitions": [{"type": "function", "function": {"name": "run"}}]},
    "steps": [
        {"source": "system", "message": "Be brief."},
        {"source": "user", "message": [{"type": "text", "text": "Do it."}]},
        {
            "source": "agent",
            "message": "",
            "timestamp": "2026-01-01T00:00:00+00:00",
            "model_name": "m",
            "tool_calls": [{"tool_call_id": "1", "function_name": "run", "arguments": {"c": "ls"}}],
            "observation": {"results": [{"source_call_id": "1", "content": "file"}]},
            "metrics": {"prompt_tokens": 9, "completion_tokens": 4},
        },
        {"source": "agent", "message": "Done."},
    ],
}


def test_calls_and_results_of_a_record() -> None:
    counts = atif_counts(json.dumps(STORY).encode())
    assert counts is not None
    assert (counts.turns, counts.tool_calls, counts.completion_tokens, counts.offered) == (2, 1, 4, True)
    assert counts.preview == "Done." and counts.written == ""
    (first, second), note = atif_turns(STORY)
    assert "no finish reasons" in note
    assert [part.kind for part in first.answer] == ["call"] and first.calls == 1
    assert "file" in first.after[0].text and first.model == "m" and first.started_at == 1767225600.0
    assert second.written == "Done." and second.completion_tokens is None and second.offered is True


@pytest.mark.parametrize("steps", [None, 3, "x", {}])
def test_a_record_of_another_shape_is_none(steps: Any) -> None:
    document = {"steps": steps}
    assert atif_counts(json.dumps(document).encode()) is None and atif_counts(b"[") is None
    assert atif_turns(document) == ((), "agent/trajectory.json has an unknown shape")


@pytest.mark.parametrize(
    "step", [None, 3, {}, {"source": "agent", "message": 3, "tool_calls": 4, "metrics": []}]
)
def test_odd_steps_are_no_error(step: Any) -> None:
    document = {"steps": [step], "agent": [], "x": 1}
    counts = atif_counts(json.dumps(document).encode())
    assert counts is not None and counts.tool_calls is None and counts.completion_tokens == 0
    atif_turns(document)


def test_an_agent_with_tools_that_calls_none_is_flagged(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    story = {**STORY, "steps": [step for step in STORY["steps"] if "tool_calls" not in step]}  # type: ignore[index]
    (folder / "agent" / "trajectory.json").write_text(json.dumps(story))
    assert "zero_tool_calls" in head(folder).flags and "zero_tool_calls" in read_trajectory(folder).flags


def test_the_record_of_a_running_trial_says_nothing_of_its_end(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "result.json").unlink()
    assert head(folder).state == "running" and head(folder).turns == 0
    whole = read_trajectory(folder)
    assert whole.running and len(whole.turns) == 2
    story = {**STORY, "steps": [step for step in STORY["steps"] if "tool_calls" not in step]}  # type: ignore[attr-defined]
    (folder / "agent" / "trajectory.json").write_text(json.dumps(story))
    assert read_trajectory(folder).flags == (), "it may still call a tool"


# --- with liverl.json -------------------------------------------------------------------------------------------------

FACTS = {"step": 3, "task": "hello", "agent": "harbor", "uid": "u7", "session": 1, "attempt": "attempt_001"}


def copied(tmp_path: Path, name: str = "trial-terminus-2/hello-t2") -> Path:
    shutil.copytree(DATA / name, tmp_path / "trials" / "hello-t2")
    return tmp_path / "trials" / "hello-t2"


def told(folder: Path, **result: Any) -> None:
    facts = {**FACTS, **({"result": result} if result else {})}
    (folder / "liverl.json").write_text(json.dumps(facts))


def test_ours_goes_before_harbors_configuration(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    told(folder, turns=2)
    shown, whole = head(folder), read_trajectory(folder)
    assert (shown.step, shown.group, whole.step) == (3, "u7", 3)
    assert shown.reward == 0.0 and whole.rewards == {"reward": 0.0}
    assert "liverl.json" not in [file.name for file in whole.files]


def test_what_was_trained_goes_before_what_harbor_says(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    failure = {"exception_type": "TailKilledError", "exception_message": "too slow"}
    told(
        folder,
        turns=7,
        exception_info=failure,
        verifier_result={"rewards": {"reward": 0.5}},
        ended_by="exception",
    )
    shown, whole = head(folder), read_trajectory(folder)
    assert (shown.reward, shown.ended_by, shown.failure) == (
        0.5,
        "TailKilledError",
        "TailKilledError: too slow",
    )
    assert shown.turns == whole.told_turns == 7 and whole.rewards == {"reward": 0.5}
    assert whole.exception == "TailKilledError: too slow"


def test_what_harbor_says_remains_where_ours_says_nothing(tmp_path: Path) -> None:
    folder = copied(tmp_path, "queue/step_0001/hello-00000002")
    told(folder, turns=1, exception_info=None, verifier_result=None, ended_by="RuntimeError")
    shown = head(folder)
    assert (shown.reward, shown.ended_by, shown.failure) == (None, "RuntimeError", "RuntimeError: no luck")


def test_our_reward_stands_beside_several_of_the_verifier(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    result["verifier_result"] = {"rewards": {"speed": 0.25, "style": 0.5}}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "verifier" / "reward.txt").unlink()
    assert head(folder).reward is None
    told(folder, verifier_result={"rewards": {"reward": 0.75}})
    assert head(folder).reward == 0.75
    assert read_trajectory(folder).rewards == {"speed": 0.25, "style": 0.5, "reward": 0.75}


@pytest.mark.parametrize(
    ("ours", "ended_by", "failure"),
    [
        (None, "max_iterations", ""),
        ({"exception_type": "RewardError", "exception_message": "none"}, "RewardError", "RewardError: none"),
    ],
)
def test_how_a_trial_ended_is_what_we_say_of_it(
    tmp_path: Path, ours: dict[str, str] | None, ended_by: str, failure: str
) -> None:
    """Harbor's result has what its agent raised, also at a limit, which is no failure."""
    raised = {"exception_type": "HTTPError", "exception_message": "HTTP Error 410: Gone"}
    result = json.dumps({"task_name": "t", "exception_info": raised}).encode()
    told = {"exception_info": ours, "ended_by": "exception" if ours else "max_iterations"}
    ending = {"cause": "limit", "why": "it had all its turns", "outcome": "trained"}
    (found, before) = (
        parse_result(result, {"result": {**told, **more}}) for more in ({"ending": ending}, {})
    )
    assert found is not None and before is not None
    assert (found.ended_by, found.failure) == (ended_by, failure)
    # A version that wrote no ending said no more than Harbor.
    assert before.failure == (failure or "HTTPError: HTTP Error 410: Gone")
    (tmp_path / "result.json").write_bytes(result)
    (tmp_path / "liverl.json").write_text(json.dumps({"result": {**told, "ending": ending}}))
    assert (read_trajectory(tmp_path).exception is None) is (ours is None)


def test_a_trial_runs_until_its_liverl_json_tells_its_end(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    told(folder)
    trial = checked(folder)
    later = time.time() + 10 * SETTLE
    trial.check(no_lines, later)
    assert not trial.closed and (trial.head().state, trial.head().failure) == ("running", "")
    told(folder, verifier_result={"rewards": {"reward": 1.0}})
    os.utime(folder / "liverl.json", (later, later))
    trial.check(no_lines, later)
    assert (trial.head().state, trial.head().reward) == ("finished", 1.0)
    trial.check(no_lines, later + 10 * SETTLE)
    assert trial.closed


def test_a_trial_that_was_run_again_does_not_count_in_its_step(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    told(folder, repeated=True, verifier_result={"rewards": {"reward": 0.0}})
    again = msgspec.structs.replace(head(folder), earlier=False, reward=1.0)
    assert head(folder).earlier and not again.earlier
    tallies, more = StepTallies(), StepTallies()
    tallies.add(head(folder), 0)
    more.add(again, 0)
    tallies.take(more)
    (step,) = tallies.steps(tallies.went_back(), unknown=True)
    assert (step.total, step.finished, step.mean_reward, step.earlier) == (1, 1, 1.0, 1)


def test_a_trial_that_is_not_harbors_is_closed_without(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "liverl.json").write_text(json.dumps({**FACTS, "agent": "chat"}))
    assert checked(folder, time.time() + 10 * SETTLE).closed
