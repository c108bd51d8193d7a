"""Every format of trajectories: the list of trials and the page of a trial count the same turns and calls."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kit.trial_folders import FILE, call, lines

from liverl.model import TrialHead
from liverl.observe.trials.phases import Phases
from liverl.observe.trials.record_forms import joined_chunks
from liverl.observe.trials.scanner import LineReader
from liverl.observe.trials.trajectory import Trajectory, read_trajectory
from liverl.observe.trials.trial import Trial
from liverl_tui.widgets.base.trial_words import flag_words
from liverl_tui.widgets.trajectory.head import header_rows

DATA = Path(__file__).parents[1] / "data"
FORMATS = DATA / "trajectories"
DONE = json.dumps({"task_name": "t", "verifier_result": {"rewards": {"reward": 1.0}}})
CHUNKS = json.loads((FORMATS / "chunks.json").read_text())


def both(tmp_path: Path, files: dict[str, str], result: str = DONE) -> tuple[TrialHead, Trajectory]:
    """A finished trial with these files, as the list of trials and its page have it."""
    folder = tmp_path / "trials" / "step_0001" / "fix__Ab3dE6g"
    old = time.time() - 60
    for name, text in {**files, "result.json": result, "config.json": "{}"}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (old, old))
    trial = Trial(str(tmp_path / "trials"), "step_0001/fix__Ab3dE6g", 1)
    assert trial.check(LineReader(), time.time())
    return trial.head(), read_trajectory(folder)


class Case(NamedTuple):
    """``file``: its name in the trial; ``turns`` and ``calls``: answered turns and tool calls; ``texts``: what is on
    the page; ``failed``: calls that failed."""

    file: str
    text: str
    turns: int
    calls: int
    texts: tuple[str, ...]
    failed: int = 0


def record(body: Any, **other: Any) -> str:
    return lines({**call(), "response_body": body, **other})


def openai_stream() -> Iterator[dict[str, Any]]:
    """A streamed reply with reasoning and two tool calls, whose arguments come in pieces (simulated)."""
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "reasoning_content": "Let me "},
        {"reasoning_content": "look."},
        {"content": "I'll "},
        {"content": "list."},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "ls", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"path": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"/src"}'}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "cat", "arguments": "{}"}}]},
    ]
    for delta in deltas:
        yield {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    yield {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}


ANTHROPIC: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"model": "m", "content": [], "usage": {"input_tokens": 5}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm, look."}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Reading "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "it."}},
    {"type": "content_block_start", "index": 2,
     "content_block": {"type": "tool_use", "id": "u", "name": "Read", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"file": "a'}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '.py"}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]  # fmt: skip


def sse(events: list[dict[str, Any]]) -> str:
    return "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


CASES = {
    "LiteLLM's recorder": Case(FILE, lines(call(calls=1), call()), 2, 1, ("Done.",)),
    "a failed call": Case(FILE, lines(call(), call(success=False, response_body=None)), 1, 0, ("Done.",), 1),
    "chunks of a real stream": Case(FILE, record(CHUNKS, stream=True), 1, 0, ("a streamed reply",)),
    "chunks with calls": Case(
        FILE,
        record(list(openai_stream())),
        1,
        2,
        ("Let me look.", "I'll list.", "ls", '"path": "/src"', "cat"),
    ),
    "chunks as texts": Case(
        FILE, record([f"data: {json.dumps(chunk)}" for chunk in openai_stream()]), 1, 2, ("I'll list.",)
    ),
    "the text of a stream": Case(FILE, record(sse(list(openai_stream()))), 1, 2, ("I'll list.",)),
    "Anthropic's events": Case(FILE, record(ANTHROPIC), 1, 1, ("Hm, look.", "Reading it.", "Read", '"a.py"')),
    "Anthropic's stream": Case(FILE, record(sse(ANTHROPIC)), 1, 1, ("Reading it.",)),
    "a stream that was cut": Case(FILE, record(list(openai_stream())[:6]), 1, 1, ("I'll list.", '{"path": ')),
    "StandardLoggingPayload": Case(
        FILE,
        (FORMATS / "standard-logging-payload.jsonl").read_text(),
        *(3, 1),
        ("hello", "hi there", "ls", "a streamed reply", "boom"),
        1,
    ),
    "proxy_trajectory.json": Case(
        "proxy_trajectory.json",
        json.dumps(
            {"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Yes."}]}
        ),
        *(1, 0),
        ("Yes.",),
    ),
    "ATIF": Case(
        "agent/trajectory.json",
        json.dumps(
            {
                "steps": [
                    {"source": "user", "message": "Go."},
                    {
                        "source": "agent",
                        "message": "Yes.",
                        "tool_calls": [{"function_name": "ls", "arguments": {}}],
                    },
                ]
            }
        ),
        *(1, 1),
        ("Yes.",),
    ),
    "mini-swe-agent": Case(
        "agent/mini.traj.json",
        (FORMATS / "mini.traj.json").read_text(),
        2,
        2,
        ("ls /dev/null", "/dev/null\\n"),
    ),
    "SWE-agent": Case(
        "agent/repo__1.traj", (FORMATS / "sweagent.traj").read_text(), 1, 1, ("look", "ls", "a.py")
    ),
    "SWE-agent beside the agent's folder": Case(
        "repo__1.traj", (FORMATS / "sweagent.traj").read_text(), 1, 1, ()
    ),
    "OpenHands": Case(
        "agent/output.jsonl",
        (FORMATS / "openhands.jsonl").read_text(),
        2,
        2,
        ("Fix the issue", "execute_bash", "a.py"),
    ),
}


def page(trajectory: Trajectory) -> str:
    parts = [part for turn in trajectory.turns for part in (*turn.before, *turn.answer, *turn.after)]
    return "\n".join(f"{part.name} {part.text}" for part in parts)


@pytest.mark.parametrize("name", CASES)
def test_list_and_page_agree(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    head, trajectory = both(tmp_path, {case.file: case.text})
    answered = [turn for turn in trajectory.turns if turn.success]
    assert (head.turns, head.tool_calls) == (case.turns, case.calls)
    assert (len(answered), trajectory.tool_calls) == (case.turns, case.calls)
    assert len(trajectory.turns) - len(answered) == case.failed
    assert trajectory.source == case.file and trajectory.bad_records == 0
    for text in case.texts:
        assert text in page(trajectory)
    assert "no turn" not in [word for word, _ in flag_words(head)]
    title = "\n".join(row.text for row in header_rows(200, "x", trajectory))
    failed = f", {case.failed} failed call" if case.failed else ""
    assert f"{case.turns} turn{'s' * (case.turns != 1)}{failed} " in title


def test_what_a_payload_says_is_kept(tmp_path: Path) -> None:
    _, trajectory = both(tmp_path, {FILE: CASES["StandardLoggingPayload"].text})
    first, second, third, failed = trajectory.turns
    assert (first.finish_reason, first.completion_tokens, first.prompt_tokens) == ("stop", 20, 10)
    assert (first.model, first.seconds is not None, third.stream) == ("policy", True, True)
    assert (first.started_at, second.finish_reason) == (pytest.approx(1795801630.83), "stop")
    assert "boom" in failed.answer[-1].text and failed.answer[-1].kind == "error"
    assert (first.offered, second.offered) == (False, True) and "zero_tool_calls" not in trajectory.flags


@pytest.mark.parametrize(
    "body",
    [None, "", "plain text", [], {}, [1, "x"], ["data: x"], {"choices": []}, [{"type": "ping"}], "data:"],
)
def test_what_is_no_stream_is_left_alone(body: object) -> None:
    assert joined_chunks(body) is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("agent/x.traj", "[1]"),
        ("agent/x.traj", '{"other": 1}'),
        ("agent/x.traj.json", '{"messages": []}'),
        ("agent/output.jsonl", '{"instance_id": "a"}'),
        ("agent/output.jsonl", "{torn"),
    ],
)
def test_a_file_that_only_has_the_name_is_told(tmp_path: Path, file: str, text: str) -> None:
    head, trajectory = both(tmp_path, {file: text})
    assert (head.turns, trajectory.turns) == (0, ())
    assert "although its name says so" in trajectory.note
    assert "no turn" in [word for word, _ in flag_words(head)]


@pytest.mark.parametrize(
    ("rewards", "why", "reward"),
    [
        ('{"reward": NaN}', "reward is NaN, which is not a finite number", None),
        ('{"reward": Infinity}', "reward is Infinity, which is not a finite number", None),
        ('{"reward": "0.5"}', 'reward is "0.5", which is not a finite number', None),
        ('{"reward": null}', "reward is null, which is not a finite number", None),
        ('{"score": [1]}', "score is [1], which is not a finite number", None),
        (
            '{"tests": 0.75, "style": "0.5"}',
            '2 rewards, none of them named reward: tests 0.75, style "0.5"',
            None,
        ),
        ('{"tests": 0.75, "reward": 0.5}', "", 0.5),
        ('{"score": 0.5}', "", 0.5),
        ("{}", "", None),
        ("null", "", None),
    ],
)
def test_a_reward_that_is_none_is_told(tmp_path: Path, rewards: str, why: str, reward: float | None) -> None:
    result = f'{{"task_name": "t", "verifier_result": {{"rewards": {rewards}}}}}'
    head, trajectory = both(tmp_path, {FILE: lines(call(calls=1))}, result)
    assert (head.reward, head.no_reward) == (reward, why)
    assert ("no_reward" in head.flags) == ("no_reward" in trajectory.flags) == bool(why)
    assert (f"no reward: {why}" in trajectory.note) == bool(why)
    assert (("no reward", "bad") in flag_words(head)) == bool(why)


def test_the_head_of_a_trial_does_not_contradict_itself() -> None:
    failed = Trajectory(
        "t", "", "task", running=False, rewards={"reward": 0.0}, flags=("no_reward",), kind="harbor",
        exception="TypeError: " + "score " * 200, phases=Phases({"agent": 5.0}), model_seconds=2.0,
    )  # fmt: skip
    rows = [row.text for row in header_rows(100, "t", failed)]
    text = "\n".join(rows)
    assert "✖ failed" in text and "done" not in text, "an exception is no good end"
    assert "no reward" in text and "reward 0" not in text
    assert "tools" not in text and "its own work 3.0s" in text, "it called none"
    assert sum("score" in row for row in rows) == 3 and "result.json" in text
