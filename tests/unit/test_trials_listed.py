"""``trials``: which trials are listed, how one is found by its name, and what the tables say."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from kit.screens import snapshot
from kit.trial_folders import FILE, T, call, lines, put
from msgspec.structs import replace

from liverl.diagnose.report import _figures
from liverl.model import PhaseTimes, SlowTrial, Snapshot, StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.earlier import Earlier
from liverl.observe.trials.query import parse
from liverl.observe.trials.steps import heads_of_step
from liverl.observe.trials.trajectory import read_trajectory
from liverl.offline.page import page
from liverl.offline.run import OfflineRun
from liverl.offline.step_timeline import StepTimeline, read_step
from liverl.offline.tables import NothingToExport, trials_of
from liverl.offline.timeline_shown import TimelineShown
from liverl.offline.trials import (
    LONGEST,
    NewEnds,
    NoSuchTrial,
    TrialShown,
    TrialsListed,
    Wanted,
    encoded,
    is_wanted,
    listed,
    listed_of_all,
    marks_of,
    needs_index,
    shown,
    slowest_first,
    steps_listed,
)
from liverl.rundir.layout import RunDir
from liverl_tui.cli.trials_table import Rows, left_out, shown_lines, slow_words, step_lines, table
from liverl_tui.text.facts import step_reward_words, trial_counts
from liverl_tui.text.reward_lines import STANDS_FOR_NONE, UNKNOWN
from liverl_tui.text.timeline import lines as timeline_lines
from liverl_tui.text.trial_phases import phase_words
from liverl_tui.widgets.base.trial_words import flag_words, tally_heads, tally_of
from liverl_tui.widgets.dashboard.trial_steps import StepReader
from liverl_tui.widgets.dashboard.trial_title import earlier_words
from liverl_tui.widgets.timeline.step import StepPane
from liverl_tui.widgets.trajectory.document import reward_blocks


def titled(timeline: StepTimeline) -> str:
    """The title of the pane that draws a step."""
    pane = StepPane()
    pane.take(timeline, {})
    return pane.heading()[1]


def head(name: str = "a", **more: Any) -> TrialHead:
    values: dict[str, Any] = {
        "name": name, "step": 1, "task": "fix-it", "state": "finished", "turns": 3, "tool_calls": 2, "reward": 1.0,
        "finish_reason": "stop", "completion_tokens": 9, "replica": None, "started_at": T, "updated_at": T + 30,
        "path": f"trials/step_0001/{name}", "ended_at": T + 30,
    }  # fmt: skip
    return TrialHead(**{**values, **more})


@pytest.mark.parametrize(
    ("wanted", "more", "is_one"),
    [
        (Wanted(), {}, True),
        (Wanted(task="FIX"), {}, True), (Wanted(task="other"), {}, False),
        (Wanted(flags=("error",)), {"failure": "OSError: x"}, True), (Wanted(flags=("error",)), {}, False),
        (Wanted(flags=("truncated",)), {"finish_reason": "length"}, True),
        (Wanted(flags=("no_reward", "zero_tool_calls")), {"flags": ("zero_tool_calls",)}, True),
        (Wanted(flags=("no_reward",)), {"flags": ("zero_tool_calls",)}, False),
        (Wanted(states=("running",)), {}, False), (Wanted(states=("running", "finished")), {}, True),
        (Wanted(error="timeout"), {"error": "AgentTimeoutError"}, True), (Wanted(error="timeout"), {}, False),
        (Wanted(waits="model"), {"waits_for": "model"}, True), (Wanted(waits="model"), {"spent_on": "model"}, True),
        (Wanted(waits="model"), {"spent_on": "tool"}, False),
        (Wanted(task="fix", error="x"), {"error": "y"}, False),
    ],
)  # fmt: skip
def test_filters(wanted: Wanted, more: dict[str, Any], is_one: bool) -> None:
    assert is_wanted(head(**more), wanted) is is_one


def test_the_slowest_come_first_and_those_of_unknown_time_last() -> None:
    heads = [
        head("a"),
        head("b", started_at=None),
        head("c", state="running", ended_at=None),
        head("d", ended_at=T + 50),
    ]
    assert [one.name for one in slowest_first(heads, T + 40)] == ["d", "c", "a", "b"]


EVERY = Wanted()


class Run:
    """The directory of a run that has ended, or of one that was killed."""

    def __init__(self, folder: Path) -> None:
        self.dir = RunDir(folder / "liverl" / "one")
        self.dir.path.mkdir(parents=True)
        self.dir.config.write_text("run: {name: one}\n")
        self.dir.journal.write_text("")

    def trial(self, path: str, result: dict[str, Any] | None = None, **more: Any) -> None:
        folder = self.dir.trials / path
        put(folder / FILE, lines(call(request_time=T, duration_ms=2000, calls=1, **more)), T)
        if result is not None:
            put(folder / "result.json", json.dumps(result), T + 30)
        os.utime(folder, (T, T))

    def ls(
        self, wanted: Wanted = EVERY, step: int | None = None, most: int = 50, slow: bool = False
    ) -> list[str]:
        found = listed(self.dir, OfflineRun(self.dir.path).poll(), False, wanted, step, most, slow=slow)
        return [f"{one.name} {one.state}" for one in found.trials]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


ENDED = {
    "started_at": T,
    "finished_at": T + 30,
    "ended_by": "submit",
    "verifier_result": {"rewards": {"reward": 1}},
}


def test_trials_of_a_step_are_all_looked_at(run: Run) -> None:
    run.trial("step_0001/a-0a1b2c", ENDED)
    run.trial("step_0001/b-0a1b2c")
    run.trial("step_0002/c-0a1b2c", {**ENDED, "finished_at": T + 300})
    run.trial("d-0a1b2c", ENDED)
    assert sorted(run.ls(step=1)) == ["a-0a1b2c finished", "b-0a1b2c cut_off"]
    assert run.ls(Wanted(states=("cut_off",)), step=1) == ["b-0a1b2c cut_off"]
    assert len(run.ls(step=1, most=1)) == 1
    found = listed(run.dir, None, False, Wanted(task="a"), 1, 50, slow=False)
    assert (found.step, found.total, found.matched) == (1, 2, 1)
    with pytest.raises(NoSuchTrial) as raised:
        run.ls(step=7)
    assert str(raised.value) == "step 7 of run liverl/one has no trials; there are trials of steps 1 to 2"
    with pytest.raises(NoSuchTrial) as raised:
        listed(RunDir(run.dir.path.parent / "none"), None, False, Wanted(), 1, 5, slow=False)
    assert str(raised.value) == "run liverl/none has no trials yet"


def test_a_trial_that_was_repeated_is_left_out_of_every_list_which_says_so(run: Run) -> None:
    """It counts in no step, as another one stands in for it; a filter asks for it."""
    run.trial("step_0001/a-0a1b2c", {**ENDED, "repeated": True})
    run.trial("step_0001/a-1a1b2c", ENDED)
    state = OfflineRun(run.dir.path).poll()
    assert state is not None and state.trials.total == 1
    for wanted, expected in ((EVERY, (1, 1, 1, 1, 1)), (Wanted(query=parse("earlier=any")), (2, 2, 2, 2, 0))):
        lists = [
            listed(run.dir, state, False, wanted, None, 50, slow=False),
            listed(run.dir, state, False, wanted, 1, 50, slow=False),
            listed_of_all(run.dir, state, False, wanted, 50, None),
        ]
        numbers = [(len(one.trials), one.matched, one.searched, one.total, one.earlier) for one in lists]
        assert numbers == [expected] * 3
        assert [one.repeated for one in lists] == [expected[-1]] * 3
        again = [{head.name for head in one.trials if head.repeated} for one in lists]
        assert again == [{"a-0a1b2c"} if wanted.query.earlier_too else set()] * 3
        said = {left_out(one, filtered=False) for one in lists}
        words = "1 earlier try of these trials left out; --filter earlier=yes lists them"
        assert said == ({words} if expected[-1] else {None}), "the run has only one attempt"
    by_index = listed_of_all(run.dir, None, False, Wanted(query=parse("earlier=yes")), 50, None)
    assert [head.repeated for head in by_index.trials] == [True]
    tally = tally_of(state.trials.steps[0])
    assert (
        tally.earlier.short == "1 earlier try"
        and tally_heads(1, heads_of_step(run.dir.path, 1)).earlier == tally.earlier
    )
    (again,) = (one for one in heads_of_step(run.dir.path, 1) if one.earlier)
    assert flag_words(again)[-1] == ("earlier try", "dim")
    assert trial_counts(state) == "0 running, 1 of 1 finished, 1 earlier try left out"


def test_a_mean_reward_leaves_out_trials_that_were_not_trained_and_says_so(run: Run) -> None:
    """Failed trials counted as 0 in it, beside a trainer's mean of the same name that leaves them out."""
    run.trial("step_0001/a-0a1b2c", {**ENDED, **rewarded(0.5), **ended_as("trained")})
    for name in ("b", "c", "d"):
        run.trial(f"step_0001/{name}-0a1b2c", {**ENDED, **rewarded(0.0), **ended_as("masked")})
    state = OfflineRun(run.dir.path).poll()
    assert state is not None
    (step,) = state.trials.steps
    assert (step.mean_reward, step.trained) == (0.5, 1)
    assert tally_heads(1, heads_of_step(run.dir.path, 1)).mean_reward == 0.5
    said = "mean reward 0.500 (of the 1 of 4 trials that were trained)"
    assert said in step_lines(step, T)[0] and step_reward_words(step) == said
    assert step_reward_words(replace(step, endings={"done trained": 4})) == "mean reward 0.500"
    assert step_reward_words(replace(step, mean_reward=None)) == ""


