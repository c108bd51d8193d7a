"""Kinds of agents in a trial of verl: which one runs a row, and what each gets, gives back and writes."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.harbor_settings import harbor_settings
from kit.own_runs import QUESTION, Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.agents import loop
from liverl.agents.harbor.settings import HarborSettings
from liverl.agents.kinds import AgentSettings, kind_of
from liverl.agents.loop import Conversation, Reply, Talk, TrialFailed
from liverl.agents.tasks import TASKS
from liverl.agents.tool_calls import render_qwen3_coder
from liverl.agents.tools import TOOLS
from liverl.embedded.tokenizer import decode
from liverl.sessions.store import _ID
from liverl.verl_runtime.carriers import Lengths
from liverl.verl_runtime.kinds import KINDS
from liverl.verl_runtime.kinds.rewards import as_reward, read_reward
from liverl.verl_runtime.loop_trial import LoopSettings, files_error, read_prompt
from liverl.verl_runtime.plain import plain

TASK_ID = next(iter(TASKS))


def script(_prompt: str, turn: int) -> str:
    return f"reply {turn}"


# --- which agent runs a row -------------------------------------------------------------------------------------------


@given(
    named=st.sampled_from(["auto", *KINDS]),
    kind=st.sampled_from(["auto", *KINDS]),
    task=st.sampled_from([None, TASK_ID, "other", 7]),
    path=st.sampled_from([None, "", "tasks/one"]),
    harbor=st.sampled_from([None, harbor_settings()]),
    command=st.sampled_from([(), ("agent",)]),
    python=st.sampled_from(["", "m:A"]),
    has_tools=st.booleans(),
)
def test_the_row_decides_then_the_setting_then_what_the_run_has(
    named: str,
    kind: str,
    task: Any,
    path: str | None,
    harbor: HarborSettings | None,
    command: tuple[str, ...],
    python: str,
    has_tools: bool,
) -> None:
    extra = {name: value for name, value in (("task_id", task), ("task_path", path)) if value is not None}
    row = {"extra_info": extra} if extra else {}
    agent = AgentSettings(kind=kind, command=command, python=python, harbor=harbor)
    found = kind_of(row, named, agent, has_tools)
    assert found in KINDS
    if named != "auto":
        expected = named
    elif kind != "auto":
        expected = kind
    else:
        candidates = {
            "task": task == TASK_ID,
            "harbor": path and harbor,
            "command": command,
            "python": python,
            "tools": has_tools,
        }
        expected = next((name for name, can in candidates.items() if can), "chat")
    assert found == expected


SETTINGS = LoopSettings("/r", "/r/attempt_001", "m", 400, 400)


def row_of(**columns: Any) -> dict[str, Any]:
    return {"raw_prompt": QUESTION, "global_steps": 3, "uid": "u", "session_id": 0, **columns}


@pytest.mark.parametrize("kind", ["command", "python"])
def test_a_row_that_names_an_agent_that_is_not_set_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=f"a row names the agent liverl_{kind}: set agent.{kind}"):
        read_prompt(row_of(), {}, SETTINGS, named=kind)


@pytest.mark.parametrize("extra", [{}, {"extra_info": None}, {"extra_info": {"task_id": "other"}}])
def test_a_row_that_is_to_be_a_task_must_name_one(extra: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not a task of liverl\.agents\.tasks"):
        read_prompt(row_of(**extra), {}, SETTINGS, named="task")


# --- names of trials --------------------------------------------------------------------------------------------------

ODD = [
    "openai/gsm8k",
    "",
    "/",
    "_own",
    "-x",
    "..",
    "päth/größe",
    "数据",
    "a b\n\tc",
    "x" * 400,
    None,
    7,
    "a/" * 300,
]


@pytest.mark.parametrize("source", ODD)
def test_every_trial_has_a_name_that_a_session_may_have(source: Any) -> None:
    name = read_prompt(row_of(data_source=source, extra_info={"index": 4}), {}, SETTINGS).name()
    assert _ID.fullmatch(name), name


@given(st.text(), st.one_of(st.none(), st.text()), st.one_of(st.none(), st.integers(), st.text()))
def test_no_row_can_give_its_trial_a_name_that_is_none(source: str, task: str | None, index: Any) -> None:
    row = row_of(data_source=source, extra_info={"index": index, "task_id": task})
    name = read_prompt(row, {}, SETTINGS, named="chat").name()
    assert _ID.fullmatch(name) and len(name) <= 60


def test_a_name_says_source_and_index() -> None:
    name = read_prompt(row_of(data_source="openai/gsm8k", extra_info={"index": 41}), {}, SETTINGS).name()
    assert re.fullmatch(r"gsm8k-41-[0-9a-f]{8}", name)
    assert read_prompt(row_of(data_source="d", index=5), {}, SETTINGS).name().startswith("d-5-")
    for index, digits in (({"index": 41}, 8), ({}, 16)):
        name = read_prompt(row_of(data_source="x" * 400, extra_info=index), {}, SETTINGS).name()
        assert re.fullmatch(rf"x{{40}}-[0-9a-f]{{{digits}}}", name), "a pod's name has at most 63 characters"


# --- values and rewards -----------------------------------------------------------------------------------------------


class Float64(float):
    """As numpy's: a float that JSON cannot hold."""


