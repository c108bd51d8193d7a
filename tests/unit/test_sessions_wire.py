"""Replies in the forms of both APIs, whole and streamed, as their SDKs put them together again."""

from __future__ import annotations

import json

import msgspec
import pytest

from liverl.sessions.messages import Call, Message
from liverl.sessions.wire import Answer, TokenLogprob, body, events

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


STOPPED = Answer("x", 7, "m", Message("assistant", "Hello."), "stop", 11, 5, stopped="Bye")
LOGPROBS = (TokenLogprob("token_id:1", -0.5), TokenLogprob("token_id:2", 0.0))


def test_a_stop_text_is_named_where_the_api_has_a_place_for_it():
    assert body("openai", STOPPED)["choices"][0]["finish_reason"] == "stop"
    assert data("openai", STOPPED)[-3]["choices"][0]["finish_reason"] == "stop"
    within = msgspec.structs.replace(ANSWER, stopped="Bye")  # of several calls the last one had it
    assert body("openai", within)["choices"][0]["finish_reason"] == "stop"
    whole = body("anthropic", STOPPED)
    (end,) = [event for event in data("anthropic", STOPPED) if event["type"] == "message_delta"]
    expected = {"stop_reason": "stop_sequence", "stop_sequence": "Bye"}
    assert {name: whole[name] for name in expected} == expected == end["delta"]
    assert body("anthropic", WORDS)["stop_sequence"] is None


@pytest.mark.parametrize("answer", [ANSWER, WORDS])
def test_log_probabilities_are_in_one_chunk_whether_there_is_text_or_not(answer):
    given = msgspec.structs.replace(answer, logprobs=LOGPROBS)
    whole = body("openai", given)["choices"][0]["logprobs"]["content"]
    assert [(each["token"], each["logprob"]) for each in whole] == [("token_id:1", -0.5), ("token_id:2", 0.0)]
    choices = [chunk["choices"][0] for chunk in data("openai", given, usage=False)[:-1]]
    assert [choice["logprobs"]["content"] for choice in choices if choice["logprobs"]] == [whole]
    assert not any(choice["logprobs"] for chunk in data("openai", answer)[:-2] for choice in chunk["choices"])
    assert msgspec.json.decode(msgspec.json.encode(given), type=Answer) == given


def test_an_answer_of_an_earlier_version_is_read():
    """Its journal has no stop text and no log-probabilities."""
    old = {"id": "x", "created": 7, "model": "m", "message": {"role": "assistant", "text": "Hello."}}
    old |= {"finish": "stop", "prompt": 11, "completion": 5}
    assert msgspec.convert(old, Answer) == msgspec.structs.replace(STOPPED, stopped="")
