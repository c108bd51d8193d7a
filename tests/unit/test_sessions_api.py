"""Each field of both chat APIs, asked for by both vendors' SDKs, streamed and not, where the trainer and where the
client decides what is sampled; and ``docs/sessions-api.md``, whose tables say what is proven here.

Where the document differs and should: ``pytest tests/unit/test_sessions_api.py --update-documents``.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from kit.session_api import (
    APIS,
    CONTENTS,
    DOCUMENT,
    TOOLS,
    WORDS,
    Content,
    Reply,
    ask,
    body_of,
    examples,
    fields_of,
    with_tables,
)
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text

from liverl.sessions.asked_fields import FORCED, Field
from liverl.sessions.messages import Api
from liverl.sessions.sampling import NEUTRAL

CALLS = call_text("look", x="1") + call_text("look", x="2")
TRAINERS = {"temperature": 0.7}


def script(before: str, _turn: int) -> str:
    last = before.rsplit("<|im_start|>user\n", 1)[1]
    if last.startswith("calls"):
        return CALLS
    return json.dumps([{"name": "look", "parameters": {"x": "3"}}]) if last.startswith("forced") else WORDS


CASES = [(api, field) for api in APIS for field in fields_of(api)]


WAYS = list(itertools.product(("trainer", "client"), (False, True)))


@pytest.mark.parametrize(("api", "field"), CASES, ids=[f"{api}-{field.name}" for api, field in CASES])
async def test_what_becomes_of_a_field(
    host: SessionHost, replica: TokenReplica, api: Api, field: Field
) -> None:
    for decides, stream in WAYS:
        replica.sampling.clear()
        name = f"{decides}-{stream}"
        limits = {"decides": decides, "sampling": TRAINERS if decides == "trainer" else {}}
        opened = await host.open(name, **limits)
        await one_field(host, replica, opened, api, field, decides, stream)


async def one_field(
    host: SessionHost,
    replica: TokenReplica,
    opened: dict[str, Any],
    api: Api,
    field: Field,
    decides: str,
    stream: bool,
) -> None:
    example = examples(api)[field.name]
    messages = [{"role": "user", "content": example.words}]
    fields = body_of(field.name, example)
    reply = await ask(opened, api, messages, fields, stream=stream)
    counters = host.store.session(opened["id"]).counters
    if field.effect == "refused" or (field.effect == "changes" and decides == "trainer"):
        name = "tool_choice" if field.name == FORCED else field.name
        params = {name, *example.more} if field.effect == "changes" else {name}
        assert reply.status == 400 and reply.param in params and str(reply.param) in reply.words, reply
        assert not replica.sampling
        return
    assert reply.status == 200, reply
    sampled = replica.sampling[-1]
    if field.effect == "decided" and decides == "trainer":
        wanted = {**NEUTRAL, **TRAINERS}
        assert sampled.get(field.name) == wanted.get(field.name)
        assert counters.overridden == {field.name: 1}
    elif field.effect == "decided":
        assert sampled[field.name] == example.value and not counters.overridden
    elif field.effect == "ignored":
        assert counters.ignored == {field.name: 1} and not set(fields) & set(sampled)
    elif field.name == FORCED:
        assert (
            "forced" in sampled["structured_outputs"]["json"]
            and "_backend" not in sampled["structured_outputs"]
        )
        assert [name for name, _ in reply.calls] == ["look"] and "3" in reply.calls[0][1]
    elif field.effect == "changes":
        assert {name: sampled.get(name) for name in example.engine} == example.engine
        assert (not example.engine) == bool(counters.ignored), "what does not reach the engine is told"
    else:
        HONOURED[field.name](api, reply, sampled, stream)
        assert not counters.ignored and not counters.overridden


def words(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
    assert reply.text == WORDS and reply.finish == {"openai": "stop", "anthropic": "end_turn"}[api]


def two_calls(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
    assert len(reply.calls) == 2 and reply.finish == {"openai": "tool_calls", "anthropic": "tool_use"}[api]


def one_call(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
    assert len(reply.calls) == 1 and "1" in reply.calls[0][1]


def no_call(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
    assert not reply.calls and "<function=look>" in reply.text


def usage(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
    assert reply.tokens == len(WORDS) + 1


def at_most(count: int) -> Any:
    def check(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
        assert sampled["max_tokens"] == count and reply.text == WORDS[:count]
        assert reply.finish == {"openai": "length", "anthropic": "max_tokens"}[api]

    return check


def stopped(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
    assert "Observation:" in sampled["stop"] and reply.text == "Thought: x\nAction: y\n"
    assert (reply.finish, reply.stopped) == {
        "openai": ("stop", None),
        "anthropic": ("stop_sequence", "Observation:"),
    }[api]


def with_logprobs(api: Api, reply: Reply, sampled: dict[str, Any], stream: bool) -> None:
    assert reply.logprobs is not None
    expected = [(f"token_id:{token}", -token / 1000) for token in WORDS.encode()]
    assert [(each.token, each.logprob) for each in reply.logprobs][:-1] == expected
    assert all(each.top_logprobs == [] for each in reply.logprobs)


HONOURED = {
    "messages": words,
    "model": words,
    "system": words,
    "stream": words,
    "tools": two_calls,
    "stream_options": usage,
    "max_completion_tokens": at_most(5),
    "max_tokens": at_most(7),
    "stop": stopped,
    "stop_sequences": stopped,
    "logprobs": with_logprobs,
    "parallel_tool_calls": one_call,
    "tool_choice.disable_parallel_tool_use": one_call,
    "tool_choice": no_call,
}


PARTS = [(api, content) for api in APIS for content in CONTENTS[api]]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("api", "content"), PARTS, ids=[f"{api}-{part.kind}" for api, part in PARTS])
async def test_what_becomes_of_a_part_of_a_message(
    host: SessionHost, replica: TokenReplica, api: Api, content: Content, stream: bool
) -> None:
    opened = await host.open()
    parts = [{"type": "text", "text": "words"}, dict(content.block)]
    reply = await ask(opened, api, [{"role": "user", "content": parts}], {}, stream=stream)
    if content.param is None:
        assert (reply.status, reply.text) == (200, WORDS)
    else:
        assert (reply.status, reply.param) == (400, content.param) and content.kind in reply.words
        assert not replica.sampling


@pytest.mark.parametrize("decides", ["trainer", "client"])
@pytest.mark.parametrize("api", APIS)
async def test_fields_in_a_literal_extra_body_are_the_requests(
    host: SessionHost, replica: TokenReplica, api: Api, decides: str
) -> None:
    """Clients that are not written with an SDK send it as it stands."""
    opened = await host.open(decides=decides)

    async def answer(inner: dict[str, Any]) -> Reply:
        messages = [{"role": "user", "content": "words"}]
        return await ask(opened, api, messages, {"extra_body": {"extra_body": inner}}, stream=False)

    ends = "stop" if api == "openai" else "stop_sequences"
    reply = await answer({"top_k": 4, ends: ["Observation:"], "n": 1, "logit_bias": {}})
    assert reply.status == 200 and reply.text.endswith("y\n")
    assert replica.sampling[-1]["top_k"] == (4 if decides == "client" else NEUTRAL["top_k"])
    reply = await answer({"logit_bias": {"5": 1}})
    if decides == "trainer":
        assert (reply.status, reply.param) == (400, "extra_body.logit_bias")
    else:
        assert reply.status == 200 and replica.sampling[-1]["logit_bias"] == {"5": 1.0}
    reply = await answer({"n": 2})
    assert (reply.status, reply.param) == (400, "extra_body.n")


@pytest.mark.parametrize("api", APIS)
async def test_an_engine_that_cannot_force_a_call_refuses_it(
    host: SessionHost, replica: TokenReplica, api: Api
) -> None:
    replica.forces_calls = False
    opened = await host.open(decides="client")
    fields = body_of(FORCED, examples(api)[FORCED])
    reply = await ask(opened, api, [{"role": "user", "content": "forced"}], fields, stream=False)
    assert (reply.status, reply.param) == (400, "tool_choice") and not replica.sampling


@pytest.mark.parametrize("api", APIS)
async def test_one_tool_can_be_forced(host: SessionHost, replica: TokenReplica, api: Api) -> None:
    replica.reply = lambda _before, _turn: '{"x": "4"}'
    opened = await host.open(decides="client")
    named: Any = {"type": "function", "function": {"name": "look"}}
    choice = named if api == "openai" else {"type": "tool", "name": "look"}
    fields = {"tools": TOOLS[api], "tool_choice": choice}
    reply = await ask(opened, api, [{"role": "user", "content": "x"}], fields, stream=True)
    assert reply.status == 200 and [name for name, _ in reply.calls] == ["look"] and "4" in reply.calls[0][1]
    assert replica.sampling[-1]["structured_outputs"] == {"json": {"forced": named}}


def test_every_field_has_an_example_and_the_other_way_round() -> None:
    known = {field.name for api in APIS for field in fields_of(api)}
    for api in APIS:
        assert {field.name for field in fields_of(api)} <= set(examples(api)) <= known


def test_the_document_says_what_is_proven(request: pytest.FixtureRequest) -> None:
    now = DOCUMENT.read_text()
    proven = with_tables(now)
    if request.config.getoption("--update-documents"):
        DOCUMENT.write_text(proven)
    else:
        assert now == proven, "if this is meant: pytest tests/unit/test_sessions_api.py --update-documents"
