"""The head of one trial: each file's part in it, and when which file is read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from kit.trial_folders import FAILED, FILE, GONE, TOOL, T, call, lines, put
from msgspec.structs import replace

from liverl.model import TrialHead
from liverl.observe.trials.cut_off import in_step
from liverl.observe.trials.index import TrialIndex
from liverl.observe.trials.scanner import LineReader
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.step_times import StepTimes
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import Trial, over
from liverl_tui.text.words import step_word


class One:
    """A trial's folder, looked at with the clock set to ``T`` and later."""

    def __init__(self, root: Path, path: str = "step_0003/fix-it-0a1b2c", step: int | None = 3) -> None:
        self.root = root
        self.folder = root / path
        self.folder.mkdir(parents=True)
        self.trial = Trial(str(root), path, step)
        self.lines = LineReader()

    def put(self, name: str, text: str | bytes, at: float = T) -> None:
        put(self.folder / name, text, at)
        os.utime(self.folder, (at, at))

    def head(self, now: float = T) -> TrialHead:
        assert self.trial.check(self.lines, now)
        return self.trial.head()


@pytest.fixture
def one(tmp_path: Path) -> One:
    return One(tmp_path / "trials")


def test_a_new_trial_has_an_empty_head(one: One) -> None:
    os.utime(one.folder, (T, T))
    assert one.head() == TrialHead(
        name="fix-it-0a1b2c",
        step=3,
        task="fix-it",
        state="running",
        turns=0,
        tool_calls=0,
        reward=None,
        finish_reason=None,
        completion_tokens=0,
        replica=None,
        started_at=None,
        updated_at=T,
        flags=(),
        path="trials/step_0003/fix-it-0a1b2c",
    )
    assert (one.trial.due, one.trial.unread, one.trial.closed, one.trial.bad) == (T, False, False, 0)
    shutil.rmtree(one.folder)
    assert one.trial.check(one.lines, T) is False
    one.folder.write_text("a file")
    assert one.trial.check(one.lines, T) is False


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("fix-it-0a1b2c", "fix-it"),
        ("fix-it-0a1b2", "fix-it-0a1b2"),
        ("fix-it-0a1b2c3d4e5f", "fix-it"),
        ("fix-it-0A1B2C", "fix-it-0A1B2C"),
        ("fix__Ab3dE6g", "fix"),
        ("fix__Ab3dE6", "fix__Ab3dE6"),
        ("fix__Ab3dE6gh", "fix__Ab3dE6gh"),
        ("plain", "plain"),
    ],
)
def test_the_task_in_a_trials_name(tmp_path: Path, name: str, task: str) -> None:
    trial = Trial(str(tmp_path), f"step_0001/{name}", 1)
    assert (trial.name, trial.task) == (name, task)
    assert Trial(str(tmp_path), name, None).name == name


def test_turns_add_up_in_the_head(one: One) -> None:
    one.put(
        FILE, lines(call(calls=2, finish="tool_calls"), FAILED, call(calls=1, finish="length", replica=None))
    )
    head = one.head()
    assert (head.turns, head.tool_calls, head.completion_tokens) == (2, 3, 8)
    assert (head.finish_reason, head.replica, head.started_at) == ("length", "http://a:1", T - 100)
    assert head.flags == ("failed_turns",)
    one.put(FILE, lines(call(finish=None, usage=None, request_time=None)))
    head = one.head()  # shorter: written anew
    assert (head.turns, head.tool_calls, head.completion_tokens, head.flags) == (1, 0, 0, ())
    assert (head.finish_reason, head.started_at) == (None, None)
    one.put(FILE, lines({"success": True}))
    assert one.head().replica is None