def rewarded(reward: float) -> dict[str, Any]:
    return {"verifier_result": {"rewards": {"reward": reward}}}


def ended_as(outcome: str) -> dict[str, Any]:
    return {"ending": {"cause": "done" if outcome == "trained" else "exit", "why": "", "outcome": outcome}}


def test_what_is_left_out_of_a_list_is_named_by_its_reason() -> None:
    assert (Earlier().words, Earlier().short) == ("", "")
    assert Earlier(2, 464).words == "464 earlier tries of these trials and 2 trials of an earlier attempt"
    assert earlier_words(Earlier(2, 464), 120) == "464 earlier tries, 2 of an earlier attempt left out"
    assert earlier_words(Earlier(2, 464), 80) == "466 discarded left out"


def test_trials_of_an_attempt_that_was_thrown_away_count_nowhere_and_are_said(run: Run) -> None:
    """The run was resumed without a checkpoint: step 1 was begun again, and step 2 thrown away."""
    attempts = ({"k": "attempt", "n": n, "at": T + at, "monotonic": 1.0} for n, at in ((1, 0), (2, 1000)))
    trainers = ({"k": "intent", "svc": "trainer", "gen": n, "at": T + at} for n, at in ((1, 1), (2, 1001)))
    (run.dir.path / "journal.jsonl").write_text(
        "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in (*attempts, *trainers))
    )
    for name, at in (("step_0001/a-0a1b2c", 10), ("step_0002/a-0a1b2c", 20), ("step_0001/b-0a1b2c", 1010)):
        place = run.dir.path / "trials" / name
        put(place / FILE, lines(call(calls=0, request_time=T + at)), T + at)
        put(place / "result.json", json.dumps({**ENDED, "started_at": T + at}), T + at)
    state = OfflineRun(run.dir.path).poll()
    assert state is not None
    gone = state.trials.earlier
    assert (state.trials.total, state.trials.finished, gone.total, gone.finished) == (3, 3, 2, 2)
    for found in (
        listed(run.dir, state, False, EVERY, None, 50, slow=False),
        listed_of_all(run.dir, state, False, EVERY, 50, None),
    ):
        assert ([one.name for one in found.trials], found.total, found.earlier) == (["b-0a1b2c"], 1, 2)
        said = left_out(found, filtered=False)
        assert said == "2 trials of an earlier attempt left out; --filter earlier=yes lists them"
    assert not needs_index(state, 50) and needs_index(replace_newest(state), 1, parse("earlier=any"))
    for step, gone_too in ((1, 1), (None, 2)):
        exported, earlier = trials_of(run.dir, False, step, EVERY)
        assert ([one.name for one in exported], earlier) == (["b-0a1b2c"], Earlier(gone_too))
    not_again = listed(run.dir, state, False, EVERY, 2, 50, slow=False)
    assert (not_again.total, not_again.earlier) == (0, 1), "step 2 was not reached again"
    with pytest.raises(NothingToExport):
        trials_of(run.dir, False, 2, EVERY, state.trials)
    for step, marked in ((1, {"a-0a1b2c": True, "b-0a1b2c": False}), (2, {"a-0a1b2c": True})):
        pane = StepReader(lambda work, **_: asyncio.run(work), lambda: run.dir.path, lambda: None)
        pane.open(step)
        assert {head.name: head.earlier for head in pane.heads(state.trials)} == marked, (
            "the pane of the step"
        )
    for step, left in ((1, False), (2, True)):
        timeline = read_step(run.dir.path, step, {}, {}, T + 2000, None, state.trials)
        said = next(timeline_lines(TimelineShown("a", "", True, timeline)))
        drawn = ("earlier attempt" in said, "still running" in said, timeline.running, timeline.cut_off)
        assert drawn == (left, not left, not left, left), "no attempt is at step 2"
        assert ("earlier attempt" in titled(timeline)) is left and len(timeline.trials) == 1
    counted = (
        "- trials: 1, 1 of them finished, 1 without a tool call; 2 more of an earlier attempt are not counted"
    )
    assert counted in report_of(state)
    assert trial_counts(state) == "0 running, 1 of 1 finished, 2 more of an earlier attempt"


