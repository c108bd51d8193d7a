"""One trial's story from its files: both shapes of messages, growth, failures, rewritten conversations."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.engines.tool_formats import FORMATS, resembling
from liverl.model import TrialHead
from liverl.observe.trials import documents, message_parts
from liverl.observe.trials import turns as trajectory_turns
from liverl.observe.trials.engine_parser import engine_parser
from liverl.observe.trials.files import HEAD_LINES, head_of_file
from liverl.observe.trials.groups import equal_groups
from liverl.observe.trials.message_parts import Part, loads, pretty_arguments
from liverl.observe.trials.records import ProxyTrajectory
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.steps import heads_of_step, steps_on_disk
from liverl.observe.trials.trajectory import (
    Trajectory,
    TrajectoryReader,
    no_tools,
    read_trajectory,
)
from liverl.observe.trials.trial import SETTLE
from liverl.observe.trials.turns import Turn, turns_of_messages

FILE = "litellm-trajectory.jsonl"
SYSTEM = {"role": "system", "content": "You fix bugs."}
TASK = {"role": "user", "content": "Fix the parser."}
QWEN = "I look.\n<tool_call>\n<function=bash>\n<parameter=cmd>\nls\n</parameter>\n</function>\n</tool_call>"


def call(number: int, name: str = "bash", arguments: str = '{"cmd": "ls"}') -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def says(text: str | None, *calls: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {}), **other}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def record(
    messages: list[Any], answer: dict[str, Any] | None, finish: str | None = None, **other: Any
) -> dict[str, Any]:
    calls = bool(answer and answer.get("tool_calls"))
    finish = finish or ("tool_calls" if calls else "stop")
    body = {"choices": [{"index": 0, "finish_reason": finish, "message": answer}]} if answer else None
    return {
        "session_id": "s",
        "success": answer is not None,
        "request_time": 1_795_220_000_000,
        "duration_ms": 1200,
        "api": "openai",
        "stream": False,
        "replica": "http://127.0.0.1:4001",
        "moved_from": None,
        "request_body": {"model": "policy", "messages": messages, "tools": [{"name": "bash"}]},
        "response_body": body,
        "usage": {"prompt_tokens": 100, "completion_tokens": 12} if answer else None,
        "failure": None,
        **other,
    }


class Trial:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)

    def write(self, *records: dict[str, Any], name: str = FILE) -> None:
        with (self.path / name).open("a") as file:
            file.writelines(json.dumps(r) + "\n" for r in records)

    def result(self, rewards: dict[str, Any] | None = None, **other: Any) -> None:
        told = {"task_name": "fix-it", "verifier_result": {"rewards": rewards or {}}, **other}
        (self.path / "result.json").write_text(json.dumps(told))

    def read(self) -> Trajectory:
        return read_trajectory(self.path)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path / "trials" / "step_0003" / "fix-it-0a1b2c3d")


def kinds(parts: tuple[Part, ...]) -> list[str]:
    return [part.kind for part in parts]


ASKS = says("I look.", call(1), reasoning_content="Where is it?")
FIRST = [SYSTEM, TASK]
SECOND = [*FIRST, says("I look.", call(1)), result(1, "a.py\nb.py")]


def test_turn_by_turn_with_results_where_they_belong(trial: Trial) -> None:
    trial.write(record(FIRST, ASKS), record(SECOND, says("Done.")))
    trial.result(
        {"reward": 0.5, "tests": 3, "name": "x", "bad": float("nan")}, policy_version=7, ended_by="stop"
    )
    (trial.path / "config.json").write_text('{"task": "other"}')
    found = trial.read()
    one, two = found.turns
    assert [(p.kind, p.text) for p in one.before] == [
        ("system", "You fix bugs."),
        ("user", "Fix the parser."),
    ]
    assert kinds(one.answer) == ["reasoning", "text", "call"]
    assert [(p.kind, p.name, p.text) for p in one.after] == [("result", "bash", "a.py\nb.py")]
    assert one.answer[2].name == "bash" and json.loads(one.answer[2].text) == {"cmd": "ls"}
    assert (one.finish_reason, one.prompt_tokens, one.completion_tokens, one.seconds) == (
        "tool_calls",
        100,
        12,
        1.2,
    )
    assert (one.replica, one.model, one.started_at) == ("http://127.0.0.1:4001", "policy", 1_795_220_000.0)
    assert [(p.kind, p.text) for p in two.answer] == [("text", "Done.")] and not two.before and not two.note
    assert (found.step, found.task, found.name, found.running) == (3, "fix-it", "fix-it-0a1b2c3d", False)
    assert found.rewards == {"reward": 0.5, "tests": 3.0}
    assert (found.policy_version, found.ended_by, found.tool_calls, found.completion_tokens) == (
        7,
        "stop",
        1,
        24,
    )
    assert (found.flags, found.bad_records, found.torn, found.source) == ((), 0, False, FILE)


def test_anthropic_with_marks_that_wander(trial: Trial) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    ask = {"role": "user", "content": [{"type": "text", "text": "Fix the parser.", **mark}]}
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    answer = {"content": [thought, {"type": "text", "text": "I look."}, use], "stop_reason": "tool_use"}
    usage = {"input_tokens": 3, "cache_read_input_tokens": 90, "output_tokens": 5}
    got = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "gone"}],
        "is_error": True,
    }
    later = [
        {"role": "user", "content": "Fix the parser."},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
        {"role": "user", "content": [{**got, **mark}]},
    ]
    end = {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}
    system = [{"type": "text", "text": "You fix bugs.", **mark}]
    trial.write(
        record(
            [], None, success=True, request_body={"system": system, "messages": [ask]}, response_body=answer
        )
        | {"usage": usage},
        record([], None, success=True, request_body={"system": system, "messages": later}, response_body=end),
    )
    one, two = trial.read().turns
    assert kinds(one.before) == ["system", "user"] and kinds(one.answer) == ["reasoning", "text", "call"]
    assert one.answer[2].name == "Bash" and json.loads(one.answer[2].text) == {"command": "ls"}
    assert [(p.kind, p.name, p.text, p.failed) for p in one.after] == [("result", "Bash", "gone", True)]
    assert (one.prompt_tokens, one.completion_tokens, one.finish_reason) == (93, 5, "tool_use")
    assert two.note == "" and two.before == () and two.finish_reason == "end_turn"


def test_it_is_read_on_as_it_grows(trial: Trial) -> None:
    reader = TrajectoryReader(trial.path)
    assert reader.read().turns == () and reader.read().running
    trial.write(record(FIRST, ASKS))
    first = reader.read()
    assert len(first.turns) == 1 and reader.read() is first
    line = json.dumps(record(SECOND, says("Done.")))
    with (trial.path / FILE).open("a") as file:
        file.write(line[:-30])
    assert len(reader.read().turns) == 1, "a record that is being written is not one yet"
    with (trial.path / FILE).open("a") as file:
        file.write(line[-30:] + "\n")
    grown = reader.read()
    assert len(grown.turns) == 2 and grown.turns[0].after and not grown.torn
    (trial.path / FILE).unlink()
    trial.write(record([TASK], says("Anew.")))
    assert [t.written for t in reader.read().turns] == ["Anew."]


def test_a_record_that_is_cut_off_for_ever(trial: Trial) -> None:
    trial.write(record(FIRST, ASKS))
    whole = json.dumps(record(SECOND, says("Done.")))
    file = trial.path / FILE
    before = file.read_text()
    file.write_text(before + whole[:-9])
    trial.result()
    long_ago = time.time() - 2 * SETTLE
    os.utime(file, (long_ago, long_ago))
    found = trial.read()
    assert (len(found.turns), found.torn, found.bad_records) == (1, True, 0)
    file.write_text(before + whole)
    os.utime(file, (long_ago, long_ago))
    assert (len(trial.read().turns), trial.read().torn) == (2, False)


def test_failures_and_the_try_after_them(trial: Trial) -> None:
    failure = {
        "error_type": "Timeout",
        "status_code": 504,
        "message": "too slow",
        "deployment": {"api_base": "http://b"},
    }
    trial.write(
        record(FIRST, ASKS),
        record(SECOND, None, failure=failure, replica=None),
        record(SECOND, says("Done."), moved_from="http://127.0.0.1:4009"),
    )
    trial.result(exception_info={"exception_type": "AgentError", "exception_message": "gave up"})
    found = trial.read()
    one, two, three = found.turns
    assert not two.success and [(p.kind, p.text) for p in two.answer] == [
        ("error", "Timeout HTTP 504: too slow")
    ]
    assert two.replica == "http://b" and two.completion_tokens is None
    assert three.written == "Done." and three.before == () and not three.note
    assert one.after and two.after == ()
    assert found.flags == ("moved_replica", "failed_turns")
    assert found.exception == "AgentError: gave up"


def test_a_shortened_conversation_and_one_beside_it(trial: Trial) -> None:
    title = [{"role": "system", "content": "Write a title."}, {"role": "user", "content": "Fix the parser."}]
    short = [SYSTEM, TASK, {"role": "user", "content": "So far: looked at a.py."}]
    trial.write(
        record(FIRST, ASKS),
        record(title, says("A title")),
        record(SECOND, says("And on.", call(2))),
        record(short, says("Where was I?")),
        record([*short, says("Where was I?"), TASK], says("Done.")),
    )
    turns = trial.read().turns
    assert turns[0].after and turns[0].after[0].kind == "result", "a conversation goes on behind another one"
    assert "a separate conversation of 2 messages" in turns[1].note and kinds(turns[1].before) == [
        "system",
        "user",
    ]
    assert turns[2].note == "" and turns[2].before == ()
    assert "repeats the first 2 of the 4 messages of turn 3" in turns[3].note and kinds(turns[3].before) == [
        "user"
    ]
    assert turns[4].note == "" and kinds(turns[3].after) == ["user"]


def test_an_earlier_message_in_another_form_is_the_same(trial: Trial) -> None:
    whole = [*FIRST, ASKS, result(1, "a.py")]
    again = [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "Fix the parser."}]}]
    again += [says("I look.", call(1), reasoning_content=None), result(1, "a.py"), says("Then"), TASK]
    trial.write(record(FIRST, ASKS), record(whole, says("Then")), record(again, says("Done.")))
    turns = trial.read().turns
    assert [turn.note for turn in turns] == ["", "", ""]
    assert [kinds(turn.after) for turn in turns] == [["result"], ["user"], []]


def test_no_tools_and_why(trial: Trial) -> None:
    run = trial.path.parent.parent.parent
    (run / "config.yaml").write_text("model:\n  tool_parser: hermes\n")
    trial.write(record(FIRST, says(QWEN)))
    found = trial.read()
    assert found.running and found.flags == ("zero_tool_calls",), (
        "seconds after its last turn, without a result"
    )
    assert found.turns[0].resembles == ("Qwen3-Coder XML",) and found.turns[0].raw == QWEN
    assert engine_parser(run).name == "hermes"
    what, setting = no_tools(found, engine_parser(run).name)
    assert "Qwen3-Coder XML (<function=...>)" in what and "qwen3_coder" in what
    assert setting == "the run's tool-call parser is hermes (model.tool_parser in config.yaml)"
    assert "is the call complete" in no_tools(found, "qwen3_coder")[0]
    (run / "config.yaml").write_text("model: [")
    assert engine_parser(run).name is None and "model.tool_parser" in no_tools(found, None)[1]
    trial.write(record([*FIRST, says(QWEN), TASK], says("", call(1))))
    assert trial.read().flags == () and no_tools(trial.read(), None) == ()


@pytest.mark.parametrize(
    ("answer", "finish", "why"),
    [
        (says("The answer is 4."), "stop", "without one"),
        (says("I think that"), "length", "cut off at the token limit before"),
        (says(None), "stop", "no text either"),
        (says("", reasoning_content='<tool_call>\n{"name": 1}'), "stop", "Hermes JSON"),
    ],
)
def test_other_reasons_for_no_tools(trial: Trial, answer: dict[str, Any], finish: str, why: str) -> None:
    trial.write(record(FIRST, answer, finish))
    trial.result()
    found = trial.read()
    assert why in no_tools(found, "hermes")[0]
    assert ("truncated" in found.flags) == (finish == "length")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (QWEN, "Qwen3-Coder XML"),
        ('<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', "Hermes JSON"),
        ("<tool_call>bash\n<arg_key>cmd</arg_key>\n<arg_value>ls</arg_value></tool_call>", "GLM"),
        ('[TOOL_CALLS][{"name": "ls"}]', "Mistral"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0", "Kimi K2"),
        ('```json\n{"name": "bash", "arguments": {}}\n```', "JSON in a code fence"),
        ('{"name": "bash", "parameters": {"cmd": "ls"}}', "bare JSON"),
        ("<tool_call>\nls\n</tool_call>", FORMATS[-1].title),
        ("I called the tool_call function", None),
        ('Use ```json\n{"a": 1}\n``` here', None),
    ],
)
def test_what_a_text_resembles(text: str, title: str | None) -> None:
    assert [f.title for f in resembling(text)] == ([title] if title else [])


def test_proxy_trajectories_of_other_generations(trial: Trial) -> None:
    path = trial.path / "proxy_trajectory.json"
    path.write_text(json.dumps({"messages_snapshot": [*SECOND, says(QWEN)], "tools": []}))
    reader = TrajectoryReader(trial.path)
    found = reader.read()
    assert [t.calls for t in found.turns] == [1, 0] and found.turns[0].after[0].text == "a.py\nb.py"
    assert kinds(found.turns[0].before) == ["system", "user"] and found.turns[1].resembles
    assert "no finish reasons" in found.note and found.source == path.name
    assert '"messages_snapshot"' in reader.raw_record(found.turns[0])
    path.write_text(json.dumps({"messages": [*FIRST, says("No.")]}))
    assert reader.read().flags == ("zero_tool_calls",)
    path.write_text(json.dumps({"traj_acc_ids": [1, 2, 3], "traj_response_mask": [1, 1, 0]}))
    assert "2 of the model, 1 of others" in reader.read().note
    path.write_text("[]")
    assert "cannot be read" in reader.read().note and "unreadable" in reader.read().flags


STEPS = "agent/steps.json"


def counts_of_steps(data: bytes) -> ProxyTrajectory | None:
    try:
        steps = json.loads(data)["steps"]
    except (ValueError, KeyError, TypeError):
        return None
    return ProxyTrajectory(len(steps), sum(len(s["calls"]) for s in steps), 0)


def turns_of_steps(found: dict[str, Any]) -> tuple[tuple[Turn, ...], str]:
    turns = turns_of_messages([says(s["text"], *map(call, s["calls"])) for s in found.get("steps", [])])
    return tuple(turns), "steps.json tells no times"


def test_a_format_of_the_table_reaches_the_list_and_the_trajectory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = documents.TrajectoryDocument(STEPS, counts_of_steps, turns_of_steps)
    monkeypatch.setattr(documents, "DOCUMENTS", (*documents.DOCUMENTS, new))
    folders = [tmp_path / "trials/step_0001" / name for name in ("new", "both", "bad", "recorded")]
    steps = {"steps": [{"text": "I look.", "calls": [1]}, {"text": "Done.", "calls": []}]}
    for folder in folders:
        (folder / STEPS).parent.mkdir(parents=True)
        (folder / STEPS).write_text("?" if folder.name == "bad" else json.dumps(steps))
    (folders[1] / documents.PROXY_TRAJECTORY).write_text(json.dumps({"messages": [*FIRST, says("No.")]}))
    (folders[3] / FILE).write_text(json.dumps(record(FIRST, says("x", call(1)))) + "\n")
    scanner = TrialScanner(tmp_path)
    heads = {h.name: h for h in scanner.scan().newest}
    assert {name: (h.turns, h.tool_calls) for name, h in heads.items()} == {
        "new": (2, 1),
        "both": (1, 0),
        "bad": (0, 0),
        "recorded": (1, 1),
    }
    assert scanner.bad_lines == 1
    reader = TrajectoryReader(folders[0])
    found = reader.read()
    assert (found.source, [t.calls for t in found.turns], found.flags) == (STEPS, [1, 0], ())
    assert found.note == "steps.json tells no times" and STEPS not in [f.name for f in found.files]
    assert '"I look."' in reader.raw_record(found.turns[0])
    assert reader.read() is found
    assert read_trajectory(folders[1]).source == documents.PROXY_TRAJECTORY
    assert (read_trajectory(folders[2]).turns, read_trajectory(folders[3]).source) == ((), FILE)


def test_what_python_writes_as_json(trial: Trial) -> None:
    line = json.dumps(record(FIRST, says("half \ud800 and more", call(1)))).replace(
        '"stream": false', '"x": NaN'
    )
    (trial.path / FILE).write_text(line + "\n{broken\n[1]\n\n" + json.dumps({"ok": True}) + "\n")
    found = trial.read()
    assert found.turns[0].written == "half ? and more" and found.turns[0].calls == 1
    assert found.bad_records == 3


def test_streamed_and_odd_records(trial: Trial) -> None:
    part = says("So far", function_call={"name": "ls", "arguments": "{not json"})
    trial.write(
        record(FIRST, part, stream=True),
        record(FIRST, None, success=True, response_body="data: raw"),
        record([], None, request_body=None, failure="gone"),
        record(
            [],
            None,
            request_body={"prompt": "Once"},
            response_body={"choices": [{"text": " upon"}]},
            success=True,
        ),
    )
    one, two, three, four = trial.read().turns
    assert one.stream and (one.answer[1].text, one.answer[1].failed) == ("{not json", True)
    assert two.written == "data: raw" and two.finish_reason is None
    assert three.answer == (Part("error", "gone"),)
    assert four.written == " upon" and four.before == (Part("user", "Once"),)


def test_rewards_from_elsewhere(trial: Trial) -> None:
    (trial.path / "verifier").mkdir()
    (trial.path / "verifier" / "reward.txt").write_text("0.25\n")
    assert trial.read().rewards == {"reward": 0.25}
    (trial.path / "verifier" / "reward.json").write_text('{"tests": 4, "style": 0.5, "why": "x"}')
    assert trial.read().rewards == {"tests": 4.0, "style": 0.5}


def test_raw_record(trial: Trial) -> None:
    trial.write(record(FIRST, ASKS), record(SECOND, says("Done.")))
    reader = TrajectoryReader(trial.path)
    turns = reader.read().turns
    text = reader.raw_record(turns[1])
    assert json.loads(text)["response_body"]["choices"][0]["message"]["content"] == "Done."
    assert text.count("\n") > 20
    assert reader.raw_record(turns[1], most=50) == json.dumps(record(SECOND, says("Done.")))[:50]


def test_files_of_a_trial(trial: Trial) -> None:
    (trial.path / "verifier").mkdir()
    (trial.path / "sandbox").mkdir()
    (trial.path / "verifier" / "out.txt").write_text("ok\n" * 300)
    (trial.path / "sandbox" / "b.bin").write_bytes(b"\0\1")
    (trial.path / "sandbox" / "link").symlink_to("/etc/hostname")
    os.mkfifo(trial.path / "sandbox" / "pipe")
    trial.write(record(FIRST, ASKS))
    trial.result()
    found = trial.read()
    assert [(f.name, f.size) for f in found.files] == [("verifier/out.txt", 900), ("sandbox/b.bin", 2)]
    text = head_of_file(trial.path, "verifier/out.txt")
    assert text.startswith("ok\n" * HEAD_LINES) and text.count("ok") == HEAD_LINES and "900 bytes" in text
    assert head_of_file(trial.path, "sandbox/b.bin") == "[not a text file]"
    for name in ("sandbox/link", "sandbox/pipe", "gone"):
        with pytest.raises(OSError):
            head_of_file(trial.path, name)


def test_a_trial_that_is_gone(tmp_path: Path) -> None:
    found = read_trajectory(tmp_path / "nothing")
    assert found.turns == () and found.note == "its directory was removed"


def test_arguments() -> None:
    assert pretty_arguments('{"a": "ü\\n"}') == ('{\n  "a": "ü\\n"\n}', True)
    assert pretty_arguments(None) == ("{}", True) and pretty_arguments("{oops") == ("{oops", False)
    assert pretty_arguments("[1]")[1] is False


@given(st.data())
def test_pieces_are_the_whole(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """However a file grows, the turns are those of reading it at once; and no message is lost."""
    trial = Trial(tmp_path_factory.mktemp("t") / "trial")
    text = st.text(alphabet='ab\n"{}', max_size=8)
    messages: list[Any] = [SYSTEM, TASK]
    lines = []
    results = 0
    for number in range(data.draw(st.integers(1, 5))):
        answer = says("x" + data.draw(text), *([call(number)] if data.draw(st.booleans()) else []))
        lines.append(json.dumps(record(list(messages), answer)) + "\n")
        messages += [answer]
        if "tool_calls" in answer:
            messages += [result(number, data.draw(text))]
            results += 1
        else:
            messages += [TASK]
    lines.append(json.dumps(record(messages, says("end"))) + "\n")
    whole = "".join(lines).encode()
    reader = TrajectoryReader(trial.path)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    with (trial.path / FILE).open("ab", buffering=0) as file:
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            file.write(whole[start:end])
            reader.read()
    found = reader.read().turns
    assert found == trial.read().turns
    assert sum(kinds(t.after).count("result") for t in found) == results
    assert [t.written for t in found] == [
        json.loads(line)["response_body"]["choices"][0]["message"]["content"] for line in lines
    ]


def test_each_message_is_decoded_once(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record repeats the conversation: what is decoded grows with the conversation, not with its square."""
    messages: list[Any] = [SYSTEM, TASK]
    rnd = random.Random(1)
    for number in range(30):
        answer = says(f"turn {number}", call(number))
        trial.write(record(messages, answer))
        messages += [answer, result(number, "".join(rnd.choices("abcdef \n", k=7000)))]
    decoded = 0

    def counting(data: bytes) -> Any:
        nonlocal decoded
        decoded += len(data)
        return loads(data)

    monkeypatch.setattr(trajectory_turns, "loads", counting)
    monkeypatch.setattr(message_parts, "loads", counting)
    assert len(trial.read().turns) == 30
    assert (trial.path / FILE).stat().st_size > 3_000_000
    assert 29 * 7000 < decoded < 2 * 29 * 7000