def test_a_file_that_is_written_anew_is_counted_anew(one: One) -> None:
    one.put(FILE, lines(call(calls=1, moved_from="x"), FAILED, call(replica="http://b:1"), GONE))
    head = one.head()
    assert (head.turns, head.tool_calls, head.flags) == (2, 1, ("moved_replica", "failed_turns"))
    one.put(FILE, lines(call(replica="http://c:1", request_time=T - 50)))
    head = one.head()
    assert (head.turns, head.tool_calls, head.completion_tokens, head.started_at) == (1, 0, 4, T - 50)
    assert head.flags == ("zero_tool_calls",), "a replica of the old file is none that it moved from"
    one.put(FILE, "")
    head = one.head()
    assert (head.turns, head.finish_reason, head.replica, head.started_at, head.flags) == (
        0,
        None,
        None,
        None,
        (),
    )


@pytest.mark.parametrize(
    ("records", "flags"),
    [
        ([call(calls=1), call()], ()),
        ([call(), call()], ("zero_tool_calls",)),
        ([call(finish="end_turn")], ("zero_tool_calls",)),
        ([call(finish="stop_sequence")], ("zero_tool_calls",)),
        ([call(finish="tool_calls")], ()),
        ([call(finish="length")], ()),
        ([call(response_body=None)], ("not_recorded",)),
        ([call(response_body=None), call()], ("not_recorded",)),
        ([call(calls=1), call(replica=None), call(replica="http://a:1")], ()),
        ([call(calls=1), call(replica="http://b:1")], ("moved_replica",)),
        ([call(calls=1, moved_from="x")], ("moved_replica",)),
        ([call(calls=1), FAILED], ("failed_turns",)),
        ([call(calls=1), GONE], ()),
        ([GONE, call(calls=1)], ("failed_turns",)),
        ([GONE, GONE], ("failed_turns",)),
        ([FAILED | {"replica": "http://b:1"}, call(calls=1)], ("failed_turns",)),
    ],
)
def test_flags_of_a_running_trial(one: One, records: list[dict[str, Any]], flags: tuple[str, ...]) -> None:
    one.put(FILE, lines(*records))
    head = one.head()
    assert (head.flags, head.state) == (flags, "running")
    found = read_trajectory(one.folder)
    assert tuple(flag for flag in found.flags if flag != "truncated") == flags
    assert ("truncated" in found.flags) == (found.turns[-1].finish_reason == "length")


def test_a_replica_that_only_failed_is_none_that_served(one: One) -> None:
    one.put(
        FILE, lines(FAILED | {"replica": "http://b:1"}, call(calls=1), FAILED | {"replica": "http://c:1"})
    )
    assert read_trajectory(one.folder).replicas == ("http://a:1",)
    assert [turn.replica for turn in read_trajectory(one.folder).turns] == [
        "http://b:1",
        "http://a:1",
        "http://c:1",
    ]
    assert one.head().replica == "http://a:1"


def test_a_cut_off_call_is_a_failure_of_a_finished_trial(one: One) -> None:
    one.put(FILE, lines(call(calls=1), GONE))
    one.put("result.json", "{}")
    assert one.head().flags == ("failed_turns",)
    assert read_trajectory(one.folder).flags == ("failed_turns",)


def test_reasons_to_end() -> None:
    assert [
        over(reason) for reason in ("stop", "end_turn", "stop_sequence", "length", "tool_calls", None)
    ] == [
        *[True] * 3,
        *[False] * 3,
    ]


def test_a_failed_call_tells_when_the_trial_began(one: One) -> None:
    one.put(FILE, lines(FAILED | {"request_time": T - 70}, call(), FAILED))
    assert one.head().started_at == T - 70
    one.put(FILE, lines(FAILED | {"request_time": None}, FAILED | {"request_time": T - 60}))
    assert one.head().started_at == T - 60
    assert one.head().turns == 0