def replace_newest(state: Snapshot) -> Snapshot:
    return replace(state, trials=replace(state.trials, newest=()))


def report_of(state: Snapshot) -> str:
    return "\n".join(_figures(state, {}, "", 2))


def show(run: Run, name: str) -> TrialShown:
    return shown(run.dir, None, False, name)


def test_a_trial_is_found_by_its_name_and_its_path(run: Run) -> None:
    run.trial("step_0001/a-0a1b2c", ENDED)
    run.trial("flat-0a1b2c")
    run.trial("step_0001/twice-0a1b2c", ENDED)
    run.trial("step_0002/twice-0a1b2c", ENDED)
    for name in ("a-0a1b2c", "step_0001/a-0a1b2c", "trials/step_0001/a-0a1b2c", "a-0a1b2c/"):
        found = show(run, name).trial
        assert (found.path, found.step, found.state) == ("trials/step_0001/a-0a1b2c", 1, "finished")
    assert show(run, "trials/flat-0a1b2c").trial.path == "trials/flat-0a1b2c"
    assert show(run, "flat-0a1b2c").trial.state == "cut_off"
    assert show(run, "step_0002/twice-0a1b2c").trial.step == 2
    with pytest.raises(NoSuchTrial, match=r"2 trials have the name twice-0a1b2c: .*give a path"):
        show(run, "twice-0a1b2c")