class Text(str):
    """As numpy's ``str_``."""


class Whole(int):
    """An integer of somebody's."""


class Array:
    """What numpy and torch have in common."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def tolist(self) -> Any:
        return list(self._values) if len(self._values) != 1 else self._values[0]


class Odd:
    def __str__(self) -> str:
        return "odd"


def test_plain_values_can_be_json() -> None:
    value = {
        1: (Float64(1.5), Text("t"), Whole(3), True, None),
        "array": Array(Array(1), Array(2.5, "x")),
        "set": {4},
        "odd": Odd(),
    }
    found = plain(value)
    assert found == {"1": [1.5, "t", 3, True, None], "array": [1, [2.5, "x"]], "set": [4], "odd": "odd"}
    assert [type(one) for one in found["1"]] == [float, str, int, bool, type(None)]
    assert found["1"][3] is True


@pytest.mark.parametrize(
    ("value", "reward"),
    [(1, 1.0), (0.25, 0.25), (True, 1.0), (-3, -3.0), (None, None), (Float64(0.5), 0.5), (Array(0.75), 0.75)],
)
def test_a_finite_number_is_a_reward(value: Any, reward: float | None) -> None:
    assert as_reward(value, "x") == reward


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", [1.0], {}, Array(1, 2), Odd(), 10**400])
def test_anything_else_is_no_reward(value: Any) -> None:
    with pytest.raises(TrialFailed, match=r"^the result is .*; expected a finite number") as caught:
        as_reward(value, "the result")
    assert caught.value.kind == "RewardError" and len(str(caught.value)) < 120


def test_the_file_of_a_reward_holds_one_number(tmp_path: Path) -> None:
    file = tmp_path / "reward.txt"
    assert read_reward(file) is None
    file.write_text("\n 0.5 \n")
    assert read_reward(file) == 0.5
    for text in ("", "nan", "-inf", "0.5 0.6", "good", "\x00", "1" * 5000):
        file.write_text(text)
        with pytest.raises(TrialFailed, match=r"the reward in reward\.txt is"):
            read_reward(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(TrialFailed, match="the reward in"):
        read_reward(file)


def test_a_reward_file_that_is_none_does_not_block_the_worker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "folder"):
        with pytest.raises(TrialFailed, match=f"{name} cannot be read: not a regular file") as caught:
            read_reward(tmp_path / name)
        assert caught.value.kind == "RewardError"


# --- chat -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trials(tmp_path: Path, host: SessionHost) -> Callable[..., Trials]:
    """A run with these settings of section ``agent``."""
    return lambda **agent: Trials(tmp_path, host, agent)


async def test_a_chat_is_one_reply_and_its_reward_is_verls(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    run = trials(kind="chat")
    outcome = await run.run(row={"reward_model": {"ground_truth": Array(5)}})
    assert (outcome.reward, outcome.ended_by, outcome.num_turns) == (None, "reply", 2)
    assert not replica.parsed[0].get("tools") and "tool_choice" not in replica.parsed[0]
    (only,) = outcome.rows
    assert only.prompt == replica.prompts[0] and only.response == replica.replies[0]
    folder = outcome.files.directory
    assert not outcome.recorded and not (folder / "result.json").exists()
    assert json.loads((folder / "liverl.json").read_text())["agent"] == "chat"

    outcome.record(0.75, {"acc": Float64(0.5), "pred": Array("a", "b")})
    result = run.result(outcome)
    assert result["verifier_result"] == {"rewards": {"reward": 0.75}} and result["exception_info"] is None
    assert result["reward_extra_info"] == {"acc": 0.5, "pred": ["a", "b"]}
    assert (result["turns"], result["turns_trained"], result["ended_by"]) == (1, 1, "reply")
    assert (folder / "verifier" / "reward.txt").read_text() == "0.75\n"
    assert [step["source"] for step in run.story(outcome)] == ["user", "agent"]

    outcome.record(0.1)
    outcome.fail(ValueError("too late"))
    assert run.result(outcome) == result and outcome.reward == 0.75


async def test_replies_that_are_beyond_what_verl_trains_are_told(trials: Callable[..., Trials]) -> None:
    outcome = await trials().run(prompt_length=2, response_length=3)
    assert (outcome.rows, outcome.reward, outcome.ending.cause) == ([], 0.0, "limit")
    assert "no sampled token is within the 5 tokens of a row that verl trains" in (outcome.exception or "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_offers_its_own_tools_or_those_of_the_run(kind: str) -> None:
    own = list(TOOLS) if kind == "task" else []
    assert list(KINDS[kind].definitions(Echo())) == (list(Echo.definitions) if kind == "tools" else own)
    assert list(KINDS[kind].definitions(None)) == own


def test_an_entry_of_the_agent_loop_may_leave_out_what_has_a_default() -> None:
    settings = LoopSettings("/r", "/r/attempt_001", "m", 400, 500)
    assert (settings.max_turns, settings.trial_timeout, settings.max_retries) == (8, 2400.0, 0)
    assert (settings.temperature, settings.step_trials) == (1.0, 0)
    assert settings.lengths == Lengths(400, 500, 256)


def remote(error: Exception) -> Exception:
    """As Ray raises what was raised in another process."""
    told = RuntimeError(f"ray::RewardLoopWorker.compute_score() {error}")
    told.cause = error  # type: ignore[attr-defined]
    return told


class Worker:
    """verl's, where it asks for a reward, and where it stores a trial."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def _compute_score(self) -> None:
        raise self.error

    def _put(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1, 1.0),
        (True, 1.0),
        (Float64(0.25), 0.25),
        (-3.5, -3.5),
        (float("nan"), "what reward.py:score returned is nan; expected a finite number"),
        (float("inf"), "is inf"),
        (-(10**400), "expected a finite number"),
        (Float64("nan"), "is nan"),
        ("1.0", "is '1.0'; expected a finite number"),
        ([1.0], "expected a finite number"),
        (None, "what reward.py:score returned is None; expected a finite number"),
    ],
)
async def test_a_trial_is_trained_with_a_finite_reward_only(
    trials: Callable[..., Trials], value: Any, told: float | str
) -> None:
    """One reward that is NaN makes the gradient of the whole step NaN."""
    run = trials()
    outcome = await run.run()
    outcome.files.facts["reward_from"] = {"function": "reward.py:score"}
    if isinstance(told, float):
        outcome.score(value)
        assert run.result(outcome)["verifier_result"] == {"rewards": {"reward": told}}
        assert run.result(outcome)["turns_trained"] == 1
        return
    with pytest.raises(TrialFailed) as raised:
        outcome.score(value, {"acc": value})
    outcome.fail(raised.value)
    result = run.result(outcome)
    assert result["exception_info"]["exception_type"] == "RewardError"
    assert told in result["exception_info"]["exception_message"]
    assert (outcome.rows, result["turns_trained"], result["ending"]["outcome"]) == ([], 0, "masked")
    outcome.score(1.0)
    assert run.result(outcome) == result, "what is recorded stays"