def test_a_validation_says_after_which_step_it_ran(tmp_path: Path) -> None:
    one = One(tmp_path, "a-0a1b2c3d", None)
    one.put("liverl.json", '{"task": "a", "validation_after_step": 8}')
    head = one.head()
    assert (head.step, head.validated) == (None, 8)
    starts = TrainerStarts(tmp_path)
    starts._times = [T - 1000]
    assert in_step(head, starts, StepTimes(tmp_path)) == (head, True), "of no step of training"
    assert in_step(replace(head, validated=None), starts, StepTimes(tmp_path))[0].step == 1
    read = read_trajectory(one.folder)
    assert (read.step, read.validated) == (None, 8)
    index = TrialIndex()
    index.put(head)
    assert index.head(0).validated == 8


@pytest.mark.parametrize(
    ("step", "validated", "word"),
    [
        (3, None, "3"),
        (0, None, "0"),
        (None, 8, "val8"),
        (None, 120, "v120"),
        (None, 0, "val0"),
        (None, None, "-"),
        (3, 2, "3"),
    ],
)
def test_the_step_of_a_trial_in_a_word(step: int | None, validated: int | None, word: str) -> None:
    assert step_word(step, validated) == word


def test_the_result_and_the_configuration_name_task_and_step(tmp_path: Path) -> None:
    one = One(tmp_path, "fix-it-0a1b2c", None)
    assert one.head().step is None
    one.put("config.json", '{"task": "from config", "step": 4}')
    assert (one.head().task, one.head().step) == ("from config", 4)
    one.put(
        "result.json", json.dumps({"task_name": "from result", "step": 5, "started_at": T - 9, "turns": 6})
    )
    head = one.head()
    assert (head.task, head.step, head.started_at, head.turns) == ("from result", 4, T - 9, 6)
    assert (head.state, head.reward) == ("finished", None)
    one = One(tmp_path, "step_0003/a", 3)
    one.put("config.json", '{"step": 4}')
    one.put("result.json", '{"step": 5}')
    assert (one.head().task, one.head().step) == ("a", 3)
    one = One(tmp_path, "b", None)
    one.put("result.json", '{"step": 0}')
    assert one.head().step == 0


def test_a_trial_began_at_the_earliest_time_that_is_told(one: One) -> None:
    one.put(FILE, lines(call()))
    assert one.head().started_at == T - 100
    one.put("result.json", json.dumps({"started_at": T - 300}))
    assert one.head().started_at == T - 300


def test_a_configuration_is_read_until_it_is_whole_or_old(one: One) -> None:
    one.put("config.json", '{"task": ')
    assert one.head(T + 5).task == "fix-it"
    one.put("config.json", '{"task": "whole"}')
    assert one.head(T + 5).task == "whole"
    one.put("config.json", '{"task": "changed"}')
    assert one.head(T + 6).task == "whole", "read once"


def test_a_broken_configuration_is_given_up_after_five_seconds(one: One) -> None:
    one.put("config.json", "{")
    one.head(T + 5.25)
    one.put("config.json", '{"task": "late"}')
    assert one.head(T + 6).task == "fix-it"


@pytest.mark.parametrize(
    ("later", "state", "bad"), [(0.0, "running", 0), (4.75, "running", 0), (5.0, "finished", 1)]
)
def test_a_broken_result_is_one_after_five_seconds(one: One, later: float, state: str, bad: int) -> None:
    one.put("result.json", '{"task_name": "x"')
    assert (one.head(T + later).state, one.trial.bad) == (state, bad)
    assert one.head(T + later).state == state and one.trial.bad == bad
    one.put("result.json", '{"task_name": "x"}', T + 10)
    assert one.head(T + 10).task == ("x" if state == "running" else "fix-it")


def test_the_newest_file_dates_the_head(one: One) -> None:
    one.put(FILE, lines(call()), T - 30)
    os.utime(one.folder, (T - 40, T - 40))
    assert one.head().updated_at == T - 30
    one.put("result.json", "{}", T - 20)
    os.utime(one.folder, (T - 25, T - 25))
    assert one.head().updated_at == T - 20
    os.utime(one.folder, (T - 10, T - 10))
    assert one.head().updated_at == T - 10
    os.utime(one.folder, (T - 35, T - 35))
    assert one.head().updated_at == T - 10, "it never goes back"