def test_of_an_answer_that_is_not_recorded_no_number_is_shown(run: Run) -> None:
    run.trial("step_0001/a-0a1b2c", ENDED, response_body=None, usage=None)
    run.trial("step_0001/b-0a1b2c", ENDED, response_body=None, usage=None, success=False)
    run.trial("step_0001/c-0a1b2c", ENDED)
    turns = {name: show(run, f"{name}-0a1b2c").turns[0] for name in "abc"}
    assert [(t.tool_calls, t.completion_tokens) for t in turns.values()] == [(None, None), (0, None), (1, 4)]
    rows = {name: shown_lines(show(run, f"{name}-0a1b2c"), T) for name in "abc"}
    ends = {
        name: next(row.split() for row in found if row.startswith("   1 ")) for name, found in rows.items()
    }
    assert ends["a"][3:] == ["-", "-", "-", "answer", "not", "recorded"]
    assert ends["b"][3] == "0" and ends["b"][-1] == "failed" and ends["c"][3] == "1"


@pytest.mark.parametrize(
    "name", ["none", "", "..", "../one", "/etc", "step_0001", "trials", "trials/step_0001", "\0"]
)
def test_what_is_no_trial_is_none(run: Run, name: str) -> None:
    run.trial("step_0001/a-0a1b2c", ENDED)
    with pytest.raises(NoSuchTrial):
        show(run, name)


