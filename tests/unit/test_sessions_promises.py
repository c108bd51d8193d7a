"""What both chat APIs promise of a reply, from a request to the row: ends, arguments, models, errors of replicas."""

from __future__ import annotations

import ast
import asyncio
import json
import math
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from kit.session_api import APIS, TOOLS, Reply, ask
from kit.session_host import SessionHost
from kit.token_replica import OTHER_END, TokenReplica, call_text
from kit.waiting import until

from liverl.embedded.tokenizer import EOS_ID, decode
from liverl.sessions.canonical import (
    HeadCache,
    arguments_text,
    heads,
    object_text,
    read_anthropic,
    read_openai,
)
from liverl.sessions.engine import EngineLost, EngineRefused, HttpEngine, Sampled
from liverl.sessions.messages import Api, Chat, Message
from liverl.sessions.models import is_policy
from liverl.sessions.server import is_retry
from liverl.sessions.wire import LEAST_LOGPROB, Refusal, error_body, token_logprobs

USER = {"role": "user", "content": "go"}
NEXT = {"role": "user", "content": "on"}
NUMBER: dict[Api, list[dict[str, Any]]] = {
    "openai": [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"properties": {"x": {"type": "number"}}}},
        }
    ],
    "anthropic": [{"name": "f", "input_schema": {"type": "object", "properties": {"x": {"type": "number"}}}}],
}


def script(_before: str, turn: int) -> str:
    return f"Reply {turn}."


# -- arguments


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("1e999", "Infinity"),
        ("-1e999", "-Infinity"),
        ('[1, {"a": NaN}]', [1, {"a": "NaN"}]),
    ],
)
async def test_a_number_that_json_does_not_have_splits_no_row(
    host: SessionHost, replica: TokenReplica, api: Api, stream: bool, written: str, read: Any
) -> None:
    replica.reply = lambda _before, turn: call_text("f", x=written) if turn < 2 else "done"
    opened = await host.open()
    messages: list[dict[str, Any]] = [USER]
    for turn in range(3):
        reply = await ask(opened, api, messages, {"tools": NUMBER[api]}, stream=stream)
        assert reply.status == 200
        if turn < 2:
            ((name, arguments),) = reply.calls
            parsed = json.loads(arguments) if api == "openai" else ast.literal_eval(arguments)
            assert (name, parsed) == ("f", {"x": read})
            messages += echo(api, f"c{turn}", {"x": read})
    assert len(await host.finish()) == 1


def echo(api: Api, name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """A call as a client sends it back, with its result."""
    if api == "openai":
        function = {"name": "f", "arguments": json.dumps(arguments, indent=1)}
        call = {"id": name, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": "ok"},
        ]
    call = {"type": "tool_use", "id": name, "name": "f", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": name, "content": "ok"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_arguments_are_valid_json_in_one_spelling(value: Any) -> None:
    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = object_text(json.dumps({"x": value}))
    text.encode()
    parsed = json.loads(text, parse_constant=refused)
    assert all(math.isfinite(each) for each in leaves(parsed) if isinstance(each, float))
    assert object_text(text) == arguments_text(text) == arguments_text(parsed) == text
    reply = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": text}}]}
    block = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": parsed}]}
    one = heads(read_openai({"messages": [reply, USER]}))
    assert one == heads(read_anthropic({"messages": [block, USER]}))


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list) else [value]


# -- digests of histories


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), min_size=1, max_size=6), st.data())
def test_kept_digests_are_those_of_the_whole_history(histories: list[list[str]], data: st.DataObject) -> None:
    cache = HeadCache()
    cache.MOST = data.draw(st.integers(1, 5))
    for texts in histories:
        tools = ({"type": "function", "function": {"name": data.draw(st.sampled_from("fg"))}},)
        chat = Chat(tuple(Message("user", text) for text in texts), tools)
        lane = data.draw(st.sampled_from(("", "agent")))
        assert cache.heads(chat, lane) == heads(chat, lane)
        assert len(cache._known) <= cache.MOST


