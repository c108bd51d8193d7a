"""Which request bodies the proxy refuses with 400, and with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liverl.proxy.runtime.bodies import InvalidBody, encoded, read_body
from liverl.util.json_limits import MAX_DEPTH

CHAT, ANTHROPIC, COMPLETIONS = "/v1/chat/completions", "/v1/messages", "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]


def why_invalid(path: str, data: bytes) -> str | None:
    try:
        assert read_body(path, data) == json.loads(data)
    except InvalidBody as error:
        return str(error)
    return None


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "policy", "messages": HELLO, **fields}).encode()


def nested(levels: int) -> bytes:
    """With so many levels of lists and objects."""
    inside = levels - 1
    return b'{"model":"policy","messages":[],"x":' + b"[" * inside + b"]" * inside + b"}"


TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
TURN = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": True, "tools": TOOLS, "tool_choice": "auto", "response_format": {"type": "text"}},
        {"stream": None, "tools": None, "timeout": 2.5, "extra_body": {}, "tool_choice": {"type": "any"}},
        {"messages": [TURN, {"role": "tool", "content": [{"type": "text", "text": "x"}]}]},
        {"messages": []},
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/chat/completions", ANTHROPIC])
def test_what_agents_send_is_accepted(path: str, fields: dict[str, Any]) -> None:
    assert why_invalid(path, body(**fields)) is None


@pytest.mark.parametrize("prompt", ["x", ["x", "y"], [1, 2], [[1], [2, 3]], []])
def test_every_form_of_a_prompt_is_accepted(prompt: Any) -> None:
    assert why_invalid(COMPLETIONS, json.dumps({"model": "m", "prompt": prompt}).encode()) is None
    assert why_invalid("/completions", json.dumps({"model": "m", "prompt": prompt}).encode()) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the request body is not JSON: Expecting value"),
        (b"{", "the request body is not JSON"),
        (b"[]", "the request body must be a JSON object, not a list"),
        (b"null", "not null"),
        (b"3", "not a number"),
        (b'"x"', "not a string"),
        (b"true", "not true or false"),
        (body().decode().encode("utf-16"), "the request body is not UTF-8: byte 0 is 0xff"),
        (b'{"seed":' + b"9" * 5000 + b"}", "the request body has a number of more than 100 digits"),
        (nested(100_000), "nested deeper than 100 levels"),
        (b'{"messages":[]}', "model must be a string, but it is missing"),
        (body(model=3), "model must be a string, but it is 3"),
        (body(messages="hi"), "messages must be a list of objects"),
        (body(messages=[1]), "messages must be a list of objects"),
        (body(messages=None), "messages must be a list of objects"),
        (
            body(messages=[TURN, {"role": "user", "content": 3}]),
            'whose tool_calls is a list of objects, but messages[1] is {"role": "user", "content": 3}',
        ),
        (body(messages=[{"role": "user", "content": ["x"]}]), "messages must be"),
        (body(messages=[{"role": "assistant", "tool_calls": 3}]), "messages must be"),
        (body(tools=[TOOLS[0], 1]), "tools must be a list of objects, but tools[1] is 1"),
        (body(tools="x" * 1000), 'tools must be a list of objects, but it is "xxx'),
        (body(tool_choice=3), "tool_choice must be a string or an object"),
        (body(response_format=3), "response_format must be an object"),
        (body(stream="maybe"), "stream must be true or false"),
        (body(timeout="x"), "timeout must be a number of seconds"),
        (body(timeout=True), "timeout must be a number of seconds"),
        (body(extra_body=3), "extra_body must be an object"),
        (body(headers=3), "headers must be an object"),
        (body(extra_headers=[]), "extra_headers must be an object"),
        (body(api_base="http://127.0.0.1:9"), "api_base must not be set by a request"),
        (body(base_url="http://127.0.0.1:9"), "base_url must not be set by a request"),
    ],
)
def test_what_is_wrong_is_named_in_one_short_line(data: bytes, why: str) -> None:
    told = why_invalid(CHAT, data)
    assert told is not None and why in told
    assert "\n" not in told and len(told) < 350


@pytest.mark.parametrize("prompt", [None, 3, {}, [{}], [1, "x"], [[1, "x"]], [True]])
def test_wrong_prompts(prompt: Any) -> None:
    told = why_invalid(COMPLETIONS, json.dumps({"model": "m", "prompt": prompt}).encode())
    assert told is not None and "prompt must be a string" in told


@given(st.integers(1, 2 * MAX_DEPTH))
@example(MAX_DEPTH)
@example(MAX_DEPTH + 1)
def test_depth_is_counted_exactly(levels: int) -> None:
    told = why_invalid(CHAT, nested(max(2, levels)))
    assert (told is None) == (levels <= MAX_DEPTH)


def test_brackets_in_text_are_no_levels() -> None:
    assert why_invalid(CHAT, body(messages=[{"role": "user", "content": "[{" * 5000}])) is None


@given(st.binary(max_size=200))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    told = why_invalid(CHAT, data)
    assert told is None or ("\n" not in told and told.isprintable())


@given(
    st.dictionaries(st.text(st.characters()), st.one_of(st.text(st.characters()), st.floats(allow_nan=False)))
)
@example({"half of a pair": "\ud800"})
def test_a_body_that_is_encoded_again_says_the_same(value: dict[str, Any]) -> None:
    assert json.loads(encoded(value)) == value