def test_no_trial_is_shown_through_a_link(run: Run, tmp_path: Path) -> None:
    run.trial("step_0001/a-0a1b2c", ENDED)
    (run.dir.trials / "step_0001" / "link").symlink_to(tmp_path)
    with pytest.raises(NoSuchTrial):
        show(run, "link")


def test_one_trial_in_all_its_parts_without_secrets(run: Run) -> None:
    failed = {
        "exception_type": "OSError",
        "exception_message": "api_key=sk-abcdefghijklmnop1234",
        "occurred_at": T + 9,
    }
    rewards = {"verifier_result": {"rewards": {"reward": 0.5, "style": 2}}}
    run.trial("step_0001/a-0a1b2c", {**ENDED, **rewards, "exception_info": failed})
    put(run.dir.trials / "step_0001" / "a-0a1b2c" / "verifier" / "test-stdout.txt", "x" * 3000)
    found = show(run, "a-0a1b2c")
    assert found.trial.rewards == {"reward": 0.5, "style": 2.0} and found.trial.error == "OSError"
    assert found.trial.phases == {"agent": 30.0} and found.trial.model_seconds == 2.0
    assert [(turn.number, turn.seconds, turn.tool_calls) for turn in found.turns] == [(1, 2.0, 1)]
    assert [(file.name, file.size) for file in found.files] == [("verifier/test-stdout.txt", 3000)]
    assert b"sk-abcdefghijklmnop1234" not in encoded(found) and b"OSError" in encoded(found)
    text = "\n".join(shown_lines(found, T + 60))
    for words in (
        "rewards:    reward 0.5, style 2",
        "phases:     agent 30s (model 2.0s, tools 28s)",
        "most time:  for a tool",
        "TURN      AT   TIME   CALLS",
        "verifier/test-stdout.txt",
    ):
        assert words in text, text


def test_a_chat_is_shown_with_what_was_asked_and_said(run: Run) -> None:
    folder = run.dir.trials / "step_0001" / "chat-0a1b2c"
    question = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?\x1b[31m\nquick"},
    ]
    said = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "4 " * 2500}}]}
    chat = call(request_time=T, request_body={"messages": question}, response_body=said)
    put(folder / FILE, lines(chat), T)
    put(folder / "result.json", json.dumps(ENDED), T + 30)
    found = show(run, "chat-0a1b2c")
    told = "\n".join(shown_lines(found, T + 60))
    assert "asked:\n  system: Be brief.\n  user: 2+2?\\x1b[31m\n  quick\n" in told, (
        "control characters are escapes"
    )
    assert "the model said:\n  4 4 4" in told and "… (1,000 more characters)" in told
    assert found.turns[0].said.startswith("4 4") and len(found.turns[0].said) < LONGEST + 100
    put(folder / FILE, lines(call(request_time=T, response_body=None)), T)
    told = "\n".join(shown_lines(show(run, "chat-0a1b2c"), T + 60))
    assert "asked:\n  user: Go." in told and "the model said: nothing is recorded" in told
    put(folder / FILE, lines(call(request_time=T, calls=1)), T)
    assert "asked" not in "\n".join(shown_lines(show(run, "chat-0a1b2c"), T + 60)), "an agent with tools"


@pytest.mark.parametrize(
    ("why", "ending"),
    [
        ("AgentFailedError: exited with 1", "the agent or its reward failed; not trained"),
        (
            "n is not supported; AgentFailedError: exited with 1",
            "the agent or its reward failed: n is not supported; not trained",
        ),
        ("its time was over", "the agent or its reward failed: its time was over; not trained"),
    ],
)
def test_why_a_trial_failed_is_told_once_and_what_it_lacks_is_not_told_of_what_never_was(
    run: Run, why: str, ending: str
) -> None:
    failed = {"exception_type": "AgentFailedError", "exception_message": "exited with 1"}
    result = {**ENDED, "exception_info": failed, "ending": {"cause": "exit", "why": why, "outcome": "masked"}}
    run.trial("step_0001/a-0a1b2c", result)
    folder = run.dir.trials / "step_0001" / "a-0a1b2c"
    (folder / FILE).unlink()
    put(
        folder / "proxy_trajectory.json",
        '{"messages_snapshot": [], "tools": [], "counters": {"num_failed": 1}}',
        T,
    )
    found = show(run, "a-0a1b2c")
    assert (found.ending, found.exception, found.note, found.turns) == (
        ending,
        "AgentFailedError: exited with 1",
        "",
        (),
    )


