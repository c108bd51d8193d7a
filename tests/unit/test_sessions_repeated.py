"""Requests of one session, of which only what is new is read: each must be what it is as a whole."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from liverl.sessions import repeated
from liverl.sessions.canonical import read_anthropic, read_body, read_openai
from liverl.sessions.messages import Api, BadRequest, Chat
from liverl.sessions.repeated import KnownRequests, RequestReader
from liverl.sessions.shared_tools import SharedTools
from liverl.util import json_limits

WHOLE = {"openai": read_openai, "anthropic": read_anthropic}
TEXTS = (
    "",
    "Go on.",
    'a "quoted" {text] \\ with "messages": [',
    "\u00e9 \U0001f642 \\ud83d",
    "x" * 300,
    "[]",
    "}",
)
USER = {"role": "user", "content": "Go."}


def whole(data: bytes, api: Api) -> Chat | str:
    """What a request is without any earlier one."""
    try:
        return msgspec.structs.replace(WHOLE[api](read_body(data)), size=len(data))
    except BadRequest as error:
        return f"{error} at {error.param}"


def after(reader: RequestReader, data: bytes, api: Api) -> Chat | str:
    """What it is behind earlier ones."""
    try:
        return reader.read(data, api)
    except BadRequest as error:
        return f"{error} at {error.param}"


def openai_body(rng: random.Random, messages: list[Any]) -> dict[str, Any]:
    """A body with its fields in any order."""
    fields: list[tuple[str, Any]] = [
        ("messages", messages),
        ("model", "policy"),
        ("max_tokens", rng.randrange(1, 99)),
    ]
    if rng.random() < 0.3:
        inner = {"type": "object", "properties": {"messages": {"type": "array"}}}
        fields.append(("tools", [{"type": "function", "function": {"name": "f", "parameters": inner}}]))
    if rng.random() < 0.2:
        fields.append(("extra_body", {"top_k": 5, "messages": [USER]}))
    rng.shuffle(fields)
    return dict(fields)


def message(rng: random.Random, api: Api) -> dict[str, Any]:
    """A message of any kind."""
    text = rng.choice(TEXTS)
    if rng.random() < 0.3:
        return {"role": "assistant", "content": text}
    if api == "anthropic":
        result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": text}]}
        blocks = [{"type": "text", "text": text}, result, {"type": "text", "text": "Then."}]
        return {"role": "user", "content": rng.choice([text, blocks])}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": text})}}
    return rng.choice(
        [
            {"role": "user", "content": [{"type": "text", "text": text}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_request_behind_others_is_what_it_is_alone(seed: int) -> None:
    rng = random.Random(seed)
    apis: tuple[Api, ...] = ("openai", "anthropic")
    api, reader = rng.choice(apis), RequestReader(KnownRequests(rng.choice([200, 1 << 20])))
    messages: list[Any] = [USER]
    for _ in range(12):
        step = rng.random()
        if step < 0.6:
            messages += [message(rng, api) for _ in range(rng.randrange(1, 3))]
        elif step < 0.7:
            messages[rng.randrange(len(messages))] = message(rng, api)
        elif step < 0.8:
            messages = messages[: rng.randrange(1, len(messages) + 1)]
        elif step < 0.85:
            messages.insert(0, message(rng, api))
        elif step < 0.9:
            messages = [*messages, rng.choice([5, [USER], "text", {}, {"role": "nobody", "content": ""}])]
        elif step < 0.95:
            api = rng.choice(apis)
        asked = [*messages, USER]
        body = (
            openai_body(rng, asked)
            if api == "openai"
            else {"max_tokens": 9, "messages": asked, "system": "S."}
        )
        blanks = rng.choice([None, None, (" ,", " : "), (",", ":")])
        data = json.dumps(body, ensure_ascii=rng.random() < 0.5, separators=blanks).encode()
        if rng.random() < 0.1:  # cut, or with something behind it
            data = rng.choice(
                [data[: rng.randrange(len(data))], data + b"]", data[:-1] + b', "messages": []}']
            )
        assert after(reader, data, api) == whole(data, api)
        messages = [
            each for each in messages if isinstance(each, dict) and each.get("role", "nobody") != "nobody"
        ] or [USER]


def test_only_what_is_new_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, read = RequestReader(KnownRequests()), []
    strict = repeated.read_strict
    monkeypatch.setattr(repeated, "read_strict", lambda data: read.append(len(data)) or strict(data))
    monkeypatch.setattr(repeated, "read_body", lambda data: pytest.fail("it was read as a whole"))
    messages = [{"role": "user", "content": "x" * 10_000}]
    first = reader.read(json.dumps({"messages": messages}).encode(), "openai")
    assert sum(read) > 10_000
    read.clear()
    messages += [{"role": "assistant", "content": "Yes."}, USER]
    second = reader.read(json.dumps({"messages": messages}).encode(), "openai")
    assert sum(read) < 250
    assert second.messages[0] is first.messages[0]
    assert [each.text for each in second.messages[1:]] == ["Yes.", "Go."]


@pytest.mark.parametrize("changed", range(5))
def test_a_message_that_was_changed_is_read_again(changed: int) -> None:
    reader = RequestReader(KnownRequests())
    texts = [f"text {number}" for number in range(5)]
    for _ in range(2):
        messages = [{"role": "user", "content": text} for text in texts]
        chat = reader.read(json.dumps({"messages": messages}).encode(), "openai")
        assert [each.text for each in chat.messages] == texts
        texts[changed] = "other!"  # as long as before


@pytest.mark.parametrize(
    "data",
    [
        # The list that is found first is not the one that counts.
        b'{"a": {"messages": [{"role": "user", "content": "one"}]}, "messages": [{"role": "user", "content": "two"}]}',
        b'{"messages": [{"role": "user", "content": "one"}], "messages": [{"role": "user", "content": "two"}]}',
        b'{"model": "\\"messages\\": [{", "messages": [{"role": "user", "content": "two"}]}',
    ],
)
def test_the_messages_are_those_that_count(data: bytes) -> None:
    reader = RequestReader(KnownRequests())
    for _ in range(3):
        assert reader.read(data, "openai").messages[0].text == "two"


def test_the_values_of_known_messages_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "MAX_VALUES", 60)
    monkeypatch.setattr(json_limits.check_json, "__defaults__", (60,))
    reader, messages = RequestReader(KnownRequests()), [USER]
    results = []
    for _ in range(40):
        messages = [*messages, {"role": "assistant", "content": "a"}, USER]
        data = json.dumps({"messages": messages}).encode()
        results.append(after(reader, data, "openai"))
        assert results[-1] == whole(data, "openai")
    assert isinstance(results[0], Chat) and "more than 60" in str(results[-1])


def test_what_is_kept_has_a_limit_and_ends_with_its_owner() -> None:
    kept = KnownRequests(5_000)
    readers = [RequestReader(kept) for _ in range(10)]
    for number, reader in enumerate(readers):
        messages = [{"role": "user", "content": f"{number} " + "x" * 1_000}]
        reader.read(json.dumps({"messages": messages}).encode(), "openai")
    assert 3_000 < kept.size <= 5_000
    readers.clear()
    del reader
    assert kept.size == 0


def test_a_client_whose_requests_cannot_be_taken_apart_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, tried = RequestReader(KnownRequests()), []
    look = repeated._messages
    monkeypatch.setattr(repeated, "_messages", lambda *args: tried.append(1) or look(*args))
    data = b'{"messages": [{"role": "user", "content": "Go."}], "top_p": NaN, "x": "\\ud800"}'
    for _ in range(9):
        assert isinstance(after(reader, data, "openai"), str)
    assert len(tried) == repeated.UNUSUAL


def test_sessions_that_offer_the_same_tools_share_them() -> None:
    function = {"name": "f", "parameters": {"type": "object", "x": 1}}
    readers = [RequestReader(KnownRequests()) for _ in range(2)]
    data = json.dumps({"messages": [USER], "tools": [{"type": "function", "function": function}]}).encode()
    one, other = (reader.read(data, "openai") for reader in readers)
    assert one.tools is other.tools
    different = readers[0].read(data.replace(b'"x": 1', b'"x": 1.0'), "openai")
    assert repr(different.tools[0]["function"]["parameters"]["x"]) == "1.0"


def test_so_many_lists_of_tools_are_kept_and_each_has_its_json() -> None:
    shared = SharedTools(most=2)
    lists = [({"name": f"tool {number}"},) for number in range(4)]
    for tools in (*lists, lists[3], ({"name": "tool 3"},), ()):
        assert shared.same(tools) == tools
        assert shared.json(tools) == msgspec.json.encode(tools)
    assert shared.same(({"name": "tool 3"},)) is lists[3]
    assert len(shared._same) == len(shared._json) == 2
    assert all(shared._json[id(tools)] == data for data, tools in shared._same.items())
    large = ({"name": "x" * (1 << 20)},)
    assert shared.same(large) is large and shared.json(large) == msgspec.json.encode(large)
    assert len(shared._same) == 2