@pytest.mark.parametrize(
    "values", [(math.nan, None), (math.inf, -math.inf), (1, 1.0), (1, True), (0.0, False)]
)
def test_kept_digests_are_those_of_the_tools_of_the_request(values: tuple[Any, Any]) -> None:
    """Python's clients send NaN, for which other JSON has null."""
    cache = HeadCache()
    for value in (*values, *values):
        chat = Chat((Message("user", "a"),), ({"function": {"name": "f", "default": value}},))
        assert cache.heads(chat) == heads(chat)


# -- models


@pytest.mark.parametrize(
    ("model", "served", "others", "meant"),
    [
        ("m", ["m"], (), True),
        ("", ["m"], (), True),
        ("hosted_vllm/m", ["m"], (), True),
        ("openai/m", ["m"], (), True),
        ("anthropic/m", ["m"], (), False),
        ("openai/hosted_vllm/m", ["m"], (), False),
        ("M", ["m"], (), False),
        ("gpt-5", ["m"], (), False),
        ("gpt-5", [], (), True),
        ("gpt-5", ["m"], ("gpt-5",), True),
        ("gpt-5-mini", ["m"], ("gpt-5",), False),
        ("claude-haiku-4-5", ["m"], ("gpt-*", "claude-*"), True),
        ("Claude-haiku", ["m"], ("claude-*",), False),
        ("org/m", ["org/m"], (), True),
        ("hosted_vllm/org/m", ["n", "org/m"], (), True),
    ],
)
def test_which_names_are_the_policy(
    model: str, served: list[str], others: tuple[str, ...], meant: bool
) -> None:
    assert is_policy(model, served, others) is meant


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_is_not_served_is_404_and_nothing_is_sampled(
    host: SessionHost, replica: TokenReplica, api: Api, stream: bool
) -> None:
    opened = await host.open()
    reply = await ask(opened, api, [USER], {"model": "gpt-judge-5"}, stream=stream)
    assert (reply.status, reply.param) == (404, "model") and "session_proxy.models" in reply.words
    assert reply.code == ("model_not_found" if api == "openai" else None)
    assert "`m`" in reply.words and not replica.prompts
    counters = host.store.session(opened["id"]).counters
    assert (counters.num_failed, counters.refused) == (1, {"model": 1}) and counters.refusal == reply.words


async def test_tokens_of_another_models_prompt_are_not_counted(host: SessionHost) -> None:
    opened = await host.open()
    url, headers = f"{opened['anthropic_url']}/v1/messages/count_tokens", {"x-api-key": opened["key"]}
    for model, status in (("m", 200), ("claude-haiku-4-5", 404)):
        forced = {"tools": TOOLS["anthropic"], "tool_choice": {"type": "any"}}  # nothing is sampled
        body = {"model": model, "messages": [USER], **forced}
        async with host.http.post(url, json=body, headers=headers) as response:
            answer = await response.json()
            assert response.status == status, answer
            assert status == 200 or answer["error"]["type"] == "not_found_error"


async def test_a_request_before_the_first_replica_is_listed_waits_for_it(
    host: SessionHost, replica: TokenReplica
) -> None:
    opened = await host.open()
    await host.control("PUT", "/backends", [])
    asked = asyncio.ensure_future(host.chat(opened, USER))
    await until(lambda: host.store.waiting)
    await host.control("PUT", "/backends", [{"url": replica.url, "model": "m"}])
    status, _ = await asked
    assert status == 200


# -- ends of replies


async def test_the_token_that_ends_a_reply_is_no_part_of_its_text(
    host: SessionHost, replica: TokenReplica
) -> None:
    """vLLM 0.24 decodes special tokens, too, for its parsers."""
    opened = await host.open()
    for replica.end in (EOS_ID, OTHER_END):
        _, body = await host.chat(opened, {"role": "user", "content": f"go {replica.end}"})
        assert body["choices"][0]["message"]["content"] == "Reply 0."
    replica.names_tokens = False  # then another one cannot be known
    replica.end = EOS_ID
    _, body = await host.chat(opened, {"role": "user", "content": "other"})
    assert body["choices"][0]["message"]["content"] == "Reply 0."
    assert replica.replies[0][-1] == EOS_ID and replica.replies[1][-1] == OTHER_END, "the ids have it"


