"""The embedded engine's parts without a server: scheduler, metrics, command line, sampling."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from liverl.agents.chat_api import (
    ApiError,
    ChatRequest,
    arguments_of,
    max_tokens,
    model_list,
    read_chat,
    text_of,
    tool_names,
)
from liverl.agents.tools import TOOL_NAMES, TOOLS
from liverl.embedded import modeldir
from liverl.embedded.engine.args import build_parser, non_default
from liverl.embedded.engine.cache import BLOCK, Scheduler
from liverl.embedded.engine.core import Core
from liverl.embedded.engine.metrics import EngineMetrics
from liverl.embedded.engine.server import check
from liverl.embedded.policy import Policy

BASE = ["--model", "builtin:qwen3_coder", "--enable-auto-tool-choice", "--tool-call-parser"]


def core(*extra: str, model: str = "builtin:qwen3_coder", parser: str = "qwen3_coder") -> Core:
    args = build_parser().parse_args(["--model", model, "--tool-call-parser", parser, *extra])
    return Core(args, modeldir.read_config(modeldir.find(model)), Policy())


def request(
    text: str = 'Create the file `a.txt` with exactly this line: "x".', **more: object
) -> ChatRequest:
    return ChatRequest(messages=[{"role": "user", "content": text}], tools=list(TOOLS), **more)  # type: ignore[arg-type]


def first_calls(engine: Core, count: int = 40, **more: object) -> list[str]:
    names = []
    for _ in range(count):
        asked = request(**more)
        names += [call.name for call in engine.generate(asked, engine.prompt(asked)).parsed.calls]
    return names


def test_the_seed_decides_the_run() -> None:
    assert first_calls(core("--seed", "1")) == first_calls(core("--seed", "1"))
    assert first_calls(core("--seed", "1")) != first_calls(core("--seed", "2"))
    assert len(set(first_calls(core()))) > 3  # the same question, asked again, is sampled anew
    assert len(set(first_calls(core(), seed=7))) == 1  # unless it brings its own seed
    assert first_calls(core("--seed", "1"), seed=7) == first_calls(core("--seed", "2"), seed=7)


def test_sampling_follows_the_policy() -> None:
    engine = core()
    counts = Counter(first_calls(engine, 600))
    assert set(counts) == set(TOOL_NAMES)
    assert all(60 <= n <= 145 for n in counts.values())  # 100 expected of each, +-5 standard deviations
    engine.policy.logits = {"create|start|ok": {"write_file": 9.0}}
    assert Counter(first_calls(engine, 50))["write_file"] > 45
    assert set(first_calls(core(), 20, temperature=0.0)) == {TOOL_NAMES[0]}


def test_logprobs_are_the_policys_own() -> None:
    engine = core()
    engine.policy.logits = {"create|start|ok": {"write_file": 2.0}}
    for temperature in (0.7, 1.0):
        asked = request(temperature=temperature)
        made = engine.generate(asked, engine.prompt(asked))
        own = engine.policy.token_logprobs("create|start|ok", made.tokens, temperature)
        assert made.logprobs == own


def test_unknown_tools_are_offered_and_used() -> None:
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"properties": {"n": {"type": "integer"}, "s": {}}, "required": ["n", "s"]},
            },
        }
        for name in ("Bash", "Base")
    ]
    engine = core()
    asked = ChatRequest(messages=[{"role": "user", "content": "hello"}], tools=tools)
    made = engine.generate(asked, engine.prompt(asked))
    assert made.parsed.calls[0].name in ("Bash", "Base")
    assert made.parsed.calls[0].arguments == '{"n": 0, "s": ""}'
    assert sum(made.logprobs) == pytest.approx(-0.6931, abs=1e-3)


def test_a_wrong_parser_finds_nothing() -> None:
    for model, parser in (("builtin:qwen3_coder", "hermes"), ("builtin:hermes", "qwen3_coder")):
        engine = core(model=model, parser=parser)
        asked = request()
        made = engine.generate(asked, engine.prompt(asked))
        assert made.parsed == (made.text, ())
        assert made.finish_reason == "stop" and "<tool_call>" in made.text


@pytest.mark.parametrize("parser", ["hermes", "qwen3_coder"])
@pytest.mark.parametrize("model", ["builtin:hermes", "builtin:qwen3_coder"])
def test_every_nth_conversation_can_be_parsed(model: str, parser: str) -> None:
    engine = core("--parsable-every", "4", model=model, parser=parser)
    found = []
    for number in range(12):
        for _ in range(2):  # a conversation keeps its format
            asked = request(f"trial {number}")
            found.append(bool(engine.generate(asked, engine.prompt(asked)).parsed.calls))
    assert found == ([False] * 6 + [True] * 2) * 3


def test_a_reply_is_cut_at_its_limit() -> None:
    engine = core()
    asked = request(max_tokens=5)
    made = engine.generate(asked, engine.prompt(asked))
    assert (len(made.tokens), made.finish_reason, made.parsed.calls) == (5, "length", ())
    plain = ChatRequest(messages=[{"role": "user", "content": "talk"}], max_tokens=900)
    made = engine.generate(plain, engine.prompt(plain))
    assert (len(made.tokens), made.finish_reason, made.plain) == (900, "length", True)
    with pytest.raises(ApiError, match="maximum context length is 1000 tokens"):
        core("--max-model-len", "1k").prompt(ChatRequest(messages=plain.messages, max_tokens=1000))


async def test_requests_wait_for_a_seat_in_order() -> None:
    scheduler = Scheduler(2, 100, caching=True)
    order: list[int] = []
    gates = [asyncio.Event() for _ in range(5)]

    async def one(number: int) -> None:
        slot = await scheduler.admit(list(range(32)), 16)
        order.append(number)
        await gates[number].wait()
        scheduler.release(slot, list(range(48)))

    tasks = [asyncio.create_task(one(n)) for n in range(5)]
    await asyncio.sleep(0)
    assert (order, scheduler.running, scheduler.waiting) == ([0, 1], 2, 3)
    assert scheduler.usage == pytest.approx(6 / 100)
    tasks[2].cancel()
    await asyncio.gather(tasks[2], return_exceptions=True)
    assert scheduler.waiting == 2
    for gate in gates:
        gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 3, 4]
    assert (scheduler.running, scheduler.waiting, scheduler.held) == (0, 0, 0)


async def test_a_waiter_cancelled_as_its_turn_comes_gives_the_seat_on() -> None:
    scheduler = Scheduler(1, 100, caching=False)
    slot = await scheduler.admit([1], 1)
    waiter = asyncio.create_task(scheduler.admit([1], 1))
    await asyncio.sleep(0)
    scheduler.release(slot, None)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert (scheduler.running, scheduler.held) == (0, 0)


async def test_a_prefix_is_found_again_in_whole_blocks() -> None:
    scheduler = Scheduler(4, 8, caching=True)
    prompt = list(range(40))
    slot = await scheduler.admit(prompt, 1)
    assert slot.cached_tokens == 0
    scheduler.release(slot, prompt)
    slot = await scheduler.admit([*prompt, 1, 2, 3], 1)
    assert slot.cached_tokens == 2 * BLOCK
    scheduler.release(slot, None)
    assert (scheduler.queries, scheduler.hits) == (83, 32)
    other = await scheduler.admit([99, *prompt], 1)
    assert other.cached_tokens == 0
    scheduler.release(other, list(range(1000, 1000 + 8 * BLOCK)))  # fills the cache: the old ones are evicted
    again = await scheduler.admit(prompt, 1)
    assert again.cached_tokens == 0
    scheduler.release(again, prompt)
    scheduler.reset()
    assert (await scheduler.admit(prompt, 1)).cached_tokens == 0


def test_metrics_are_prometheus_text() -> None:
    metrics = EngineMetrics("policy")
    metrics.latency.observe(0.4)
    metrics.latency.observe(9000.0)
    metrics.finished["stop"] = 2
    text = metrics.render()
    labels = 'engine="0",model_name="policy"'
    for line in (
        f"vllm:num_requests_running{{{labels}}} 0.0",
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="policy"} 2.0',
        'vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="policy"} 0.0',
        'vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.5",model_name="policy"} 1.0',
        'vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="policy"} 2.0',
        f"vllm:e2e_request_latency_seconds_count{{{labels}}} 2.0",
        f"vllm:e2e_request_latency_seconds_sum{{{labels}}} 9000.4",
        f"liverl:policy_version{{{labels}}} 0.0",
    ):
        assert line in text.splitlines()
    declared = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    for line in text.splitlines():
        if not line.startswith("#"):
            name = line.split("{")[0].split(" ")[0]
            assert {name, name.rsplit("_", 1)[0]} & declared, line
            float(line.rsplit(" ", 1)[1])


def test_the_command_line_is_vllms() -> None:
    parser = build_parser()
    args = parser.parse_args(["some/model", "-tp", "2", "--max-model-len", "8k", "--dtype", "bfloat16",
                              "--gpu-memory-utilization", "0.9", "--enforce-eager"])  # fmt: skip
    assert (args.model_tag, args.tensor_parallel_size, args.max_model_len) == ("some/model", 2, 8000)
    assert set(non_default(parser, args)) == {
        "model_tag", "tensor_parallel_size", "max_model_len", "dtype", "gpu_memory_utilization", "enforce_eager"
    }  # fmt: skip
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--tensor-paralel-size", "2"])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("flags", "error", "words"),
    [
        ([*BASE, "xml"], KeyError, r"invalid tool call parser: xml \(chose from { hermes,qwen3_coder }\)"),
        (BASE[:3], TypeError, "--enable-auto-tool-choice requires --tool-call-parser"),
        ([*BASE, "hermes", "-tp", "3"], ValueError, r"attention heads \(8\) must be divisible .* size \(3\)"),
        (
            [*BASE, "hermes", "--max-model-len", "64K"],
            ValueError,
            "is greater than the derived max_model_len",
        ),
    ],
)
def test_refusals_are_vllms(flags: list[str], error: type[Exception], words: str) -> None:
    config = modeldir.read_config(modeldir.find("builtin:qwen3_coder"))
    with pytest.raises(error, match=words):
        check(build_parser().parse_args(flags), config)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "truncated"),
        (b'{"messages": []}', 400, "must not be empty"),
        (b'{"messages": [{}], "model": "gpt"}', 404, "The model `gpt` does not exist."),
        (b'{"messages": [{}], "n": 2}', 400, "n must be 1"),
        (b'{"messages": [{}], "max_tokens": 0}', 400, "max_tokens"),
        (b'{"messages": [{}], "temperature": -1}', 400, "temperature"),
        (b'{"messages": [{}], "top_logprobs": 2}', 400, "logprobs"),
        (b'{"messages": [{}], "tools": [{"function": {}}]}', 400, "name"),
        (b'{"messages": [{}], "tools": [{}], "tool_choice": "required"}', 400, "tool choices"),
    ],
)
def test_bad_requests_are_refused(body: bytes, status: int, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        read_chat(body, ["policy"], auto_tools=True)
    assert caught.value.status == caught.value.body()["error"]["code"] == status
    assert str(caught.value) == caught.value.body()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"n": 1, "temperature": 0, "max_tokens": 1, "model": "policy"}, 1),
        ({"max_completion_tokens": 1, "max_tokens": 9}, 1),
        ({"max_completion_tokens": 1}, 1),
        ({"top_logprobs": 2, "logprobs": True}, None),
        ({"top_logprobs": 0}, None),
        ({"tools": [], "tool_choice": "required"}, None),
        *(({"tools": list(TOOLS), "tool_choice": choice}, None) for choice in (None, "auto", "none")),
    ],
)
def test_the_least_requests_are_taken(fields: dict[str, Any], limit: int | None) -> None:
    body = {"messages": [{"role": "user", "content": "?"}], **fields}
    read = read_chat(json.dumps(body).encode(), ["base", "policy"], auto_tools=True)
    assert max_tokens(read) == limit
    assert tuple(tool_names(read)) == (TOOL_NAMES if fields.get("tools") else ())


def test_no_tools_are_parsed_under_the_tool_choice_none_so_that_no_flag_is_needed() -> None:
    body = b'{"messages": [{}], "tools": [{"function": {"name": "f"}}], "tool_choice": "none"}'
    assert read_chat(body, ["policy"], auto_tools=False).tools


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        (3, ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, "x", {"text": "b"}], "ab"),
    ],
)
def test_the_text_of_a_message(content: Any, text: str) -> None:
    assert text_of(content) == text


@pytest.mark.parametrize(
    ("arguments", "found"), [(None, {}), ("", {}), ("{}", {}), ('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1})]
)
def test_the_arguments_of_a_call(arguments: Any, found: dict[str, Any]) -> None:
    assert arguments_of({"name": "f", "arguments": arguments}) == found


@pytest.mark.parametrize("arguments", ["[1]", "3", "{", [1]])
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    with pytest.raises(ValueError):
        arguments_of({"name": "f", "arguments": arguments})


def test_a_list_of_models_names_each_once() -> None:
    card = {
        "object": "model",
        "created": 17,
        "owned_by": "vllm",
        "root": "/m",
        "parent": None,
        "max_model_len": 9,
    }
    assert model_list(["a", "b"], created=17, root="/m", max_model_len=9) == {
        "object": "list",
        "data": [{"id": "a", **card}, {"id": "b", **card}],
    }


def test_tools_need_the_flag() -> None:
    body = b'{"messages": [{}], "tools": [{"function": {"name": "f"}}]}'
    with pytest.raises(ApiError, match='"auto" tool choice requires --enable-auto-tool-choice'):
        read_chat(body, ["policy"], auto_tools=False)
    assert read_chat(body, ["policy"], auto_tools=True).tools