def test_a_documents_time_and_counts(one: One) -> None:
    messages = [{"role": "assistant", "tool_calls": [TOOL]}, {"role": "assistant"}]
    one.put(
        "proxy_trajectory.json", json.dumps({"messages": messages, "traj_response_mask": [1, 1, 1]}), T - 10
    )
    os.utime(one.folder, (T - 20, T - 20))
    head = one.head()
    assert (head.turns, head.tool_calls, head.completion_tokens, head.updated_at) == (2, 1, 3, T - 10)
    assert head.flags == ()
    # It is written once: read once.
    one.put("proxy_trajectory.json", json.dumps({"messages": messages[:1]}))
    assert one.head().turns == 2


@pytest.mark.parametrize(
    ("document", "turns", "flags", "bad"),
    [
        ({"messages": [{"role": "assistant"}]}, 1, ("zero_tool_calls",), 0),
        ({"messages": []}, 0, (), 0),
        ({"traj_response_mask": [1, 0, 1]}, 2, (), 0),
        ({"else": 1}, 0, ("unreadable",), 1),
    ],
)
def test_flags_of_a_document(one: One, document: object, turns: int, flags: object, bad: int) -> None:
    one.put("proxy_trajectory.json", json.dumps(document))
    head = one.head()
    assert (head.turns, head.flags, head.state, one.trial.bad) == (turns, flags, "finished", bad)
    one.head()
    assert one.trial.bad == bad


def test_records_come_before_a_document(one: One) -> None:
    one.put("proxy_trajectory.json", json.dumps({"messages": [{"role": "assistant"}] * 5}))
    one.put(FILE, lines(call(calls=1)))
    assert one.head().turns == 1
    one.put("proxy_trajectory.json", "")
    one.put(FILE, "")
    assert one.head().turns == 0, "an empty document is none yet"
    one.put("proxy_trajectory.json", json.dumps({"messages": [{"role": "assistant"}] * 5}))
    assert one.head().turns == 5


def test_the_verifiers_text_is_read_when_the_trial_is_over(one: One) -> None:
    one.put("verifier/reward.txt", "0.25\n")
    one.put(FILE, lines(call(finish="tool_calls")))
    assert one.head().reward is None, "it goes on"
    one.put(FILE, lines(call(finish="tool_calls"), call(finish="stop")))
    assert one.head().reward == 0.25
    one.put("verifier/reward.txt", "0.75\n")
    assert one.head().reward == 0.25, "read once"


def test_the_results_reward_comes_before_the_verifiers_text(one: One) -> None:
    one.put("verifier/reward.txt", "0.25\n")
    one.put("result.json", '{"verifier_result": {"rewards": {"reward": 0}}}')
    assert one.head().reward == 0.0
    other = One(one.root, "step_0003/b")
    other.put("result.json", "{}")
    other.put("verifier/else.txt", "")
    assert other.head().reward is None
    other.put("verifier/reward.txt", "")
    assert other.head().reward is None
    other.put("verifier/reward.txt", "1")
    assert other.head().reward == 1.0


def test_a_reward_without_the_verifiers_folder_in_sight_is_not_looked_for(
    one: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **k: opened.append(str(path)) or real(path, *a, **k))
    one.put("result.json", "{}")
    one.head()
    assert [Path(path).name for path in opened if str(one.folder) in path] == ["result.json"]
    opened.clear()
    one.put("verifier/reward.txt", "1")
    one.head()
    one.head()
    assert [Path(path).name for path in opened if str(one.folder) in path] == ["reward.txt"]


def test_records_of_the_agents_folder(one: One) -> None:
    one.put("agent/other.txt", "")
    assert one.head().turns == 0
    one.put(f"agent/{FILE}", lines(call()))
    assert one.head().turns == 1
    one = One(one.root, "step_0003/b")
    one.put("agent/other.txt", "")
    assert one.head().turns == 0
    one.put(FILE, lines(call(), call()))
    assert one.head().turns == 2, "it appeared in the trial's own folder instead"