@pytest.mark.parametrize(
    ("end", "names", "added"),
    [
        (EOS_ID, True, []),
        (OTHER_END, True, []),
        (OTHER_END, False, [EOS_ID]),
    ],
)
async def test_nothing_is_added_behind_another_token_that_ends_a_reply(
    host: SessionHost, replica: TokenReplica, end: int, names: bool, added: list[int]
) -> None:
    replica.end, replica.names_tokens = end, names
    opened = await host.open()
    _, body = await host.chat(opened, USER)
    await host.chat(
        opened, USER, {"role": "assistant", "content": body["choices"][0]["message"]["content"]}, NEXT
    )
    first, second = replica.prompts
    behind = second[len(first) + len(replica.replies[0]) :]
    assert second[: len(first)] == first and behind[: len(added)] == added
    assert decode(behind[len(added) :]) == "\n<|im_start|>user\non<|im_end|>\n<|im_start|>assistant\n"
    assert len(await host.finish()) == 1


async def test_a_reply_that_its_limit_cut_is_closed_although_the_replica_names_tokens(
    host: SessionHost, replica: TokenReplica
) -> None:
    opened = await host.open()
    _, body = await host.chat(opened, USER, max_tokens=3)
    reply = body["choices"][0]["message"]
    assert reply["content"] == "Rep"
    await host.chat(opened, USER, reply, NEXT)
    first, second = replica.prompts
    assert second[len(first) + 3] == EOS_ID


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
async def test_a_conversation_goes_on_behind_a_stop_text(
    host: SessionHost, replica: TokenReplica, api: Api, stream: bool
) -> None:
    """A client appends the stop text itself; the row has what was sampled, once."""
    replica.reply = lambda _before, turn: f"Thought {turn}\nObservation: made up"
    stops = {"stop" if api == "openai" else "stop_sequences": ["Observation:"]}
    opened = await host.open()
    messages = [USER]
    for turn in range(3):
        reply = await ask(opened, api, messages, stops, stream=stream)
        assert reply.text == f"Thought {turn}\n"
        said = {"role": "assistant", "content": reply.text}
        messages += [said, {"role": "user", "content": f"Observation: {turn}"}]
    (row,) = await host.finish()
    behind = row["traj_acc_ids"][row["initial_prompt_token_len"] :]
    sampled = [token for token, bit in zip(behind, row["traj_response_mask"], strict=True) if bit]
    assert decode(sampled) == "".join(f"Thought {turn}\nObservation:" for turn in range(3))


@pytest.mark.parametrize("api", APIS)
async def test_a_call_with_a_stop_text_is_not_given(
    host: SessionHost, replica: TokenReplica, api: Api
) -> None:
    replica.reply = lambda _before, _turn: f"I look.{call_text('look', x='rm -rf END/tmp')}"
    opened = await host.open()
    fields = {"tools": TOOLS[api], "stop" if api == "openai" else "stop_sequences": ["END"]}
    reply = await ask(opened, api, [USER], fields, stream=False)
    assert reply.calls == () and reply.text.startswith("I look.")
    assert (reply.finish, reply.stopped) in (("stop", None), ("stop_sequence", "END"))


@pytest.mark.parametrize("api", APIS)
async def test_a_message_with_one_call_is_what_is_recorded(
    host: SessionHost, replica: TokenReplica, api: Api
) -> None:
    replica.reply = lambda _before, turn: (
        call_text("look", x="1") + call_text("look", x="2") if not turn else "done"
    )
    one: dict[str, Any] = {"parallel_tool_calls": False}
    if api == "anthropic":
        one = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    opened = await host.open()
    reply = await ask(opened, api, [USER], {"tools": TOOLS[api], **one}, stream=True)
    assert len(reply.calls) == 1
    messages = [USER, *echo(api, "c0", {"x": "1"})]
    text = json.dumps(messages).replace('"f"', '"look"')
    await ask(opened, api, json.loads(text), {"tools": TOOLS[api], **one}, stream=True)
    (row,) = await host.finish()
    assert row["traj_acc_ids"][: len(replica.prompts[1])] == replica.prompts[1]
    assert sum(row["traj_response_mask"]) == sum(map(len, replica.replies)), "the ids of both calls"