@pytest.mark.parametrize(
    ("error", "method", "kind", "words"),
    [
        (KeyError("answer"), "_compute_score", "RewardError", "reward.py:score raised KeyError: 'answer'"),
        (remote(ValueError("x")), "_compute_score", "RewardError", "reward.py:score raised ValueError: x"),
        (AssertionError(), "_compute_score", "RewardError", "reward.py:score raised AssertionError"),
        (remote(ValueError("x")), "_put", "ValueError", "x"),
    ],
)
async def test_what_the_reward_function_raised_has_its_name(
    trials: Callable[..., Trials], error: Exception, method: str, kind: str, words: str
) -> None:
    run = trials()
    outcome = await run.run()
    outcome.files.facts["reward_from"] = {"function": "reward.py:score"}
    with pytest.raises(type(error)) as raised:
        getattr(Worker(error), method)()
    outcome.fail(raised.value)
    info = run.result(outcome)["exception_info"]
    assert (info["exception_type"], info["exception_message"]) == (kind, words)
    assert f"in {method}" in info["exception_traceback"]
    assert words in run.result(outcome)["ending"]["why"]


async def test_a_reward_that_cannot_be_computed_fails_the_trial(trials: Callable[..., Trials]) -> None:
    run = trials()
    outcome = await run.run()

    def score() -> None:
        raise ZeroDivisionError("of the user's")

    try:
        score()
    except ZeroDivisionError as error:
        outcome.fail(error)
    result = run.result(outcome)
    info = result["exception_info"]
    assert (info["exception_type"], info["exception_message"]) == ("ZeroDivisionError", "of the user's")
    assert "in score" in info["exception_traceback"]
    assert result["verifier_result"] is None and result["ended_by"] == "exception"
    outcome.record(1.0)
    assert run.result(outcome) == result


