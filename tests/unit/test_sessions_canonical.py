"""Request bodies of both APIs in one form, and the digests of their histories."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import liverl.sessions
from liverl.sessions.canonical import (
    arguments_text,
    heads,
    object_text,
    read_anthropic,
    read_body,
    read_openai,
)
from liverl.sessions.messages import BadRequest, Call
from liverl.sessions.sampling import Limits, Overflow, parameters, room

OPENAI = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path": "a", "n": 7}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "seven"},
        {"role": "user", "content": "and?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "read", "description": "Read.", "parameters": {"type": "object"}},
        }
    ],
    "max_tokens": 100,
    "temperature": 1,
}
ANTHROPIC = {
    "model": "m",
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: a=1"},
        {"type": "text", "text": "Be brief."},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"n": 7, "path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "seven"}],
                },
                {"type": "text", "text": "and?", "cache_control": {"type": "ephemeral"}},
            ],
        },
    ],
    "tools": [{"name": "read", "description": "Read.", "input_schema": {"type": "object"}}],
    "max_tokens": 100,
}


def changed(body: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    body = copy.deepcopy(body)
    at: Any = body
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return body


def test_the_same_conversation_has_the_same_digests_in_both_apis():
    one, other = read_openai(OPENAI), read_anthropic(ANTHROPIC)
    assert heads(one) == heads(other)
    assert one.tools == other.tools
    assert [message.role for message in one.messages] == ["system", "user", "assistant", "tool", "user"]
    assert one.messages[2].calls == (Call("c1", "read", '{"path":"a","n":7}'),)
    assert other.messages[2].reasoning == "hm"


@pytest.mark.parametrize(
    ("path", "to", "same"),
    [
        (("messages", 2, "content"), "  I look.\n", 6),
        (("messages", 2, "reasoning_content"), "hm", 6),
        (("messages", 2, "tool_calls", 0, "id"), "other", 6),
        (("messages", 2, "tool_calls", 0, "function", "arguments"), '{"n":7,\n"path":"a"}', 6),
        (("messages", 2, "tool_calls", 0, "function", "arguments"), '{"n":"7","path":"a"}', 3),
        (("messages", 2, "content"), "I looked.", 3),
        (("messages", 3, "content"), "seven ", 4),
        (("messages", 1, "content"), "go ", 2),
        (("messages", 1, "role"), "system", 2),
        (("tools", 0, "function", "name"), "write", 0),
        (("temperature",), 0.5, 6),
    ],
)
def test_what_makes_another_conversation_and_from_where(path, to, same):
    one, other = heads(read_openai(OPENAI)), heads(read_openai(changed(OPENAI, *path, to=to)))
    assert [a == b for a, b in zip(one, other, strict=True)] == [True] * same + [False] * (6 - same)


def test_requests_of_different_lanes_share_nothing():
    chat = read_openai(OPENAI)
    assert not set(heads(chat)) & set(heads(chat, "agent-1"))


@pytest.mark.parametrize(
    ("path", "to", "param"),
    [
        (("messages", 0, "content", 0, "type"), "image", "messages.0.content.0.type"),
        (("messages", 1, "content", 0, "type"), "image", "messages.1.content.0.type"),
        (("messages", 0, "role"), "tool", "messages.0.role"),
        (("messages", 2, "content", 0, "content", 0, "type"), "image", "messages.2.content.0.content.0.type"),
        (("messages", 0, "content"), 7, "messages.0"),
        (("tools", 0), {"type": "web_search_20250305", "name": "web_search"}, "tools.0.input_schema"),
        (("tool_choice",), {"type": "maybe"}, "tool_choice.type"),
        (("max_tokens",), "many", "max_tokens"),
        (("top_k",), True, "top_k"),
        (("stop_sequences",), [1], "stop_sequences"),
        (("system",), [{"type": "text"}], "system.0.text"),
    ],
)
def test_what_a_session_cannot_do_names_its_field(path, to, param):
    with pytest.raises(BadRequest) as raised:
        read_anthropic(changed(ANTHROPIC, *path, to=to))
    assert raised.value.param == param


REPLY = ("messages", 2)


@pytest.mark.parametrize(
    ("path", "to", "param"),
    [
        ((*REPLY, "function_call"), {"name": "read", "arguments": "{}"}, "messages.2.function_call"),
        ((*REPLY, "audio"), {"id": "a"}, "messages.2.audio"),
        ((*REPLY, "tool_calls", 0), {"id": "c", "type": "custom", "custom": {}}, "messages.2.tool_calls.0"),
        (("messages", 3, "role"), "function", "messages.3.role"),
        (("tools", 0), {"type": "custom", "custom": {"name": "apply_patch"}}, "tools.0"),
        (("stream",), "false", "stream"),
        (("stream",), 1, "stream"),
    ],
)
def test_what_is_left_of_openais_api_is_refused_with_its_field(path, to, param):
    """And never left out in silence: the reply would be to another history, or in another form."""
    with pytest.raises(BadRequest) as raised:
        read_openai(changed(OPENAI, *path, to=to))
    assert raised.value.param == param


def test_nothing_of_a_refusal_is_left_out():
    for content, text in ((None, "I will not."), ("I look.", "I look.\nI will not.")):
        body = changed(OPENAI, *REPLY, "content", to=content)
        assert read_openai(changed(body, *REPLY, "refusal", to="I will not.")).messages[2].text == text
    unset = {"content": "I look.", "refusal": None, "function_call": None, "audio": None}
    body = changed(OPENAI, *REPLY, to={**OPENAI["messages"][2], **unset})
    assert read_openai(body).messages == read_openai(OPENAI).messages


def test_a_system_message_within_the_list_stays_where_it_is():
    body = changed(ANTHROPIC, "messages", 0, to={"role": "system", "content": "Hurry."})
    assert [message.role for message in read_anthropic(body).messages][:2] == ["system", "system"]


def test_tool_choice_in_openais_words():
    def chosen(value: Any) -> Any:
        return read_anthropic(changed(ANTHROPIC, "tool_choice", to=value)).tool_choice

    assert [chosen({"type": kind}) for kind in ("auto", "any", "none")] == ["auto", "required", "none"]
    assert chosen({"type": "tool", "name": "read"}) == {"type": "function", "function": {"name": "read"}}


@given(st.text(st.characters(), max_size=30))
def test_no_surrogate_survives(text):
    message = {"role": "user", "content": text + "\ud800"}
    body = read_body(json.dumps({"messages": [message], "\udfff": 1}).encode())
    cleaned = body["messages"][0]["content"]
    assert cleaned.encode() and cleaned.startswith(
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")[:1]
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb'"\ud83d"', "\ufffd"),
        (rb'"a\uDC00b"', "a\ufffdb"),
        (rb'"\\\uD8FFx"', "\\\ufffdx"),
        (rb'"\ud83d\uDE42"', "\U0001f642"),
        (b'"\xed\xa0\x80"', "\ufffd"),
        (b'"\xed\xbf\xbf"', "\ufffd"),
        (b'"\xed\x9f\xbf"', "\ud7ff"),  # Korean, the last one before the surrogates
        (rb'"\u2014 \\ud83d"', "\u2014 \\ud83d"),
    ],
)
def test_halves_of_pairs_are_replaced_however_a_body_writes_them(raw: bytes, text: str) -> None:
    body = read_body(b'{"messages": [{"role": "user", "content": ' + raw + b"}]}")
    assert body["messages"][0]["content"] == text
    in_words = json.dumps({"content": json.loads(raw)}, ensure_ascii=False)
    assert read_body(in_words.encode("utf-16", "surrogatepass"))["content"] == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_arguments_are_an_object_whatever_a_parser_gives_and_reading_them_again_changes_nothing(value):
    text = object_text(json.dumps(value))
    assert isinstance(json.loads(text), dict)
    assert arguments_text(text) == text == object_text(text)
    if isinstance(value, dict):
        assert json.loads(text) == json.loads(json.dumps(value))


# --- room and parameters


def test_room_is_what_context_and_row_leave():
    assert room(10, 100) == 90
    assert room(99, 100) == 1
    assert room(10, 100, 30, 50) == 20
    assert room(60, 100, 5, 500) == 40
    for wrong in ((100, 100), (101, 100), (10, 100, 50, 50)):
        with pytest.raises(Overflow, match="exceed context limit!"):
            room(*wrong)


def test_max_tokens_is_the_smallest_of_what_is_left_and_what_is_asked_for():
    chat = read_openai({**OPENAI, "stop": "x"})
    assert parameters(chat, Limits({"max_tokens": 60}), 80)["max_tokens"] == 60
    assert parameters(chat, Limits(), 80)["max_tokens"] == 80
    made = parameters(chat, Limits(), 500)
    assert (made["max_tokens"], made["stop"], made["logprobs"]) == (100, ["x"], 0)


def test_where_the_client_decides_its_parameters_count_and_what_else_it_asks_of_the_engine():
    chat = read_openai({**OPENAI, "top_p": 0.9, "seed": 3, "logit_bias": {"5": 2}})
    assert parameters(chat, Limits(decides="client"), 80) == {
        "temperature": 1.0,
        "top_p": 0.9,
        "seed": 3,
        "logit_bias": {"5": 2.0},
        "max_tokens": 80,
        "logprobs": 0,
    }


# --- Python 3.10

LIBRARY = ("asyncio", "datetime", "itertools", "typing", "enum")
NEWER = {
    "timeout",
    "timeout_at",
    "TaskGroup",
    "UTC",
    "StrEnum",
    "tomllib",
    "Self",
    "ExceptionGroup",
    "batched",
    "assert_never",
}


def test_the_package_keeps_to_python_3_10():
    folder = Path(liverl.sessions.__file__).parent
    files = [*folder.glob("*.py"), folder.parent / "util" / "deadline.py"]
    assert len(files) > 10
    for path in files:
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        names = {node.attr for node in used if isinstance(node.value, ast.Name) and node.value.id in LIBRARY}
        names |= {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        assert not names & NEWER, path
        assert not any(isinstance(node, ast.TryStar) for node in ast.walk(tree)), path