async def test_log_probabilities_are_given_to_a_retry_after_a_restart_too(
    host: SessionHost, replica: TokenReplica
) -> None:
    opened = await host.open()
    replica.gate.clear()
    asked = asyncio.ensure_future(host.chat(opened, USER, logprobs=True))
    await replica.begun.wait()
    asked.cancel()
    await asyncio.wait({asked})
    replica.gate.set()
    session = host.store.session(opened["id"])
    await until(lambda: not session.waiting and session.counters.num_calls)
    await host.stop()
    await host.start()
    opened["openai_url"] = f"{host.address}/sess/{opened['id']}/v1"
    _, body = await host.chat(opened, USER, logprobs=True)
    assert len(replica.replies) == 1
    entries = body["choices"][0]["logprobs"]["content"]
    assert [(each["token"], each["logprob"]) for each in entries] == [
        (f"token_id:{token}", -token / 1000) for token in replica.replies[0]
    ]
    _, body = await host.chat(opened, USER)
    assert body["choices"][0]["logprobs"] is None


def test_the_least_log_probability_is_a_number() -> None:
    assert [each.logprob for each in token_logprobs([1, 2], [float("-inf"), -1.0])] == [LEAST_LOGPROB, -1.0]


STOPS: dict[Api, str] = {"openai": "stop", "anthropic": "stop_sequences"}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("again", ["", "Observation:"], ids=["as given", "with its stop text"])
async def test_an_agent_that_puts_the_stop_text_back_has_one_row(
    host: SessionHost, replica: TokenReplica, api: Api, again: str
) -> None:
    """As agents of the ReAct kind do, and those that write code in tags: it is what was sampled."""
    replica.reply = lambda _before, turn: f"Thought {turn}.\nAction: x\nObservation: y"
    opened = await host.open()
    messages: list[Any] = [USER]
    for turn in range(4):
        reply = await ask(opened, api, messages, {STOPS[api]: ["Observation:"]}, stream=False)
        assert reply.text == f"Thought {turn}.\nAction: x\n"
        messages += [{"role": "assistant", "content": reply.text + again}, NEXT]
        if turn == 1:  # the journal knows it, too
            await host.stop()
            await host.start()
            _, opened = await host.control("GET", f"/sessions/{opened['id']}")
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == sum(map(len, replica.replies))
    assert row["traj_acc_ids"] == [*replica.prompts[-1], *replica.replies[-1]]
    assert decode(row["traj_acc_ids"]).count("Observation:") == 4


async def test_another_text_behind_a_reply_is_another_history(
    host: SessionHost, replica: TokenReplica
) -> None:
    replica.reply = lambda _before, _turn: "Action: x\nObservation: y"
    for text in ("Action: x\nObservation", "Action: x\nObservation: y", "Observation:"):
        opened = await host.open(str(len(text)))
        await ask(opened, "openai", [USER], {"stop": ["Observation:"]}, stream=False)
        history = [USER, {"role": "assistant", "content": text}, NEXT]
        await ask(opened, "openai", history, {}, stream=False)
        assert len(await host.finish(opened["id"])) == 2, text


# -- errors


def test_an_error_names_its_field_in_both_apis() -> None:
    refusal = Refusal(400, "n is not supported", param="n")
    for api in APIS:
        assert error_body(api, refusal)["error"]["param"] == "n"
    assert "param" not in error_body("anthropic", Refusal(400, "x"))["error"]
    assert error_body("openai", refusal)["error"]["code"] == 400
    assert (
        error_body("openai", Refusal(404, "x", code="model_not_found"))["error"]["code"] == "model_not_found"
    )


async def test_what_an_engine_refuses_names_the_engines_field(
    host: SessionHost, replica: TokenReplica
) -> None:
    opened = await host.open()
    error = {"message": "no such bias", "param": "logit_bias"}
    replica.refusals["/inference/v1/generate"] = (400, {"error": error})
    status, body = await host.chat(opened, USER)
    assert (status, body["error"]["param"]) == (400, "logit_bias") and "no such bias" in body["error"][
        "message"
    ]


