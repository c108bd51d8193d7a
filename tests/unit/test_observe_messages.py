"""Messages, answers, records and turns of a trajectory in every form that an agent or a client may write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.engines.tool_formats import FORMATS, look, resembling
from liverl.observe.trials.documents import DOCUMENTS, PROXY_TRAJECTORY
from liverl.observe.trials.message_parts import (
    Part,
    answer_message,
    content_text,
    loads,
    message_parts,
    pretty_arguments,
    same_message,
)
from liverl.observe.trials.tool_formats import explain_no_calls
from liverl.observe.trials.turns import Turn, TurnBuilder, turns_of_messages
from liverl.util.plural import quantity

# -- the parts of one message


def brief(parts: list[Part] | tuple[Part, ...]) -> list[tuple[str, ...]]:
    """Each part as its kind, its text, and what else it has."""
    rows = []
    for part in parts:
        extra = (part.name, part.call_id, "failed" if part.failed else "")
        rows.append((part.kind, part.text, *extra) if any(extra) else (part.kind, part.text))
    return rows


TEXT = {"type": "text", "text": "one"}
IMAGE = {"type": "image", "source": {}}


def rewritten(first: int, of: int, turn: int, others: int) -> str:
    repeats = f"the first {first} of the {of} messages of turn {turn}"
    return f"the agent has rewritten the conversation: it repeats {repeats}, then has {quantity(others, 'other')}"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, ""),
        ([], ""),
        ({"ü": 1}, '{"ü": 1}'),
        (3, "3"),
        (False, "false"),
        (
            [TEXT, "two", IMAGE, {}, {"type": ""}, {"text": 3}, 4, None],
            "one\ntwo\n[image]" + "\n[unknown block]" * 3,
        ),
    ],
)
def test_a_content_as_text(content: object, text: str) -> None:
    assert content_text(content) == text


@pytest.mark.parametrize(
    ("role", "kind"),
    [("system", "system"), ("developer", "system"), ("user", "user"), (None, "user"), ("odd", "user")],
)
def test_a_request_messages_kind_is_its_role(role: object, kind: str) -> None:
    blocks = [TEXT, "two", IMAGE, 5, None, {"text": ""}]
    assert brief(message_parts({"role": role, "content": blocks}, {})) == [
        (kind, "one"),
        (kind, "two"),
        (kind, "[image]"),
    ]
    assert brief(message_parts({"role": role, "content": " x "}, {})) == [(kind, " x ")]
    for nothing in (" \n", "", None, 3, {}, []):
        assert message_parts({"role": role, "content": nothing}, {}) == []


@pytest.mark.parametrize("message", [None, "text", 3, [], [{"role": "user", "content": "x"}]])
def test_what_is_no_message_has_no_parts(message: object) -> None:
    assert message_parts(message, {}) == []


def test_a_tools_result_is_named_after_its_call() -> None:
    names = {"c1": "bash"}
    result = {"role": "tool", "tool_call_id": "c1", "content": [TEXT]}
    assert brief(message_parts(result, names)) == [("result", "one", "bash", "c1", "")]
    assert brief(message_parts({**result, "name": "own"}, names)) == [("result", "one", "own", "c1", "")]
    assert brief(message_parts({**result, "tool_call_id": "c2"}, names)) == [("result", "one", "", "c2", "")]
    old = {"role": "function", "name": "ls", "content": None}
    assert brief(message_parts(old, names)) == [("result", "", "ls", "", "")]
    odd = {"role": "tool", "tool_call_id": 7, "name": ["x"], "content": "y"}
    assert brief(message_parts(odd, names)) == [("result", "y")]
    assert names == {"c1": "bash"}, "a result names nothing"


def test_blocks_of_anthropic() -> None:
    names: dict[str, str] = {}
    used = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"cmd": "ls"}}
    content = [{"type": "thinking", "thinking": "Hm."}, {"type": "thinking", "thinking": 3}, TEXT, used]
    assert brief(message_parts({"role": "assistant", "content": content}, names)) == [
        ("reasoning", "Hm."),
        ("reasoning", ""),
        ("text", "one"),
        ("call", '{\n  "cmd": "ls"\n}', "bash", "t1", ""),
    ]
    assert names == {"t1": "bash"}
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT, "two"]},
        {"type": "tool_result", "tool_use_id": "t1", "content": "x", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t9", "content": "y", "is_error": "true"},
        {"type": "tool_result"},
    ]
    assert brief(message_parts({"role": "user", "content": results}, names)) == [
        ("result", "one\ntwo", "bash", "t1", ""),
        ("result", "x", "bash", "t1", "failed"),
        ("result", "y", "", "t9", ""),
        ("result", ""),
    ]


def test_an_assistants_message_has_its_parts_in_order() -> None:
    call = {"id": "c1", "function": {"name": "bash", "arguments": '{"a": 1}'}}
    flat = {"id": "c2", "name": "ls", "input": {"b": 2}}
    message = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "thinking_blocks": [{"type": "thinking", "thinking": "not shown beside the reasoning"}],
        "content": [TEXT],
        "refusal": "No.",
        "tool_calls": [call, "odd", None, flat],
        "function_call": {"name": "old", "arguments": "[1]"},
    }
    names: dict[str, str] = {}
    assert brief(message_parts(message, names)) == [
        ("reasoning", "Hm."),
        ("text", "one"),
        ("text", "No."),
        ("call", '{\n  "a": 1\n}', "bash", "c1", ""),
        ("call", '{\n  "b": 2\n}', "ls", "c2", ""),
        ("call", "[\n  1\n]", "old", "", "failed"),
    ]
    assert names == {"c1": "bash", "c2": "ls"}


@pytest.mark.parametrize("empty", [None, "", "  ", 3])
def test_reasoning_is_taken_from_the_first_place_that_has_some(empty: object) -> None:
    block = {"type": "thinking", "thinking": "in a block"}
    both = {
        "role": "assistant",
        "reasoning_content": empty,
        "reasoning": "second",
        "thinking_blocks": [block],
    }
    assert brief(message_parts(both, {})) == [("reasoning", "second")]
    neither = {**both, "reasoning": empty}
    assert brief(message_parts(neither, {})) == [("reasoning", "in a block")]
    # The same thought as a block of the content is shown once, another one is kept.
    content = [block, {"type": "thinking", "thinking": "other"}]
    assert brief(message_parts({**neither, "content": content}, {})) == [
        ("reasoning", "in a block"),
        ("reasoning", "other"),
    ]


@pytest.mark.parametrize("calls", [None, "x", {"id": "c"}, 3, []])
def test_calls_that_are_no_list_are_none(calls: object) -> None:
    assert message_parts({"role": "assistant", "content": None, "tool_calls": calls}, {}) == []
    odd = {"role": "assistant", "content": None, "tool_calls": calls, "function_call": "x"}
    assert message_parts(odd, {}) == []


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (None, ("{}", True)),
        ("", ("{}", True)),
        ("{}", ("{}", True)),
        ({}, ("{}", True)),
        ({"ü": [1]}, ('{\n  "ü": [\n    1\n  ]\n}', True)),
        ("[]", ("[]", False)),
        ([1], ("[\n  1\n]", False)),
        ("3", ("3", False)),
        (0, ("0", False)),
        (False, ("false", False)),
        ('"x"', ('"x"', False)),
        ("{oops", ("{oops", False)),
        ("null", ("null", False)),
        ('{"a": NaN}', ('{\n  "a": null\n}', True)),
        ('{"a": "\ud800"}', ('{\n  "a": "?"\n}', True)),
    ],
)
def test_arguments_of_a_call(arguments: object, shown: tuple[str, bool]) -> None:
    assert pretty_arguments(arguments) == shown


def test_json_as_python_writes_it() -> None:
    assert loads(b'{"a": [NaN, Infinity, -Infinity, 1.5]}') == {"a": [None, None, None, 1.5]}
    assert loads(b'"\\ud800x"') == "?x"
    assert loads(b'["\xff"]') == ["\ufffd"]
    assert loads(b"") is None and loads(b"{") is None and loads(b"null") is None


# -- answers


MESSAGE = {"role": "assistant", "content": "Done."}


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("data: raw", ({"role": "assistant", "content": "data: raw"}, None)),
        (None, (None, None)),
        ([], (None, None)),
        ({}, (None, None)),
        ({"choices": [{"finish_reason": "stop", "message": {"content": "Done."}}]}, (MESSAGE, "stop")),
        ({"choices": [{"finish_reason": 3, "message": {"role": "x", "content": "Done."}}]}, (MESSAGE, None)),
        ({"choices": [{"finish_reason": "length", "text": "Done."}]}, (MESSAGE, "length")),
        ({"choices": [{"finish_reason": "stop", "text": 3, "message": "x"}]}, (None, "stop")),
        ({"choices": [], "content": "Done.", "stop_reason": "end_turn"}, (MESSAGE, "end_turn")),
        ({"choices": ["x"], "content": "Done."}, (MESSAGE, None)),
        ({"choices": {"0": 1}, "content": [TEXT]}, ({"role": "assistant", "content": [TEXT]}, None)),
        ({"content": {"a": 1}, "stop_reason": "max_tokens"}, (None, "max_tokens")),
        ({"content": "Done.", "stop_reason": ["x"]}, (MESSAGE, None)),
    ],
)
def test_the_answer_in_a_response(response: object, answer: object) -> None:
    assert answer_message(response) == answer


USER = {"role": "user", "content": "Go."}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (USER, {"content": "Go.", "role": "user"}, True),
        (USER, {"role": "user", "content": [{"type": "text", "text": "Go."}]}, True),
        (
            USER,
            {"role": "user", "content": [{"type": "text", "text": "Go.", "cache_control": {"a": 1}}]},
            True,
        ),
        (USER, {**USER, "cache_control": {"type": "ephemeral"}}, False),
        (USER, {**USER, "name": None, "tool_calls": [], "refusal": ""}, True),
        (USER, {**USER, "name": "n"}, False),
        (USER, {**USER, "count": 0}, False),
        (USER, {"role": "user", "content": "Stop."}, False),
        (USER, {"role": "system", "content": "Go."}, False),
        (USER, {"role": "user", "content": ["Go."]}, False),
        (USER, "Go.", False),
        (MESSAGE, {**MESSAGE, "reasoning_content": "Hm.", "reasoning": "Hm."}, True),
        (MESSAGE, {**MESSAGE, "thinking_blocks": [1], "provider_specific_fields": {"a": 1}}, True),
        (
            MESSAGE,
            {**MESSAGE, "content": [{"type": "thinking", "thinking": "Hm."}, {**TEXT, "text": "Done."}]},
            True,
        ),
        (MESSAGE, {**MESSAGE, "content": [{"type": "redacted_thinking"}, {**TEXT, "text": "Done."}]}, True),
        ({"role": "assistant"}, {"role": "assistant", "content": ""}, True),
        ({"role": "assistant"}, {"role": "assistant", "content": None}, True),
        ({"role": "assistant"}, {"role": "assistant", "content": [{"type": "thinking"}]}, True),
        ({"role": "assistant"}, MESSAGE, False),
        ({"role": "user", "content": {"a": 1}}, {"role": "user", "content": {"a": 2}}, False),
        (
            {"role": "user", "content": {"a": {"cache_control": 1}}},
            {"role": "user", "content": {"a": {}}},
            True,
        ),
    ],
)
def test_which_messages_are_the_same(a: object, b: object, same: bool) -> None:
    one, other = json.dumps(a).encode(), json.dumps(b).encode()
    assert same_message(one, one) and same_message(other, other)
    assert same_message(one, other) is same and same_message(other, one) is same


def test_a_message_that_is_no_json_is_the_same_as_itself_only() -> None:
    assert same_message(b"{", b"{") and not same_message(b"{", json.dumps(USER).encode())


# -- turns


def record(messages: list[Any] | None = None, answer: Any = None, **other: Any) -> dict[str, Any]:
    return {
        "success": True,
        "request_body": {"model": "policy", "messages": [USER] if messages is None else messages},
        "response_body": {"choices": [{"finish_reason": "stop", "message": answer or MESSAGE}]},
        **other,
    }


def built(*records: object) -> list[Turn]:
    builder = TurnBuilder()
    for entry in records:
        builder.add(json.dumps(entry).encode(), 0)
    assert builder.bad == 0
    return builder.turns


def test_a_turn_says_what_its_record_says() -> None:
    told = record(
        stream=True,
        replica="http://a:1",
        moved_from="http://b:1",
        request_time=1_795_220_000,
        duration_ms=250,
        usage={"prompt_tokens": 9, "completion_tokens": 4},
    )
    line = json.dumps(told).encode()
    builder = TurnBuilder()
    builder.add(b"", 0)
    builder.add(b" \n", 0)
    builder.add(b"{", 0)
    builder.add(b'{"ok": 1}', 0)
    builder.add(b"[1]", 0)
    builder.add(line, 77)
    builder.add(line, 78)
    assert builder.bad == 3
    one, two = builder.turns
    assert one == Turn(
        number=1,
        before=(Part("user", "Go."),),
        answer=(Part("text", "Done."),),
        finish_reason="stop",
        prompt_tokens=9,
        completion_tokens=4,
        seconds=0.25,
        started_at=1_795_220_000.0,
        replica="http://a:1",
        moved_from="http://b:1",
        model="policy",
        judged=True,
        stream=True,
        offered=False,
        offset=77,
        size=len(line),
    )
    assert (two.number, two.offset, two.before, two.note) == (2, 78, (), "")


def test_a_turn_knows_only_what_its_record_tells() -> None:
    (turn,) = built({"success": True})
    note = "its answer is not recorded: what the model wrote, and whether it called a tool, is not known"
    assert turn == Turn(
        number=1, completion_tokens=0, judged=False, recorded=False, note=note, size=len('{"success": true}')
    )
    (turn,) = built(
        record(stream="true", moved_from=3, replica=4, duration_ms=True, request_body={"model": 3})
    )
    assert (turn.stream, turn.moved_from, turn.replica, turn.seconds, turn.model) == (False,) + (None,) * 4
    (turn,) = built({**record(), "success": 1})
    assert (turn.success, turn.answer[-1]) == (False, Part("error", "the request failed"))


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (None, "the request failed"),
        ("gone", "gone"),
        (0, "0"),
        ({}, "failed"),
        ({"message": "why"}, "why"),
        ({"error_type": "Timeout"}, "Timeout: no message"),
        ({"error_type": "Timeout", "message": "why"}, "Timeout: why"),
        ({"status_code": 500, "message": "why"}, "HTTP 500: why"),
        ({"error_type": "Timeout", "status_code": 408, "message": ""}, "Timeout HTTP 408: no message"),
    ],
)
def test_a_failed_call_says_why(failure: object, text: str) -> None:
    failed = record(success=False, response_body=None, failure=failure, usage={"completion_tokens": 3})
    (turn,) = built(failed)
    assert (turn.success, turn.judged, turn.completion_tokens) == (False, False, None)
    assert turn.answer == (Part("error", text),)
    gone = {"error_type": "client_disconnected"}
    for success, told, abandoned in ((False, gone, True), (True, gone, False), (False, {}, False)):
        (turn,) = built(record(success=success, failure=told))
        assert (turn.abandoned, turn.judged, turn.number) == (abandoned, success, 1)
        assert turn.answer[:-1] == (Part("text", "Done."),) and turn.answer[-1].kind == "error"


@pytest.mark.parametrize(
    ("told", "tokens"),
    [
        ({}, None),
        ({"usage": None}, None),
        ({"usage": {"prompt_tokens": 7, "input_tokens": 9}}, 7),
        (
            {"usage": {"input_tokens": 1, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 300}},
            321,
        ),
        ({"usage": {"cache_read_input_tokens": 5}}, 5),
        ({"usage": {"prompt_tokens": "7", "input_tokens": "9"}}, None),
        ({"usage": {}}, None),
        ({"response_body": {"usage": {"prompt_tokens": 8}}}, 8),
        ({"usage": {"prompt_tokens": 7}, "response_body": {"usage": {"prompt_tokens": 8}}}, 7),
        ({"usage": "x", "response_body": {"usage": {"prompt_tokens": 8}}}, 8),
        ({"response_body": "data: raw"}, None),
        ({"response_body": {"usage": 3}}, None),
        ({"response_body": {}}, None),
    ],
)
def test_tokens_of_a_prompt(told: dict[str, Any], tokens: int | None) -> None:
    (turn,) = built(record(**told))
    assert turn.prompt_tokens == tokens


@pytest.mark.parametrize(
    ("request_body", "before"),
    [
        ({"messages": [USER]}, [("user", "Go.")]),
        ({"system": "Be kind.", "messages": [USER]}, [("system", "Be kind."), ("user", "Go.")]),
        ({"system": [TEXT], "messages": [USER]}, [("system", "one"), ("user", "Go.")]),
        ({"system": "", "messages": [USER]}, [("user", "Go.")]),
        ({"system": "Be kind."}, [("system", "Be kind.")]),
        ({"prompt": "Once", "unparsed": "no"}, [("user", "Once")]),
        ({"unparsed": "{oops"}, [("user", "{oops")]),
        ({"prompt": ["Once"]}, []),
        ({"messages": [USER], "prompt": "Once", "unparsed": "x"}, [("user", "Go.")]),
        ({"messages": "x"}, []),
        ({"messages": {"a": 1}, "prompt": "Once"}, [("user", "Once")]),
        ({}, []),
        (None, []),
        ("raw", []),
    ],
)
def test_messages_of_a_request(request_body: object, before: object) -> None:
    (turn,) = built(record(request_body=request_body))
    assert brief(turn.before) == before


CALLS = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [{"id": "c1", "function": {"name": "bash"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}


def test_what_the_next_request_adds_belongs_to_the_turn_before() -> None:
    one, two, three = built(
        record([USER], CALLS),
        record([USER, CALLS, RESULT], MESSAGE),
        record([USER, CALLS, RESULT, MESSAGE, {"role": "user", "content": "More."}], MESSAGE),
    )
    assert brief(one.after) == [("result", "a.py", "bash", "c1", "")]
    assert brief(two.after) == [("user", "More.")]
    assert (two.before, two.note, three.before, three.after, three.note) == ((), "", (), (), "")
    # A turn whose answer was not recorded shows what the client sent back as its answer.
    one, _ = built(record([USER], response_body=None), record([USER, CALLS, RESULT], MESSAGE))
    assert [part.kind for part in one.after] == ["text", "call", "result"]
    # A retry of the same request adds nothing.
    one, two = built(record([USER], response_body=None), record([USER], MESSAGE))
    assert (one.after, two.before, two.note) == ((), (), "")


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_shortened_conversation_shows_what_is_new_in_it() -> None:
    _, two, three = built(
        record([said("a"), said("b"), said("c")]),
        record([said("a"), said("b"), said("x"), said("y"), said("z")]),
        record([said("a"), said("b"), said("x"), said("y"), said("z"), MESSAGE, said("w")]),
    )
    assert brief(two.before) == [("user", "x"), ("user", "y"), ("user", "z")]
    assert two.note == (rewritten(2, 3, 1, 3))
    assert brief(two.after) == [("user", "w")]
    assert (three.before, three.note) == ((), "")


def test_of_several_conversations_the_one_with_most_in_common_is_changed() -> None:
    turns = built(
        record([said("a"), said("b"), said("c")]),  # turn 1
        record([said("a"), said("z")]),  # 2: differs from 1 after one message
        record([said("q")]),  # 3: another one
        record([said("a"), said("b"), said("d")]),  # 4: nearest to 1
        record([said("q"), said("r")]),  # 5: continues 3
    )
    assert [turn.note for turn in turns] == [
        "",
        rewritten(1, 3, 1, 1),
        "a separate conversation of 1 message",
        rewritten(2, 3, 1, 1),
        "",
    ]
    assert brief(turns[2].after) == [("user", "r")]
    assert [turn.after for turn in turns[:2]] == [(), ()]


def test_of_equally_near_conversations_the_newest_is_continued() -> None:
    turns = built(
        record([said("a"), said("b")]),
        record([said("a"), said("c")]),
        record([said("a"), said("d")]),
    )
    assert "of the 2 messages of turn 2" in turns[2].note
    # Two requests of the same messages: the later one goes on.
    turns = built(
        record([said("a")]), record([said("a"), said("b")]), record([said("a"), said("b"), said("c")])
    )
    assert [brief(turn.after) for turn in turns] == [[("user", "b")], [("user", "c")], []]


def test_names_of_calls_are_known_in_a_conversation_that_forks() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "bash"}}]}
    turns = built(record([said("a"), said("b")], call), record([said("a"), RESULT]))
    assert brief(turns[1].before) == [("result", "a.py", "bash", "c1", "")]


def test_eight_conversations_are_told_apart() -> None:
    first = [record([said(f"agent {n}")]) for n in range(8)]
    turns = built(*first, record([said("agent 0"), said("more")]))
    assert brief(turns[0].after) == [("user", "more")] and turns[8].note == ""
    turns = built(*first, record([said("agent 8")]), record([said("agent 0"), said("more")]))
    assert turns[0].after == () and turns[9].note == "a separate conversation of 2 messages"
    # The least recently used one is forgotten, not the first.
    again = record([said("agent 0"), said("more")])
    turns = built(
        *first, again, record([said("agent 8")]), record([said("agent 0"), said("more"), said("yet")])
    )
    assert brief(turns[8].after) == [("user", "yet")]


def test_requests_without_messages_are_conversations_of_their_own() -> None:
    turns = built(record([]), record([]), record([said("a")]))
    assert [turn.note for turn in turns] == [
        "",
        "a separate conversation of 0 messages",
        "a separate conversation of 1 message",
    ]


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=5), max_size=12))
def test_every_message_is_shown(requests: list[list[str]]) -> None:
    """Each request can be put together from what its turn and the turns of its conversation show."""
    turns = built(*(record([said(text) for text in texts], response_body=None) for texts in requests))
    assert [turn.number for turn in turns] == list(range(1, len(requests) + 1))
    for turn, texts in zip(turns, requests, strict=True):
        shown = [part.text for part in turn.before]
        assert texts[len(texts) - len(shown) :] == shown, "the new ones are the last ones"
        if shown and len(shown) < len(texts):
            assert f"repeats the first {len(texts) - len(shown)} of" in turn.note
            assert f"then has {quantity(len(shown), 'other')}" in turn.note


# -- conversations without records


def test_turns_of_a_plain_conversation() -> None:
    more = {"role": "user", "content": "More."}
    turns = turns_of_messages(
        [{"role": "system", "content": "s"}, USER, CALLS, RESULT, more, MESSAGE, "odd", MESSAGE]
    )
    assert [turn.number for turn in turns] == [1, 2, 3]
    assert [brief(turn.before) for turn in turns] == [[("system", "s"), ("user", "Go.")], [], []]
    assert brief(turns[0].answer) == [("text", "I look."), ("call", "{}", "bash", "c1", "")]
    assert brief(turns[0].after) == [("result", "a.py", "bash", "c1", ""), ("user", "More.")]
    assert turns[1].after == () and brief(turns[2].answer) == [("text", "Done.")]
    assert all(turn.judged for turn in turns)
    assert turns_of_messages([USER]) == [Turn(number=1, before=(Part("user", "Go."),), judged=False)]
    assert turns_of_messages([]) == [] and turns_of_messages(["odd"]) == []
    assert turns_of_messages([{"role": "assistant", "content": None}]) == [Turn(number=1)]


def test_documents_of_the_proxy() -> None:
    document = DOCUMENTS[0]
    assert document.name == PROXY_TRAJECTORY == "proxy_trajectory.json"
    turns, note = document.turns({"messages_snapshot": [USER, MESSAGE], "messages": []})
    assert [brief(turn.answer) for turn in turns] == [[("text", "Done.")]]
    assert note == "proxy_trajectory.json has no finish reasons, tokens or times"
    turns, note = document.turns({"messages": [MESSAGE]})
    assert len(turns) == 1
    assert document.turns({"messages": 3, "traj_response_mask": [1, 0, 0, 1.0, 0]}) == (
        (),
        "proxy_trajectory.json contains only tokens: 2 of the model, 3 of others",
    )
    for odd in ({}, {"messages": 3}, {"traj_response_mask": 3}):
        assert document.turns(odd) == ((), "proxy_trajectory.json has an unknown shape")


# -- what was written instead of a call

WRITTEN = {
    "DeepSeek V4.1": "<｜DSML｜ calls>",
    "DeepSeek V4": "<｜DSML｜tool_calls>",
    "DeepSeek V3.2": "<｜DSML｜function_calls>",
    "DeepSeek V3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ls",
    "DeepSeek V3.1": "<｜tool▁calls▁begin｜>",
    "Step 3": '<steptml:invoke name="ls">',
    "Kimi K2": "<|tool_call_begin|>",
    "Harmony": "to=functions.ls",
    "MiniMax M3": "]<]minimax[>[<tool_call>",
    "MiniMax M2": "<minimax:tool_call>",
    "Seed-OSS XML": "<seed:tool_call>",
    "Gemma 4": "<|tool_call>call:ls{",
    "FunctionGemma": "<start_function_call>call:ls{",
    "LFM2": "<|tool_call_start|>[ls(",
    "LongCat": "<longcat_tool_call>ls",
    "dots": "<dots_function_call>",
    "InternLM": "<|action_start|><|plugin|>",
    "Granite 3.0": '<|tool_call|>[{"name"',
    "Granite 20B": '<function_call> {"name"',
    "Jamba": "<tool_calls>[",
    "Mistral": "[TOOL_CALLS]ls",
    "Phi-4-mini": "functools[",
    "Qwen3-Coder XML": "x <function=ls>\n<parameter=a>",
    "GLM": "<tool_call>ls<arg_key>a</arg_key>",
    "Granite 3.1": "<tool_call>[",
    "Hermes JSON": '<tool_call>\n{"name": "ls"}</tool_call>',
    "MiniCPM 5": '<function name="ls">',
    "Apertus": "<|tools_prefix|>[",
    "Olmo 3": "<function_calls>ls()",
    "Llama 3 JSON": "<|python_tag|>",
    "Anthropic XML": '<invoke name="ls">',
    "JSON in a code fence": '```json\n{"name": "ls"}\n```',
    "bare JSON": '{"name": "ls", "arguments": {}}',
    "Python calls": "[ls(path='.')]",
    "list of JSON": '[{"name": "ls", "arguments": {}}]',
    "<tool_call> without a known content": "<tool_call>ls()</tool_call>",
}


@pytest.mark.parametrize("title", WRITTEN)
def test_each_format_is_recognized_alone(title: str) -> None:
    assert [found.title for found in resembling(WRITTEN[title])] == [title]
    assert [found.title for found in FORMATS] == list(WRITTEN)
    text = {"role": "assistant", "content": WRITTEN[title]}
    (turn,) = built(record(answer=text))
    assert (turn.resembles, turn.raw) == ((title,), WRITTEN[title])
    (turn,) = built(record(answer={**CALLS, "content": WRITTEN[title]}))
    assert (turn.resembles, turn.raw) == ((), ""), "a call was parsed"
    (turn,) = turns_of_messages([text])
    assert turn.resembles == (title,)


SETTING = "the tool-call parser is set by model.tool_parser in config.yaml"
WITH = "the run's tool-call parser is hermes (model.tool_parser in config.yaml)"


@pytest.mark.parametrize(
    ("text", "parser", "truncated", "why"),
    [
        (
            " \n",
            None,
            False,
            "the response has no text either: the engine or its parsers dropped the model's output",
        ),
        (
            " \n",
            "hermes",
            True,
            "the response has no text either: the engine or its parsers dropped the model's output",
        ),
        (
            "Hello",
            None,
            False,
            "its text contains nothing that looks like a tool call: the model answered without one",
        ),
        ("Hello", "hermes", True, "its text was cut off at the token limit before a tool call began"),
        (
            WRITTEN["Hermes JSON"],
            "hermes",
            False,
            'what the model wrote looks like Hermes JSON (<tool_call>{"name": ...}), which hermes reads:'
            " is the call complete and well formed?",
        ),
        (
            WRITTEN["Hermes JSON"],
            "hermes",
            True,
            'what the model wrote looks like Hermes JSON (<tool_call>{"name": ...}), which hermes reads:'
            " the call was cut off at the token limit",
        ),
        (
            WRITTEN["GLM"],
            "hermes",
            True,
            "what the model wrote looks like GLM (<tool_call>name<arg_key>),"
            " which the parser glm45 or glm47 reads",
        ),
        (
            WRITTEN["GLM"] + WRITTEN["Mistral"],
            None,
            False,
            "what the model wrote looks like Mistral ([TOOL_CALLS]) and GLM (<tool_call>name<arg_key>),"
            " which the parser mistral or glm45 or glm47 reads",
        ),
        (
            WRITTEN["Anthropic XML"],
            "hermes",
            False,
            'what the model wrote looks like Anthropic XML (<invoke name="...">), which no parser of vLLM reads',
        ),
    ],
)
def test_why_no_tool_was_called(text: str, parser: str | None, truncated: bool, why: str) -> None:
    setting = WITH if parser else SETTING
    assert explain_no_calls(["", text], parser, truncated) == (why, setting)


def test_formats_are_named_with_their_marks() -> None:
    coder = [form for form in FORMATS if form.title == "Qwen3-Coder XML"]
    assert look(coder) == "Qwen3-Coder XML (<function=...>)" and look(()) == ""