def test_a_trial_is_closed_five_seconds_after_its_last_word(one: One) -> None:
    one.put(FILE, lines(call(calls=1)) + json.dumps(call(calls=1)))
    one.put("result.json", "{}")
    assert (one.head(T + 5).turns, one.trial.closed) == (1, False)
    assert (one.head(T + 5.25).turns, one.trial.closed) == (2, True)
    assert one.trial.bad == 0


def test_a_trial_that_still_writes_is_not_closed(one: One) -> None:
    one.put("result.json", "{}")
    one.put(FILE, lines(call(calls=1)), T + 9)
    assert (one.head(T + 10).turns, one.trial.closed) == (1, False)
    one.put(FILE, lines(call(calls=1), call(calls=1)), T + 5)
    assert (one.head(T + 10).turns, one.trial.closed) == (2, True), "what came was five seconds old"
    assert one.trial.head().updated_at == T + 9


def test_a_torn_record_of_a_closed_trial_is_bad(one: One) -> None:
    one.put(FILE, lines(call(calls=1)) + "\n  \n" + '{"success": tr')
    one.put("result.json", "{}")
    assert (one.head(T + 60).turns, one.trial.closed, one.trial.bad) == (1, True, 1)


@pytest.mark.parametrize(
    ("idle", "wait"), [(0.0, 0.0), (5.0, 0.5), (100.0, 10.0), (300.0, 30.0), (9000.0, 30.0)]
)
def test_a_quiet_trial_is_looked_at_less_often(one: One, idle: float, wait: float) -> None:
    one.put(FILE, lines(call()), T)
    one.head(T + idle)
    assert one.trial.due == T + idle + wait
    one.head(T - 10)
    assert one.trial.due == T - 10, "a file from the future is no reason to wait"


@pytest.mark.parametrize(("later", "listed"), [(1.75, True), (2.0, False), (2.5, False), (100.0, False)])
def test_a_folder_is_listed_again_while_it_is_two_seconds_young(one: One, later: float, listed: bool) -> None:
    """A file system may give two changes in the same tick the same time."""
    os.utime(one.folder, (T, T))
    one.head(T)
    (one.folder / "result.json").write_text("{}")
    os.utime(one.folder, (T, T))
    assert (one.head(T + later).state == "finished") is listed
    os.utime(one.folder, (T + 1, T + 1))
    assert one.head(T + 200).state == "finished"


UNANSWERED = {**call(), "response_body": None, "usage": None}


@pytest.mark.parametrize(
    ("records", "flags"),
    [
        ([UNANSWERED], {"not_recorded"}),
        ([call(), UNANSWERED], {"not_recorded"}),
        ([call(calls=1), UNANSWERED], {"not_recorded"}),
        ([call(), call()], {"zero_tool_calls"}),
    ],
)
def test_a_turn_without_its_answer_is_not_known_to_call_no_tool(
    one: One, records: list[dict[str, Any]], flags: set[str]
) -> None:
    """In the list and in the trial's own view alike."""
    one.put(FILE, lines(*records))
    one.put("result.json", json.dumps({"turns": len(records)}))
    head = one.head(T + 60)
    assert set(head.flags) == flags
    view = read_trajectory(one.folder)
    assert set(view.flags) == flags
    notes = [turn.note for turn in view.turns if "its answer is not recorded" in turn.note]
    assert len(notes) == records.count(UNANSWERED)


def test_a_record_that_is_owed_is_waited_for(one: One) -> None:
    """The proxy waits for LiteLLM's report; the trial's result is there before."""
    one.put(FILE, lines(call()))
    one.put("result.json", json.dumps({"turns": 2}))
    assert (one.head(T + 60).turns, one.trial.closed) == (2, False)
    one.put(FILE, lines(call(), call(calls=1)), T + 90)
    assert one.head(T + 91).tool_calls == 1 and one.head(T + 150).flags == ()
    assert one.trial.closed