@pytest.mark.parametrize(
    ("reward", "outcome", "failed", "none"),
    [
        (0.0, "masked", True, True),
        (0.5, "masked", True, False),
        (0.0, "trained", True, False),
        (0.0, "masked", False, False),
        (0.0, "zeroed", True, False),
    ],
)
def test_a_reward_of_0_that_may_stand_for_none_is_not_explained_as_one(
    run: Run, reward: float, outcome: str, failed: bool, none: bool
) -> None:
    error = (
        {"exception_info": {"exception_type": "RewardError", "exception_message": "it is None"}}
        if failed
        else {}
    )
    ending = {"cause": "exit", "why": "no reward", "outcome": outcome}
    run.trial(
        "step_0001/a-0a1b2c",
        {**ENDED, **error, "verifier_result": {"rewards": {"reward": reward}}, "ending": ending},
    )
    told = "\n".join(shown_lines(show(run, "a-0a1b2c"), T + 60))
    assert ((STANDS_FOR_NONE in told), (UNKNOWN in told)) == (none, not none)
    (trial,) = run.dir.trials.glob("*/*")
    page = [block.text for block in reward_blocks(read_trajectory(trial))]
    assert ((STANDS_FOR_NONE in page), (UNKNOWN in page)) == (none, not none)


def test_of_a_chat_in_turns_each_shows_what_it_adds(run: Run) -> None:
    """A turn that continues another, one that says the same again, one beside it, and one of a changed history."""
    folder = run.dir.trials / "step_0001" / "chat-0a1b2c"
    user = [{"role": "user", "content": text} for text in ("2+2?", "And 3+3?", "A title?", "Shorter!")]
    done = {"role": "assistant", "content": "Done."}
    requests = [[user[0]], [user[0], done, user[1]], [user[2]], [user[0], done, user[3]]]
    calls = [call(request_time=T, request_body={"messages": messages}) for messages in requests]
    put(folder / FILE, lines(*calls), T)
    put(folder / "result.json", json.dumps(ENDED), T + 30)
    found = show(run, "chat-0a1b2c")
    assert [turn.asked for turn in found.turns] == [f"user: {one['content']}" for one in user]
    assert "nothing is recorded" not in "\n".join(shown_lines(found, T + 60))


def test_steps_are_those_of_the_runs_state(run: Run) -> None:
    run.trial("step_0001/a-0a1b2c", ENDED)
    run.trial("step_0002/b-0a1b2c", ENDED)
    state = OfflineRun(run.dir.path).poll()
    assert [one.step for one in steps_listed(run.dir, state, False, None).steps] == [2, 1]
    (only,) = steps_listed(run.dir, state, False, 1).steps
    assert only.ended_by == {"submit": 1}
    assert steps_listed(run.dir, None, False, None).steps == ()
    with pytest.raises(NoSuchTrial):
        steps_listed(run.dir, state, False, 9)


def test_steps_that_are_left_out_are_counted_and_can_be_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liverl.observe.trials.tallies.STEPS", 2)
    for step in range(1, 6):
        run.trial(f"step_000{step}/a-0a1b2c", ENDED)
    state = OfflineRun(run.dir.path).poll()
    newest = steps_listed(run.dir, state, False, None)
    assert ([one.step for one in newest.steps], newest.older_steps) == ([5, 4], 3)
    (older,) = steps_listed(run.dir, state, False, 1).steps
    assert (older.step, older.total, older.ended_by) == (1, 1, {"submit": 1})
    html = page("# r", steps=state.trials.steps, older=state.trials.older_steps)
    assert "The newest 2 of 5 steps." in html and "--step N" in html
    assert "steps." not in page("# r", steps=state.trials.steps)


