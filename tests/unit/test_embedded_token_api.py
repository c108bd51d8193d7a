"""The embedded engine's token routes without a server: a prompt's ids are read as the conversation that they came from,
and sampling from them is sampling from it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.agents.chat_api import ApiError, ChatRequest
from liverl.agents.token_api import (
    REFUSED,
    DerenderRequest,
    GenerateRequest,
    SamplingParams,
    Span,
    derender_body,
    generate_body,
    read_derender,
    read_detokenize,
    read_generate,
    read_render,
    render_body,
)
from liverl.agents.tool_calls import PARSERS, RENDERERS, ToolCall
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


CHAT = b'{"messages": [{"role": "user", "content": "?"}], "model": "%s"}'


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_generate, b'{"token_ids": [1], "model": "%s"}'),
        (read_detokenize, b'{"tokens": [1], "model": "%s"}'),
        (read_derender, b'{"generate_response": {"choices": [{"token_ids": [1]}]}, "model": "%s"}'),
        (lambda body, served: read_render(body, served, auto_tools=True), CHAT),
    ],
)
def test_a_model_that_is_not_served_is_refused_by_each_route(read, body):
    assert read(body % b"policy", ["base", "policy"])
    with pytest.raises(ApiError, match="The model `other` does not exist") as raised:
        read(body % b"other", ["base", "policy"])
    assert raised.value.status == 404 and raised.value.param == "model"


def generate_request(**sampling):
    return json.dumps({"token_ids": [1], "sampling_params": sampling}).encode()


def test_parameters_that_would_be_left_out_in_silence_are_refused_by_their_name():
    assert set(REFUSED) == {
        "logit_bias", "allowed_token_ids", "bad_words", "min_tokens", "ignore_eos", "stop_token_ids",
        "structured_outputs", "thinking_token_budget", "repetition_detection", "extra_args",
    }  # fmt: skip
    for name in REFUSED:
        with pytest.raises(ApiError, match=f"^this engine does not support {name}$") as raised:
            read_generate(generate_request(**{name: [1]}), ["policy"])
        assert raised.value.param == name
        assert read_generate(generate_request(**{name: None}), ["policy"])


def test_the_least_values_of_sampling_parameters():
    read = read_generate(generate_request(max_tokens=1, temperature=0, prompt_logprobs=0), ["policy"])
    wanted = read.sampling_params
    assert (wanted.max_tokens, wanted.temperature, wanted.prompt_logprobs) == (1, 0.0, 0)
    assert read_generate(generate_request(), ["policy"]).sampling_params == SamplingParams()
    for name, value in (("max_tokens", 0), ("temperature", -0.1), ("prompt_logprobs", 1)):
        with pytest.raises(ApiError, match=rf"{name}.*, got {value}\.$") as raised:
            read_generate(generate_request(**{name: value}), ["policy"])
        assert raised.value.param == name


def test_a_rendered_prompt_says_how_much_room_is_left():
    body = render_body([5, 6, 7], "policy", 1000)
    assert body.pop("request_id").startswith("render-")
    assert body == {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 997}, "model": "policy"}
    assert [read_render(CHAT[:-1] % b"policy" + more, ["policy"], auto_tools=True)[1] for more in
            (b"}", b', "add_generation_prompt": false}')] == [True, False]  # fmt: skip


def test_a_reply_of_ids_is_whole():
    versions = [Span(None, 1), Span(4, 2)]
    body = generate_body([1, 2], [7, 8, 9], [-0.1, -0.2, -0.3], [b"a", b"", b"\xc3"], "stop", versions, 0)
    assert body.pop("request_id").startswith("generate-tokens-")
    content = [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": name, "top_logprobs": []}
        for token, logprob, name in ((7, -0.1, [97]), (8, -0.2, []), (9, -0.3, [195]))
    ]
    choice = {
        "index": 0,
        "logprobs": {"content": content},
        "finish_reason": "stop",
        "token_ids": [7, 8, 9],
        "weight_versions": [
            {"version": "default", "start": 0, "end": 1},
            {"version": "4", "start": 1, "end": 3},
        ],
    }
    usage = {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
        "prompt_tokens_details": None,
    }
    assert body == {"choices": [choice], "prompt_logprobs": None, "usage": usage}
    cached = generate_body([1, 2], [], [], [], "abort", [], 1, [-0.5])
    assert cached["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}
    assert cached["prompt_logprobs"] == [
        None,
        {"2": {"logprob": -0.5, "rank": None, "decoded_token": None}},
    ]


def test_a_chat_completion_of_ids_is_whole():
    call = ToolCall("look", "{}")
    for calls, finish in (((), "length"), ((call, call), "tool_calls")):
        body = derender_body("policy", "hm", calls, "length", 17)
        (choice,) = body.pop("choices")
        ids = [made.pop("id") for made in choice["message"]["tool_calls"]]
        assert all(name.startswith("chatcmpl-tool-") for name in ids) and len(set(ids)) == len(calls)
        assert choice == {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hm",
                "refusal": None,
                "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": "{}"}}]
                * len(calls),
            },
            "logprobs": None,
            "finish_reason": finish,
        }
        assert body.pop("id").startswith("chatcmpl-")
        assert body == {"object": "chat.completion", "created": 17, "model": "policy"}


def test_of_several_choices_the_first_is_read():
    choices = [{"token_ids": [1], "finish_reason": "length"}, {"token_ids": [2], "finish_reason": "abort"}]
    read = derender({"choices": choices})
    assert (read.token_ids, read.finish) == ([1], "length")
    assert derender({"choices": [{"token_ids": [1]}]}).finish == "stop"


def test_nothing_is_parsed_under_the_tool_choice_none():
    response = {"choices": [{"token_ids": [1]}]}
    assert derender(response, tools=list(TOOLS)).tools == list(TOOLS)
    assert derender(response, tools=list(TOOLS), tool_choice="none").tools == []
    assert derender(response).tools == []


def test_arguments_nested_deeper_than_python_goes_are_refused_in_words():
    deep = {"name": "f", "arguments": '{"a":' * 5000 + "1" + "}" * 5000}
    said = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": deep}],
    }
    asked = ChatRequest(messages=[{"role": "user", "content": "x"}, said])
    with pytest.raises(ApiError, match="messages cannot be rendered") as refused:
        core().render(asked)
    assert refused.value.status == 400