@pytest.mark.parametrize(
    ("count", "retry"),
    [
        (None, False),
        ("0", False),
        ("1", True),
        ("12", True),
        ("", False),
        ("-1", False),
        ("x", False),
        ("²", False),
    ],
)
def test_which_requests_are_retries(count: str | None, retry: bool) -> None:
    headers = {} if count is None else {"X-Stainless-Retry-Count": count}
    assert is_retry(make_mocked_request("POST", "/", headers=headers)) is retry


async def lost(url: str, seconds: float = 60.0) -> EngineLost:
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        with pytest.raises(EngineLost) as raised:
            await HttpEngine(http, url, "m").render(Chat((Message("user", "x"),)))
    return raised.value


@pytest.mark.parametrize(
    ("does", "cut", "status"),
    [
        ("answers 500", False, 500),
        ("answers 503", False, 503),
        ("answers text", False, 200),
        ("closes", True, None),
        ("closes within", True, None),
        ("is silent", False, None),
    ],
)
async def test_how_a_replica_was_lost_is_told(does: str, cut: bool, status: int | None) -> None:
    never = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        if does.startswith("answers 5"):
            return web.json_response({"error": {"message": "x"}}, status=int(does[-3:]))
        if does == "answers text":
            return web.Response(text="nothing")
        if does == "is silent":
            await never.wait()
        response = web.StreamResponse(headers={"Content-Length": "100"})
        if does == "closes within":
            await response.prepare(request)
            await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions/render", handle)
    server = TestServer(app)
    await server.start_server()
    url = str(server.make_url(""))
    error = await lost(url, 0.3 if does == "is silent" else 20.0)
    assert (error.cut, error.status) == (cut, status), error
    never.set()
    await server.close()
    error = await lost(url)
    assert (error.cut, error.status) == (False, None), "nobody listens there any more"


@pytest.mark.parametrize("failure", [500, 400, 422])
async def test_a_parser_that_fails_is_a_loss_with_a_status(
    host: SessionHost, replica: TokenReplica, failure: int
) -> None:
    engine = host.store.replicas._engines[replica.url].engine
    replica.parse_failures = [failure]
    with pytest.raises(EngineLost) as raised:
        await engine.parse(Chat((Message("user", "x"),)), Sampled([65], [0.0], "stop"))
    assert (raised.value.status, raised.value.cut) == (failure, False)
    replica.parse_failures = [404]
    with pytest.raises(EngineRefused):
        await engine.parse(Chat((Message("user", "x"),)), Sampled([65], [0.0], "stop"))


async def test_the_text_of_sampled_ids_has_no_token_that_ends_them(
    host: SessionHost, replica: TokenReplica
) -> None:
    engine = host.store.replicas._engines[replica.url].engine
    sampled = Sampled([*b"<function=f> broken", EOS_ID], [0.0] * 20, "stop")
    assert await engine.text(sampled) == "<function=f> broken"
    assert (
        await engine.text(Sampled([], [], "stop"))
        == await engine.text(Sampled([EOS_ID], [0.0], "stop"))
        == ""
    )
    for status in (400, 404, 500):  # a replica that makes no message without a request for it
        replica.refusals["/v1/chat/completions/derender"] = (status, {"error": {"message": "no"}})
        assert await engine.text(sampled) == "<function=f> broken"
    replica.names_tokens = False
    with pytest.raises(EngineLost) as raised:
        await engine.text(sampled)
    assert raised.value.status == 404


async def test_a_reply_whose_parser_fails_everywhere_is_given_as_text(
    host: SessionHost, replica: TokenReplica
) -> None:
    other = TokenReplica(script)
    host.replicas.put([*host.replicas.listed, type(host.replicas.listed[0])(await other.start(), "m")])
    replica.parse_failures, other.parse_failures = [400] * 9, [400] * 9
    opened = await host.open()
    reply: Reply = await ask(opened, "openai", [USER], {}, stream=False)
    assert (reply.status, reply.text) == (200, "Reply 0.")
    assert len(replica.replies) + len(other.replies) == 1
    await other.stop()