# -- steps


def head(name: str, step: int | None = 1, task: str = "t", reward: float | None = 1.0) -> TrialHead:
    return TrialHead(
        name, step, task, "finished", 1, 1, reward, "stop", 1, None, None, 0.0, (), f"trials/{name}"
    )


def test_heads_of_a_step_are_those_of_the_scanner(tmp_path: Path) -> None:
    Trial(tmp_path / "trials/step_0002/a-0a1b2c").write(record(FIRST, ASKS), record(SECOND, says("Done.")))
    zero = Trial(tmp_path / "trials/step_0002/b-0a1b2c")
    zero.write(record(FIRST, says(QWEN)))
    zero.result({"reward": 0.0})
    Trial(tmp_path / "trials/step_0007/c-0a1b2c").write(record(FIRST, ASKS))
    flat = Trial(tmp_path / "trials/flat")
    flat.write(record(FIRST, ASKS))
    (flat.path / "config.json").write_text('{"step": 2, "task": "solo"}')
    (tmp_path / "trials/_unattributed").mkdir()
    scanned = TrialScanner(tmp_path).scan()
    found = heads_of_step(tmp_path, 2)
    assert {h.path: h for h in found} == {h.path: h for h in scanned.newest if h.step == 2}
    assert len(found) == 3
    assert steps_on_disk(tmp_path) == [2, 7] and steps_on_disk(tmp_path / "none") == []
    told = next(step for step in scanned.steps if step.step == 2)
    assert (told.calling, told.zero_tool_calls, told.finish_reasons) == (2, 1, {"stop": 2, "tool_calls": 1})


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from("ab"), st.sampled_from([0.0, 1.0, None]))))
def test_equal_groups(drawn: list[tuple[int, str, float | None]]) -> None:
    heads = [head(str(n), step, task, reward) for n, (step, task, reward) in enumerate(drawn)]
    groups = equal_groups(heads)
    for step in (1, 2):
        for task in "ab":
            rewards = [h.reward for h in heads if (h.step, h.task) == (step, task)]
            all_same = len(rewards) > 1 and rewards[0] is not None and all(r == rewards[0] for r in rewards)
            assert ((step, task, "", False) in groups) == all_same


def test_turn_knows_its_calls() -> None:
    turn = Turn(number=1, answer=(Part("text", "a"), Part("call", "{}", "x"), Part("reasoning", "b")))
    assert (turn.calls, turn.written, turn.raw) == (1, "a\nb", "")
