"""The embedded model: tokenizer, tool-call formats and parsers, policy, tasks, sandbox."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.agents.sandbox import EmptySandbox, Sandbox
from liverl.agents.tasks import KINDS, Task, checks, dataset, reward_of
from liverl.agents.tool_calls import (
    PARSERS,
    RENDERERS,
    parse_hermes,
    parse_qwen3_coder,
    render_hermes,
    render_qwen3_coder,
    split_renderers,
)
from liverl.agents.tools import TOOL_NAMES, TOOLS
from liverl.embedded import modeldir
from liverl.embedded.engine.chat import prompt_ids
from liverl.embedded.policy import Policy, arguments_for, state_of
from liverl.embedded.tokenizer import EOS_ID, SPECIALS, VOCAB_SIZE, decision, decode, encode

SOLUTIONS = {
    "create": ["write_file", "submit"],
    "replace": ["read_file", "replace_text", "submit"],
    "move": ["list_files", "move_file", "submit"],
    "total": ["read_file", "write_file", "submit"],
}
texts = st.text(st.characters(exclude_categories=["Cs"]))
words = st.text(st.characters(categories=["Ll", "Lu", "Nd"], include_characters="_-"), min_size=1)


@given(st.lists(st.one_of(texts, st.sampled_from(SPECIALS))).map("".join))
def test_tokens_give_the_text_back(text: str) -> None:
    ids = encode(text)
    assert decode(ids) == text
    assert all(0 <= i < VOCAB_SIZE for i in ids)


def test_token_ids_are_stable() -> None:
    assert encode("<|im_start|>abc submit") == [65793, 256 + (97 << 8) + 98, 256 + (99 << 8) + 32, 65813]
    assert encode("<|im_end|>") == [EOS_ID]
    with pytest.raises(ValueError, match="outside the vocabulary"):
        decode([VOCAB_SIZE])


@given(st.sampled_from(TOOL_NAMES), st.dictionaries(words, words.filter(lambda w: w.lower() != "null")))
def test_each_parser_reads_its_own_format(name: str, arguments: dict[str, str]) -> None:
    for format_name in RENDERERS:
        text = "I go on.\n" + RENDERERS[format_name](name, arguments)
        parsed = PARSERS[format_name](text, ())
        assert parsed.content == "I go on.\n"
        assert [(c.name, json.loads(c.arguments)) for c in parsed.calls] == [(name, arguments)]


@given(texts)
def test_parsers_never_raise_and_never_lose_text(text: str) -> None:
    for parser in PARSERS.values():
        for candidate in (text, "<tool_call>" + text, "<tool_call>\n<function=" + text, "<function=" + text):
            parsed = parser(candidate, TOOLS)
            assert parsed.calls or parsed.content == candidate


def test_hermes_loses_qwen_xml_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    text = render_qwen3_coder("read_file", {"path": "a.txt"})
    with caplog.at_level(logging.ERROR):
        assert parse_hermes(text, TOOLS) == (text, ())
    assert "Error in extracting tool call from response." in caplog.text
    assert "json.decoder.JSONDecodeError: Expecting value" in caplog.text


def test_qwen_parser_loses_hermes_json_silently(caplog: pytest.LogCaptureFixture) -> None:
    text = render_hermes("read_file", {"path": "a.txt"})
    with caplog.at_level(logging.DEBUG):
        assert parse_qwen3_coder(text, TOOLS) == (text, ())
    assert not caplog.records


def test_qwen_parser_converts_by_schema_and_reads_cut_calls() -> None:
    tools = [
        {
            "function": {
                "name": "f",
                "parameters": {
                    "properties": {
                        "n": {"type": "integer"},
                        "b": {"type": "boolean"},
                        "o": {"type": "object"},
                    }
                },
            }
        }
    ]
    text = (
        '<function=f><parameter=n>3</parameter><parameter=b>True</parameter><parameter=o>{"a":1}</parameter>'
        "<parameter=s>7"
    )
    (call,) = parse_qwen3_coder(text, tools).calls
    assert json.loads(call.arguments) == {"n": 3, "b": True, "o": {"a": 1}, "s": "7"}


def test_qwen_parser_takes_the_schema_of_the_tool_that_is_called() -> None:
    tools = [
        {"function": {"name": name, "parameters": {"properties": {"v": {"type": kind}}}}}
        for name, kind in (("f", "integer"), ("g", "string"))
    ]
    for name, value in (("f", 3), ("g", "3"), ("h", "3")):
        (call,) = parse_qwen3_coder(f"<function={name}><parameter=v>3</parameter></function>", tools).calls
        assert json.loads(call.arguments) == {"v": value}
    (call,) = parse_qwen3_coder("<function=f><parameter=v>three</parameter></function>", tools).calls
    assert json.loads(call.arguments) == {"v": "three"}, "what is no integer stays a text"


def test_arguments_keep_their_letters() -> None:
    for name, render in RENDERERS.items():
        (call,) = PARSERS[name](render("f", {"path": "größe"}), ()).calls
        assert call.arguments == '{"path": "größe"}'


def test_two_calls_in_one_turn() -> None:
    for name, render in RENDERERS.items():
        text = render("list_files", {"path": "."}) + "\n" + render("submit", {})
        assert [c.name for c in PARSERS[name](text, TOOLS).calls] == ["list_files", "submit"]


def test_a_parser_is_known_by_what_it_reads(caplog: pytest.LogCaptureFixture) -> None:
    for name, parser in PARSERS.items():
        reads, other = split_renderers(parser)
        assert reads == [RENDERERS[name]]
        assert len(other) == len(RENDERERS) - 1
    assert not caplog.records, "a format that a parser cannot read is no failure here"
    test_hermes_loses_qwen_xml_and_says_why(caplog)  # ... and one in a reply is still logged


def test_the_decision_is_the_tool_name() -> None:
    for render in RENDERERS.values():
        tokens = encode("Step 1.\n" + render("move_file", {"source": "a submit b", "destination": "c"}))
        position, name = decision(tokens) or (-1, "")
        assert name == "move_file"
        assert decode(tokens[position : position + 1]) == "move_file"
    assert decision(encode("no call here")) is None


def test_probabilities_and_logprobs_agree() -> None:
    policy = Policy({"s": {"submit": 1.0, "read_file": -1.0}})
    for temperature in (0.5, 1.0, 2.0):
        probabilities = policy.probabilities("s", TOOL_NAMES, temperature)
        assert sum(probabilities) == pytest.approx(1)
        tokens = [*encode(render_hermes("submit", {})), EOS_ID]
        total = sum(policy.token_logprobs("s", tokens, temperature))
        assert math.exp(total) == pytest.approx(probabilities[TOOL_NAMES.index("submit")])
    assert policy.probabilities("s", TOOL_NAMES, 0.0)[TOOL_NAMES.index("submit")] == 1.0
    assert policy.probabilities("new state", TOOL_NAMES, 1.0) == [pytest.approx(1 / 6)] * 6


def play(task: Task, names: list[str], sandbox: Sandbox) -> float:
    sandbox.prepare(task.files)
    messages: list[dict[str, object]] = [{"role": "user", "content": task.instruction}]
    for number, name in enumerate(names):
        arguments = arguments_for(name, messages, TOOLS)
        call = {"id": str(number), "function": {"name": name, "arguments": json.dumps(arguments)}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        observation = sandbox.call(name, arguments)
        messages.append({"role": "tool", "tool_call_id": str(number), "content": observation})
        outcome = "error" if observation.startswith("error") else "ok"
        assert state_of(messages) == f"{task.kind}|{name}|{outcome}"
    return reward_of(checks(task, sandbox.root))


@pytest.mark.parametrize("task", dataset(), ids=lambda task: task.id)
def test_a_task_is_solved_by_the_calls_it_needs_and_no_others(task: Task, tmp_path: Path) -> None:
    for kind in KINDS:
        reward = play(task, SOLUTIONS[kind], Sandbox(tmp_path / kind))
        # A read before the write does no harm where the file is only to be created.
        enough = kind == task.kind or (task.kind, kind) == ("create", "total")
        assert reward == (1.0 if enough else 0.0), kind
    assert play(task, SOLUTIONS[task.kind][:-1], Sandbox(tmp_path / "not submitted")) == 0.0
    assert play(task, SOLUTIONS[task.kind], EmptySandbox(tmp_path / "empty")) == 0.0


def test_tools_stay_inside_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    sandbox = Sandbox(tmp_path / "box")
    sandbox.prepare({"a.txt": "one"})
    for path in ("../secret", str(tmp_path / "secret"), "a/../../secret", ""):
        assert sandbox.call("read_file", {"path": path}).startswith("error: ")
        assert sandbox.call("write_file", {"path": path, "content": "y"}).startswith("error: ")
        moved = sandbox.call("move_file", {"source": "a.txt", "destination": path})
        assert moved.startswith("error: ")
    assert (tmp_path / "secret").read_text() == "x"
    assert sandbox.call("read_file", {"file": "a.txt"}) == "error: read_file cannot be called with: file"
    assert sandbox.call("write_file", {"path": "b", "content": 7}).startswith("error: ")
    assert sandbox.call("fly", {}).startswith("error: there is no tool")
    assert sandbox.call("list_files", {"path": "."}) == "a.txt"


def test_a_growing_conversation_keeps_its_ids() -> None:
    tools = list(TOOLS)
    messages: list[dict[str, object]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    before = prompt_ids(messages, tools, render_qwen3_coder)
    call = {"id": "1", "function": {"name": "submit", "arguments": "{}"}}
    messages.append({"role": "assistant", "content": "Step 1.\n", "tool_calls": [call]})
    messages.append({"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "done"}]})
    after = prompt_ids(messages, tools, render_qwen3_coder)
    generated = encode("Step 1.\n" + render_qwen3_coder("submit", {}))
    assert after[: len(before) + len(generated)] == [*before, *generated]
    with pytest.raises(ValueError, match="not a JSON object"):
        call["function"]["arguments"] = "[]"  # type: ignore[index]
        prompt_ids(messages, tools, render_qwen3_coder)


def test_packaged_models_are_whole() -> None:
    assert modeldir.builtin_names() == sorted(RENDERERS)
    for name in modeldir.builtin_names():
        directory = modeldir.find(f"builtin:{name}")
        config = modeldir.read_config(directory)
        raw = json.loads((directory / "config.json").read_text())
        assert config.tool_format == name
        assert (raw["vocab_size"], raw["eos_token_id"]) == (VOCAB_SIZE, EOS_ID)
        assert modeldir.read_weights(directory).version == 0
        template = json.loads((directory / "tokenizer_config.json").read_text())["chat_template"]
        assert ("<function=" in template and "<parameter=" in template) == (name == "qwen3_coder")


def test_a_model_that_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is not a local folder and is not a valid model identifier"):
        modeldir.find("builtin:nope")
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    with pytest.raises(ValueError, match="not a model of the embedded engine"):
        modeldir.read_config(modeldir.find(str(tmp_path)))
