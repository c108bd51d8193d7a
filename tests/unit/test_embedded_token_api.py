"""The embedded engine's token routes without a server: a prompt's ids are read as the conversation that they came from,
and sampling from them is sampling from it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.agents.chat_api import ApiError, ChatRequest
from liverl.agents.token_api import (
    DerenderRequest,
    GenerateRequest,
    SamplingParams,
    derender_body,
    read_derender,
    read_generate,
)
from liverl.agents.tool_calls import PARSERS, RENDERERS
from liverl.agents.tools import TOOL_NAMES, TOOLS
from liverl.embedded import modeldir
from liverl.embedded.engine.args import build_parser
from liverl.embedded.engine.core import Core
from liverl.embedded.engine.token_api import chat_of, generation_body, prompt_scores, reply_text
from liverl.embedded.policy import Policy, state_of
from liverl.embedded.tokenizer import encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda text: "<" not in text)
TURN = st.tuples(TEXT, st.sampled_from(TOOL_NAMES), TEXT)


def core(model: str = "qwen3_coder") -> Core:
    args = build_parser().parse_args(["--model", f"builtin:{model}", "--tool-call-parser", model])
    return Core(args, modeldir.read_config(modeldir.find(args.model)), Policy())


def request(**more: object) -> ChatRequest:
    task = 'Create the file `a.txt` with exactly this line: "x".'
    return ChatRequest(messages=[{"role": "user", "content": task}], tools=list(TOOLS), **more)  # type: ignore[arg-type]


def derender(response: object, **chat: object) -> DerenderRequest:
    body = {
        "generate_response": response,
        "chat_request": {"messages": [{"role": "user", "content": "?"}], **chat},
    }
    return read_derender(json.dumps(body).encode(), ["policy"])


@given(
    st.none() | TEXT.filter(str.strip),
    TEXT,
    st.lists(TURN, max_size=4),
    st.booleans(),
    st.sampled_from(sorted(RENDERERS)),
)
def test_ids_are_read_as_the_conversation_that_they_came_from(system, task, turns, tools, model):
    messages = [{"role": "system", "content": system.strip()}] if system else []
    messages.append({"role": "user", "content": task})
    for number, (text, name, result) in enumerate(turns):
        call = {
            "id": str(number),
            "type": "function",
            "function": {"name": name, "arguments": '{"path": "a"}'},
        }
        messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": str(number), "content": result})
    engine = core(model)
    asked = ChatRequest(messages=messages, tools=list(TOOLS) if tools else None)
    ids = engine.render(asked)
    read = chat_of(GenerateRequest(ids))
    assert (read.tools or []) == (asked.tools or [])
    assert state_of(read.messages) == state_of(messages)
    assert [m["content"] for m in read.messages if m["role"] != "assistant"] == [
        m["content"] for m in messages if m["role"] != "assistant"
    ]


@pytest.mark.parametrize("seed", range(5))
def test_sampling_from_the_ids_of_a_chat_is_sampling_the_chat(seed):
    engine, asked = core(), request(seed=seed, temperature=0.7)
    prompt = engine.prompt(asked)
    wanted = SamplingParams(temperature=0.7, seed=seed)
    body = generation_body(
        engine.generate(chat_of(GenerateRequest(prompt, sampling_params=wanted)), prompt), 3, 0
    )
    chat = engine.generate(asked, prompt)
    (choice,) = body["choices"]
    assert choice["token_ids"] == chat.tokens
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == chat.logprobs
    assert choice["weight_versions"] == [{"version": "3", "start": 0, "end": len(chat.tokens)}]
    asked = derender(body, tools=list(TOOLS))
    parsed = PARSERS["qwen3_coder"](reply_text(asked), asked.tools)
    message = derender_body("policy", parsed.content, parsed.calls, asked.finish, 1)["choices"][0]
    assert message["finish_reason"] == "tool_calls"
    (call,) = message["message"]["tool_calls"]
    assert call["function"] == chat.parsed.calls[0]._asdict()


@pytest.mark.parametrize("model", sorted(PARSERS.keys() & RENDERERS.keys()))
def test_a_prompt_has_the_log_probabilities_that_its_replies_were_sampled_with(model):
    engine = core(model)
    task = 'Create the file `a.txt` with exactly this line: "x".'
    messages: list[dict[str, object]] = [{"role": "user", "content": task}]
    ids = engine.render(ChatRequest(messages=messages, tools=list(TOOLS)))
    kind = state_of(messages).partition("|")[0]
    engine.policy.logits = {
        f"{kind}|{last}|error": {name: float(number * place) for place, name in enumerate(TOOL_NAMES)}
        for number, last in enumerate(TOOL_NAMES)
    }
    expected = [0.0] * len(ids)
    for turn in range(3):
        generation = engine.generate(chat_of(GenerateRequest(ids)), ids)
        (call,) = generation.parsed.calls
        made = {"id": str(turn), "type": "function", "function": call._asdict()}
        messages.append(
            {"role": "assistant", "content": generation.parsed.content or "", "tool_calls": [made]}
        )
        messages.append({"role": "tool", "tool_call_id": str(turn), "content": f"error: {turn} read_file"})
        whole = engine.render(ChatRequest(messages=messages, tools=list(TOOLS)))
        assert whole[: len(ids)] == ids and whole[len(ids) :][: len(generation.tokens)] == generation.tokens
        rest = len(whole) - len(ids) - len(generation.tokens)
        expected += [*generation.logprobs, *([0.0] * rest)]
        ids = whole
    asked = GenerateRequest(ids, sampling_params=SamplingParams(prompt_logprobs=0, max_tokens=1))
    request = chat_of(asked)
    scores = prompt_scores(ids, request, engine.policy)
    assert scores == expected[1:] and sum(map(bool, scores)) == 3
    body = generation_body(engine.generate(request, ids), 3, 0, scores)
    first, *entries = body["prompt_logprobs"]
    assert first is None and [list(entry) for entry in entries] == [[str(token)] for token in ids[1:]]
    assert [entry[str(token)]["logprob"] for token, entry in zip(ids[1:], entries, strict=True)] == scores


def test_without_a_generation_prompt_the_ids_end_with_the_turn():
    engine = core()
    whole, ended = engine.render(request()), engine.render(request(), generation=False)
    assert whole == [*ended, *encode("<|im_start|>assistant\n")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "token_ids"),
        ({"token_ids": []}, "must not be empty"),
        ({"token_ids": [1], "stream": True}, "does not stream"),
        ({"token_ids": [1], "sampling_params": {"max_tokens": 0}}, "at least 1"),
        ({"token_ids": [1], "model": "other"}, "does not exist"),
        ({"token_ids": [1], "sampling_params": {"prompt_logprobs": 1}}, "must be 0, got 1"),
    ],
)
def test_requests_to_sample_that_are_refused(body, words):
    with pytest.raises(ApiError, match=words):
        read_generate(json.dumps(body).encode(), ["policy"])


@pytest.mark.parametrize(
    "ids",
    [
        [10**9],
        [-1],
        encode("words"),
        encode("<|im_start|>user\nhi<|im_end|>\n"),
        encode("<|im_start|>assistant\nhalf"),
    ],
)
def test_ids_that_are_no_prompt_are_refused(ids):
    with pytest.raises(ApiError) as raised:
        chat_of(GenerateRequest(ids))
    assert raised.value.status == 400


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"token_ids": []}]},
        {"choices": [{"token_ids": [10**9]}]},
        {"choices": 1},
    ],
)
def test_a_response_without_ids_cannot_be_read(response):
    with pytest.raises(ApiError) as raised:
        reply_text(derender(response))
    assert raised.value.status == 400


def test_nothing_is_parsed_under_the_tool_choice_none():
    response = {"choices": [{"token_ids": [1]}]}
    assert derender(response, tools=list(TOOLS)).tools == list(TOOLS)
    assert derender(response, tools=list(TOOLS), tool_choice="none").tools == []
    assert derender(response).tools == []