def status(*heads: TrialHead, more: int = 0) -> TrialsStatus:
    ended = sum(one.state != "running" for one in heads)
    return TrialsStatus(len(heads) + more, len(heads) - ended, ended + more, newest=heads)


def test_trials_are_told_once_as_they_end() -> None:
    a, b, c = head("a", ended_at=T + 9), head("b", state="running", ended_at=None), head("c", state="cut_off")
    first = status(a, b)
    ends = NewEnds(first, 0)
    assert ends.new(first) == []
    done = replace(b, state="finished", ended_at=T + 20)
    assert ends.new(status(c, done, a)) == [done, c]
    assert ends.new(status(c, done, a)) == [] and ends.missed == 0
    late = head("d", ended_at=T + 5)
    assert ends.new(status(late, c, done, a, more=3)) == [late], "three others are no longer among the newest"
    assert ends.missed == 3
    assert [one.name for one in NewEnds(status(a, done), 1).new(status(a, done))] == ["b"]


def test_columns_are_left_out_where_a_terminal_is_narrow() -> None:
    heads = [
        head("long-name-0a1b2c", phases={"setup": 9.2, "agent": 30.0}, spent_on="tool", ended_by="submit"),
        head(
            "b",
            state="running",
            ended_at=None,
            phase="setup",
            phase_since=T + 4,
            reward=None,
            waits_for="sandbox",
        ),
        head(
            "c",
            reward=0.51234,
            rewards={"reward": 0.51234},
            error="OSError",
            failure="OSError: x",
            dumped=True,
        ),
        head(
            "d",
            reward=None,
            rewards={"a": 1.0, "b": 2.0},
            flags=("zero_tool_calls",),
            step=None,
            finish_reason="length",
        ),
    ]
    titles, *rows = table(heads, T + 20)
    words = [" ".join(row.split()) for row in rows]
    assert titles.split() == [
        "NAME", "STEP", "STATE", "REWARD", "TURNS", "CALLS", "TIME", "QUEUE", "SETUP", "AGENT", "VERIFIER",
        "WAITS-FOR", "MOSTLY", "ENDED-BY", "FLAGS",
    ]  # fmt: skip
    assert words[0] == "long-name-0a1b2c 1 finished 1 3 2 30s - 9.2s 30s - - tool submitted -"
    assert words[1] == "b 1 running - 3 2 20s - 16s+ - - sandbox - - -"
    assert words[2] == "c 1 finished 0.512 - - 30s - - - - - - OSError -"
    assert words[3] == "d - finished 2 others 3 2 30s - - - - - - no tool call truncated,zero_tool_calls"
    for width in (150, 120, 100, 80, 60, 40, 1):
        narrow = table(heads, T + 20, width)
        assert max(map(len, narrow)) <= max(width, len(narrow[0])) and narrow[0].split()[0] == "NAME"
        assert "TIME" in narrow[0] and "STATE" in narrow[0]
    assert "QUEUE" not in table(heads, T + 20, 130)[0] and "SETUP" in table(heads, T + 20, 100)[0]
    some = Rows([], T, None)
    assert len(some.titles.split()) == 15 and some.line(heads[0], T + 20).split() == rows[0].split()


def test_a_step_in_sentences() -> None:
    step = StepTrials(
        3, 8, 5, 0, 0.25, cut_off=1, ended_by={"submit": 3, "AgentTimeoutError": 2},
        failures={"AgentTimeoutError": 2}, failed_in={"agent": 2},
        phases={"setup": PhaseTimes(5, 8.0, 40.0), "agent": PhaseTimes(5, 30.0, 600.0)},
        slowest=(SlowTrial("a", "p/a", "running", T, None, "agent", "tool"),),
    )  # fmt: skip
    assert step_lines(step, T + 100) == [
        "step 3: 5 of 8 trials finished, 2 running, 1 cut off, mean reward 0.250",
        "  ended by: submitted 3, timed out 2, cut off 1",
        "  errors: AgentTimeoutError 2",
        "  errors in: agent 2",
        "  setup: mean 8.0s, longest 40s (5 trials)",
        "  agent: mean 30s, longest 10m00s (5 trials)",
        "  slow: a has run for 1m40s, waits for a tool",
    ]
    assert step_lines(StepTrials(1, 1, 1, 0, None), T) == ["step 1: 1 of 1 trial finished"]


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (SlowTrial("a", "a", "running"), "slow: a runs, what it waits for is not known"),
        (SlowTrial("a", "a", "running", T, waits_for="sandbox"), "slow: a has run for 9s, waits for its sandbox"),
        (SlowTrial("a", "a", "finished", T, 61.0, spent_on="model"), "slow: a took 1m01s, most of it for the model"),
        (SlowTrial("a", "a", "finished", T, 3.0), "slow: a took 3.0s"),
        (SlowTrial("a", "a", "cut_off", T, 3.0), "slow: a was cut off after 3.0s"),
    ],
)  # fmt: skip
def test_a_slow_trial_in_words(slow: SlowTrial, words: str) -> None:
    assert slow_words(slow, T + 9) == words


