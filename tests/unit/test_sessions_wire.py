"""Replies in the forms of both APIs, whole and streamed, as their SDKs put them together again."""

from __future__ import annotations

import json

from liverl.sessions.messages import Call, Message
from liverl.sessions.wire import Answer, body, events

CALLS = (Call("c1", "read", '{"path":"a"}'), Call("c2", "write", '{"path":"b"}'))
ANSWER = Answer("x", 7, "m", Message("assistant", "", "I think.", CALLS), "tool_calls", 11, 5)
WORDS = Answer("x", 7, "m", Message("assistant", "Hello.", "I think."), "length", 11, 5)


def data(api, answer, **options):
    found = []
    for event in events(api, answer, **options):
        line = event.decode().rstrip("\n").split("\n")[-1].removeprefix("data: ")
        found.append(line if line == "[DONE]" else json.loads(line))
    return found


def test_openai_whole_and_streamed_say_the_same():
    message = body("openai", ANSWER)["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == (None, "I think.")
    *chunks, usage, done = data("openai", ANSWER)
    assert done == "[DONE]" and usage["usage"] == body("openai", ANSWER)["usage"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert {"reasoning_content": "I think."} in deltas
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call.pop("index") for call in calls] == [0, 1]
    assert calls == message["tool_calls"]
    assert data("openai", ANSWER, usage=False)[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_anthropic_streamed_blocks_begin_empty_and_add_up_to_the_whole_ones():
    for answer, reason in ((ANSWER, "tool_use"), (WORDS, "max_tokens")):
        whole = body("anthropic", answer)
        assert whole["stop_reason"] == reason
        assert whole["content"][0]["thinking"] == "I think."
        blocks = []
        for event in data("anthropic", answer):
            if event["type"] == "content_block_start":
                blocks.append(event["content_block"])
            elif event["type"] == "content_block_delta":
                delta = dict(event["delta"])
                kind = delta.pop("type")
                ((name, text),) = delta.items()
                if kind == "input_json_delta":
                    assert blocks[-1]["input"] == {}
                    blocks[-1]["input"] = json.loads(text)
                else:
                    blocks[-1][name] += text
            elif event["type"] == "message_delta":
                assert event["usage"] == whole["usage"]
                assert event["delta"]["stop_reason"] == reason
        assert blocks == whole["content"]