async def test_a_reward_that_is_known_elsewhere_is_none_in_the_result(trials: Callable[..., Trials]) -> None:
    run = trials()
    outcome = await run.run()
    outcome.record(None)
    assert run.result(outcome)["verifier_result"] is None
    assert not (outcome.files.directory / "verifier").exists()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the disk be full for files of this name; "": it has room again."""
    chosen = ""
    opened = os.open

    def choose(name: str) -> None:
        nonlocal chosen
        chosen = name

    def open_(path: Any, *more: Any, **named: Any) -> int:
        if chosen and f".{chosen}." in str(path):
            return opened("/dev/full", os.O_WRONLY)
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", open_)
    return choose


NO_ROOM = "TrialFilesError: {}/{}: No space left on device"


async def test_a_task_that_cannot_be_written_fails_the_trial_by_name_and_ends_its_session(
    trials: Callable[..., Trials], full: Callable[[str], None], host: SessionHost
) -> None:
    run = trials(command=("true",))
    full("task.json")
    outcome = await run.run()
    folder = outcome.files.directory
    assert outcome.exception == NO_ROOM.format(folder, "task.json")
    assert (outcome.rows, outcome.reward, outcome.ended_by) == ([], 0.0, "exception")
    assert run.result(outcome)["exception_info"]["exception_type"] == "TrialFilesError"
    assert host.store.facts()["open"] == 0
    full("")
    assert (await trials(kind="chat").run()).exception is None


async def test_a_result_that_cannot_be_written_fails_the_trial_by_name(
    trials: Callable[..., Trials],
    agent: Callable[[str], Trials],
    full: Callable[[str], None],
    host: SessionHost,
) -> None:
    run = agent("await chat(task['messages'])\nreturn 1.0")
    full("result.json")
    outcome = await run.run()
    assert outcome.exception == NO_ROOM.format(outcome.files.directory, "result.json")
    assert (outcome.rows, outcome.reward, outcome.recorded) == ([], 0.0, False)
    assert host.store.facts()["open"] == 0
    with pytest.raises(OSError, match="No space left"):
        outcome.record(outcome.reward)
    full("")
    outcome.record(outcome.reward)
    result = run.result(outcome)
    assert result["exception_info"]["exception_type"] == "TrialFilesError"
    assert (result["ended_by"], result["verifier_result"]) == ("exception", None)


async def test_a_result_that_cannot_be_written_when_verl_knows_the_reward(
    trials: Callable[..., Trials], full: Callable[[str], None]
) -> None:
    run = trials()
    outcome = await run.run()
    full("result.json")
    with pytest.raises(OSError) as raised:
        outcome.record(1.0)
    assert not outcome.recorded
    full("")
    outcome.fail(files_error(raised.value))
    info = run.result(outcome)["exception_info"]
    assert (
        info["exception_type"] == "TrialFilesError" and "result.json: No space" in info["exception_message"]
    )


async def test_a_row_may_begin_with_examples_of_replies(trials: Callable[..., Trials]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "reply 2", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
        {"role": "assistant", "content": "2"},
        *QUESTION,
    ]
    run = trials()
    outcome = await run.run(messages)
    assert outcome.exception is None
    outcome.record(1.0)
    steps = run.story(outcome)
    assert [step["source"] for step in steps] == ["system", "user", "agent", "agent", "user", "agent"]
    assert [("metrics" in step) for step in steps] == [False, False, False, False, False, True]
    assert steps[2]["observation"] == {"results": [{"source_call_id": "c", "content": "2"}]}
    assert steps[2]["tool_calls"][0] == {"tool_call_id": "c", "function_name": "add", "arguments": {"a": 1}}
    assert steps[5]["message"] == "reply 2" and run.result(outcome)["turns"] == 1


class Echo:
    """A tool whose results are names of files."""

    definitions = ({"type": "function", "function": {"name": "add", "parameters": {}}},)
    last = ""

    def begin(self, messages: list[dict[str, Any]]) -> None:
        pass

    async def answer(self, _name: str, _arguments: dict[str, Any]) -> str:
        return os.fsdecode(b"caf\xe9")


async def test_texts_that_json_cannot_hold_are_sent_and_written_with_question_marks(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    replica.reply = lambda _prompt, turn: "done" if turn else CALL
    run = trials(kind="tools")
    outcome = await run.run([{"role": "user", "content": "a\ud800b"}], tools=Echo())
    assert outcome.exception is None and outcome.tool_calls == 1
    sent = decode(replica.prompts[1])
    assert "a?b" in sent and "caf?" in sent
    outcome.record(1.0)
    steps = run.story(outcome)
    assert steps[0]["message"] == "a?b" and steps[1]["observation"]["results"][0]["content"] == "caf?"


async def test_messages_that_no_server_takes_fail_their_trial_only(trials: Callable[..., Trials]) -> None:
    run = trials()
    outcome = await run.run([{"content": "whose?"}])
    assert (outcome.exception or "").startswith("ProxyRefusedError: HTTP 400") and outcome.rows == []
    assert run.result(outcome)["exception_info"]["exception_type"] == "ProxyRefusedError"


# --- tools ------------------------------------------------------------------------------------------------------------

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
    },
}


class Adder:
    """Tools of a run."""

    definitions: Sequence[dict[str, Any]] = (ADD,)
    last = ""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.begun: list[list[dict[str, Any]]] = []

    def begin(self, messages: list[dict[str, Any]]) -> None:
        self.begun.append(messages)

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        self.calls.append((name, arguments))
        return str(int(arguments["a"]) + int(arguments["b"]))

    def not_called(self, name: str) -> None:
        pass


CALL = render_qwen3_coder("add", {"a": "2", "b": "3"})


async def test_calls_are_answered_until_a_reply_has_none(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    replica.reply = lambda _prompt, turn: [CALL, CALL + CALL, "5"][turn]
    tools = Adder()
    run = trials()
    outcome = await run.run(tools=tools)
    assert (outcome.reward, outcome.ended_by, outcome.tool_calls) == (None, "no_tool_call", 3)
    assert tools.calls == [("add", {"a": "2", "b": "3"})] * 3
    assert [[one["role"] for one in messages][:3] for messages in tools.begun] == [
        ["user", "assistant", "tool"]
    ]
    assert replica.parsed[0]["tools"] == [ADD]
    (only,) = outcome.rows  # all turns are one conversation
    assert only.turns == 3 and sum(only.mask) == sum(len(reply) for reply in replica.replies)
    outcome.record(1.0)
    steps = run.story(outcome)
    assert [len(step.get("observation", {}).get("results", [])) for step in steps] == [0, 1, 2, 0]
    assert all("metrics" in step for step in steps[1:])
    document = json.loads((outcome.files.directory / "agent" / "trajectory.json").read_text())
    assert document["agent"]["tool_definitions"] == [ADD]


async def test_a_conversation_with_tools_ends_with_its_turns(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    replica.reply = lambda _prompt, _turn: CALL
    outcome = await trials().run(tools=Adder(), max_turns=2)
    assert (outcome.ended_by, len(replica.replies), outcome.exception) == ("max_iterations", 2, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [("[1]", "error: the arguments are not an object"), ("{", "error: the arguments are not JSON")],
)
async def test_arguments_that_are_no_object_are_said_to_the_model(
    monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}
    said = [{"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": "then not"}]

    async def ask(*_: Any) -> Reply:
        return Reply(said.pop(0), "stop", [], [], 3)

    monkeypatch.setattr(loop, "ask", ask)
    tools, conversation = Adder(), Conversation(list(QUESTION))
    talk = Talk("http://x", {}, {}, 5, 60.0)
    await loop.converse(
        None, talk, conversation, tools, options=lambda _turn: {}, heard=lambda _reply: ""  # type: ignore[arg-type]
    )  # fmt: skip
    assert tools.calls == [] and conversation.ended_by == "no_tool_call"
    answer = conversation.messages[2]
    assert (answer["role"], answer["tool_call_id"]) == ("tool", "c") and answer["content"].startswith(words)


async def test_tools_without_any_definition_are_a_chat(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    outcome = await trials(kind="tools").run()
    assert (outcome.ended_by, len(replica.replies)) == ("reply", 1)
    assert not replica.parsed[0].get("tools")


# --- a Python class ---------------------------------------------------------------------------------------------------


@pytest.fixture
def agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: Callable[..., Trials], request: Any
) -> Callable[[str], Trials]:
    """A run whose agent is a class with this body of ``run``."""
    name = "own_" + re.sub(r"\W", "_", request.node.name)
    monkeypatch.syspath_prepend(tmp_path)

    def write(body: str, header: str = "async def run(self, task, chat, dir):") -> Trials:
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        (tmp_path / f"{name}.py").write_text(f"import asyncio\nclass Agent:\n    {header}\n{lines}\n")
        return trials(python=f"{name}:Agent")

    return write


async def test_a_class_gets_its_row_and_gives_a_reward(
    agent: Callable[[str], Trials], replica: TokenReplica, tmp_path: Path
) -> None:
    run = agent(
        "import json, pathlib\n"
        "assert list(dir.iterdir()) == []\n"
        "first = await chat(task['messages'], temperature=5, model='other')\n"
        "again = [*task['messages'], first, {'role': 'user', 'content': 'sure?'}]\n"
        "second = await chat(again)\n"
        "(dir / 'seen.json').write_text(json.dumps([task['row'], first, second]))\n"
        "return 0.25\n"
    )
    outcome = await run.run(row={"reward_model": {"ground_truth": "5"}})
    assert (outcome.exception, outcome.reward, outcome.ended_by) == (None, 0.25, "return")
    row, first, second = json.loads((outcome.files.directory / "work" / "seen.json").read_text())
    assert row["reward_model"] == {"ground_truth": "5"} and "raw_prompt" not in row and "uid" not in row
    assert (first["role"], first["content"], second["content"]) == ("assistant", "reply 0", "reply 1")
    (only,) = outcome.rows  # the second request continues the first
    assert only.turns == 2 and outcome.num_turns == 4
    result = run.result(outcome)  # the reward is known: it is written at once
    assert (result["turns"], result["verifier_result"]) == (2, {"rewards": {"reward": 0.25}})
    assert [step["source"] for step in run.story(outcome)] == ["user", "agent", "user", "agent"]


async def test_a_class_with_tools_reads_the_calls(
    agent: Callable[[str], Trials], replica: TokenReplica
) -> None:
    replica.reply = lambda _prompt, _turn: CALL
    run = agent(
        f"message = await chat(task['messages'], tools=[{ADD!r}])\n"
        "call = message['tool_calls'][0]\n"
        "answer = {'role': 'tool', 'tool_call_id': call['id'], 'content': '5'}\n"
        f"await chat([*task['messages'], message, answer], tools=[{ADD!r}])\n"
        "return float(message['content'] == '' and call['function']['name'] == 'add')"
    )
    outcome = await run.run()
    assert (outcome.exception, outcome.reward, outcome.tool_calls) == (None, 1.0, 2)
    (only,) = outcome.rows
    assert only.turns == 2
    assert all("metrics" in step for step in run.story(outcome) if step["source"] == "agent")
    assert replica.parsed[0]["tools"] == [ADD]


async def test_a_class_may_leave_the_reward_to_verl(agent: Callable[[str], Trials]) -> None:
    outcome = await agent("await chat(task['messages'])").run()
    assert (outcome.exception, outcome.reward, outcome.recorded) == (None, None, False)


async def test_conversations_apart_are_each_trained(
    agent: Callable[[str], Trials], replica: TokenReplica
) -> None:
    run = agent(
        "async def one(text):\n"
        "    return await chat([{'role': 'user', 'content': text}])\n"
        "await asyncio.gather(one('a'), one('b'))\n"
        "await one('c')\n"
        "return 1\n"
    )
    outcome = await run.run()
    assert outcome.exception is None and len(replica.replies) == 3
    trained = sum(sum(row.mask) for row in outcome.rows)
    assert trained + sum(outcome.not_trained.values()) == sum(map(len, replica.replies))
    assert run.result(outcome)["turns"] == 3 and len(run.story(outcome)) == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [("'good'", "'good'"), ("float('nan')", "is nan"), ("10 ** 400", "is 1000"), ("[1]", "")],
)
async def test_a_result_that_is_no_number_fails_the_trial(
    agent: Callable[[str], Trials], value: str, words: str
) -> None:
    run = agent(f"await chat(task['messages'])\nreturn {value}")
    outcome = await run.run()
    assert (outcome.exception or "").startswith("RewardError: the result of own_")
    assert words in (outcome.exception or "") and (outcome.reward, outcome.rows) == (0.0, [])
    assert run.result(outcome)["exception_info"]["exception_type"] == "RewardError"


@pytest.mark.parametrize(
    "error",
    ["KeyError('x')", "TimeoutError('mine')", "asyncio.CancelledError('mine')", "SystemExit(3)"],
)
async def test_an_exception_of_the_agents_fails_the_trial_by_its_own_name(
    agent: Callable[[str], Trials], error: str
) -> None:
    run = agent(f"await chat(task['messages'])\nraise {error}")
    outcome = await run.run()
    name = error.partition("(")[0].rpartition(".")[2]
    assert (outcome.exception or "").startswith(f"{name}: ")
    info = run.result(outcome)["exception_info"]
    assert info["exception_type"] == name
    assert "own_" in info["exception_traceback"] and f"raise {error}" in info["exception_traceback"]
    assert (outcome.reward, outcome.rows, run.result(outcome)["turns"]) == (0.0, [], 1)


async def test_an_agent_ends_with_its_time(agent: Callable[[str], Trials]) -> None:
    outcome = await agent("await chat(task['messages'])\nawait asyncio.Event().wait()").run(trial_timeout=1.0)
    assert outcome.exception == "AgentTimeoutError: the agent took longer than 1 s"
    assert (outcome.ending.cause, len(outcome.rows), outcome.reward) == ("timeout", 1, 0.0)


async def test_an_agent_has_so_many_turns(agent: Callable[[str], Trials], replica: TokenReplica) -> None:
    outcome = await agent("while True:\n    await chat(task['messages'])").run(max_turns=2)
    assert (outcome.exception, outcome.ended_by, outcome.ending.outcome) == (
        None,
        "max_iterations",
        "trained",
    )
    assert outcome.ending.why == "it had all its turns; TooManyTurnsError: the trial may have 2 turns"
    assert len(replica.replies) == 2 and len(outcome.rows) == 1


async def test_an_agent_that_asks_nothing_is_named(agent: Callable[[str], Trials]) -> None:
    run = agent("return 1.0")
    outcome = await run.run()
    assert run.story(outcome) == []
    assert outcome.exception == "AgentSilentError: the agent ended without a request to the model"
    assert outcome.reward == 0.0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:Agent", "No module named 'no_such_module'"),
        ("json:Agent", "has no attribute 'Agent'"),
        ("json:JSONDecoder", "has no method `async def run`"),
    ],
)
async def test_a_class_that_is_missing_is_named(trials: Callable[..., Trials], name: str, words: str) -> None:
    outcome = await trials(python=name).run()
    assert (outcome.exception or "").startswith(f"AgentNotFoundError: agent.python {name}")
    assert words in (outcome.exception or "")


async def test_a_method_that_is_no_coroutine_is_refused(agent: Callable[..., Trials]) -> None:
    outcome = await agent("return 1", "def run(self, task, chat, dir):").run()
    assert "has no method `async def run`" in (outcome.exception or "")


async def test_a_trial_that_is_cancelled_is_cancelled(
    agent: Callable[[str], Trials], replica: TokenReplica
) -> None:
    replica.gate.clear()
    trial = asyncio.ensure_future(agent("await chat(task['messages'])").run())
    await replica.begun.wait()
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial


async def test_the_prompt_of_a_chat_has_the_rows_words(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    await trials().run([{"role": "user", "content": "a word of the row"}])
    assert "a word of the row" in decode(replica.prompts[0])