@pytest.mark.parametrize(
    ("seconds", "model", "words"),
    [
        ({}, 3.0, ""),
        ({"queue": 1.0, "setup": 8.14, "agent": 30.0, "verifier": 3.0}, 20.0,
         "queue 1.0s, setup 8.1s, agent 30s (model 20s, tools 10s), verifier 3.0s"),
        ({"agent": 2.0}, 9.0, "agent 2.0s (model 2.0s, tools 0.0s)"), ({"agent": 2.0}, None, "agent 2.0s"),
    ],
)  # fmt: skip
def test_phases_in_words(seconds: dict[str, float], model: float | None, words: str) -> None:
    assert phase_words(seconds, model, "task") == words
    assert phase_words(seconds, model, "chat") == words.replace("tools", "reward")
    assert phase_words(seconds, model, "task", acted=False) == words.replace("tools", "its own work")


def test_marks_are_flags_and_what_other_fields_say() -> None:
    assert marks_of(head(flags=("moved_replica",), finish_reason="max_tokens", error="E")) == {
        "moved_replica", "truncated", "error",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("total", "searched", "matched", "printed", "filtered", "step", "words"),
    [
        (0, 0, 0, 0, False, None, "run name has no trials yet"),
        (2, 2, 2, 2, False, None, None),
        (2, 2, 2, 1, False, None, "1 of 2 trials of the run; -n 2 shows all"),
        (640, 200, 200, 50, False, None, "50 of 640 trials of the run; -n 640 shows all"),
        (640, 200, 200, 200, False, None, "200 of 640 trials of the run; -n 640 shows all"),
        (640, 640, 640, 640, False, None, None),
        (8, 8, 8, 5, False, 3, "5 of 8 trials of step 3; -n 8 shows all"),
        (2, 2, 0, 0, True, None, "no trial of the run matches (2 searched)"),
        (2, 2, 1, 1, True, None, "1 of 1 matching trial of the run (2 searched)"),
        (640, 640, 90, 50, True, None, "50 of 90 matching trials of the run (640 searched); -n 90 shows all"),
        (8, 8, 8, 5, True, 3, "5 of 8 matching trials of step 3 (8 searched); -n 8 shows all"),
        (
            640, 200, 200, 50, True, None,
            "50 of 200 matching trials of the run (the newest 200 of 640 trials searched); -n 640 searches all",
        ),
        (
            640, 200, 0, 0, True, None,
            "no trial of the run matches (the newest 200 of 640 trials searched); -n 640 searches all",
        ),
    ],
)  # fmt: skip
def test_what_a_list_leaves_out(
    total: int, searched: int, matched: int, printed: int, filtered: bool, step: int | None, words: str | None
) -> None:
    trials = tuple(head(f"t{number}") for number in range(printed))
    found = TrialsListed("name", "/run", False, step, total, matched, trials, searched=searched)
    assert left_out(found, filtered=filtered) == words


@pytest.mark.parametrize(
    ("most", "total", "needed"), [(1, 2, False), (2, 3, True), (2, 1, False), (9, 1, False)]
)
def test_more_than_the_newest_trials_are_read_from_the_index(most: int, total: int, needed: bool) -> None:
    state = snapshot(trials=TrialsStatus(total=total, newest=(head(),)))
    assert needs_index(state, most) is needed
    assert not needs_index(None, most)
