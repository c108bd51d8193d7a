"""The real LiteLLM in its own environment, behind our runner, in front of toy replicas."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kit.components import LITELLM
from proxykit import MODEL, Proxy, ToyReplica, replicas, say, served, wait_for

from liverl.environments import default_cache_dir, ensure

pytestmark = [
    pytest.mark.first,
    pytest.mark.stack,
]  # LiteLLM starts in the first test's time

CHAT, ANTHROPIC = "/v1/chat/completions", "/v1/messages"
HELLO = [{"role": "user", "content": "hi"}]


@dataclass
class Answer:
    status: int
    text: str
    headers: Any

    @property
    def body(self) -> Any:
        return json.loads(self.text)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One runner for all tests of this module, without replicas; each test lists its own and names its trials."""
    python = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: say(text)))
    proxy = Proxy(python, tmp_path_factory.mktemp("run"))
    proxy.extra_env = {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }
    with served(proxy):
        yield proxy


@pytest.fixture
async def pair(proxy: Proxy) -> AsyncIterator[tuple[ToyReplica, ToyReplica]]:
    async with replicas("a", "b") as (a, b):
        await proxy.reload(1, a.url, b.url)
        yield a, b


async def ask(
    proxy: Proxy, path: str, body: dict[str, Any] | None, key: str | None, trial: str | None = None
) -> Answer:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if trial is not None:
        headers["x-litellm-routing-key"] = trial
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        method = "GET" if body is None else "POST"
        async with session.request(method, proxy.url + path, json=body, headers=headers) as response:
            return Answer(response.status, await response.text(), response.headers)


def chat(**options: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": HELLO, **options}


async def test_without_replicas_it_serves_and_says_what_is_missing(proxy: Proxy) -> None:
    await proxy.reload(1)
    assert (await ask(proxy, "/health/liveliness", None, None)).status == 200
    answer = await ask(proxy, CHAT, chat(), proxy.keys.run, "early")
    assert answer.status == 503 and "no replica is listed" in answer.body["error"]["message"]
    assert answer.headers["retry-after"]
    answer = await ask(proxy, ANTHROPIC, chat(max_tokens=5), proxy.keys.run, "early")
    assert answer.status == 503 and answer.body["type"] == "error"
    records = await proxy.records("early", count=2)
    assert [record["failure"]["status_code"] for record in records] == [503, 503]
    assert records[0]["request_body"] == chat()


async def test_a_trial_is_named_by_header_or_by_key(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    await ask(proxy, CHAT, chat(), proxy.keys.run, "by-header")
    await ask(proxy, CHAT, chat(), f"{proxy.keys.run}.by-key")
    await ask(proxy, CHAT, chat(), f"{proxy.keys.run}.loses", "wins")
    await ask(proxy, CHAT, chat(), proxy.keys.master, "by-master")
    for trial in ("by-header", "by-key", "wins", "by-master"):
        (record,) = await proxy.records(trial, count=1)
        assert record["session_id"] == trial and record["success"] is True
    assert proxy.trajectory("loses") == []


async def test_unnamed_and_badly_named_requests_are_counted_apart(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    before = proxy.status(1)["unattributed"]
    for trial in (None, "../../../etc", "step_0001"):
        assert (await ask(proxy, CHAT, chat(), proxy.keys.run, trial)).status == 200
    await proxy.records("_unattributed", count=3)
    await wait_for(lambda: proxy.status(1)["unattributed"] == before + 3, 60, "they are counted")
    folders = {path.name for path in (proxy.run_dir / "trials").iterdir()}
    assert "etc" not in folders and "step_0001" not in folders


async def test_keys(proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]) -> None:
    assert (await ask(proxy, CHAT, chat(), None)).status == 401
    assert (await ask(proxy, CHAT, chat(), "sk-wrong")).status == 401
    assert (await ask(proxy, "/model/info", None, proxy.keys.run)).status == 403
    assert (await ask(proxy, "/docs", None, None)).status == 401
    assert (await ask(proxy, "/model/info", None, proxy.keys.master)).status == 200
    listed = await ask(proxy, "/v1/models", None, f"{proxy.keys.run}.t")
    assert MODEL in {model["id"] for model in listed.body["data"]}


async def test_what_can_never_be_answered_is_counted_apart(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    def told() -> tuple[int, dict[str, int]]:
        status = proxy.status(1)
        return status["refused"], dict(status["unknown_models"])

    refused, unknown = told()
    run_key = proxy.keys.run
    for path, body in ((CHAT, chat(model="gpt-4o")), (ANTHROPIC, chat(model="sonnet", max_tokens=5))):
        assert (await ask(proxy, path, body, run_key, "wrong-model")).status in (400, 404)
    assert (await ask(proxy, CHAT, chat(model="gpt-4o"), run_key, "wrong-model")).status in (400, 404)
    assert (await ask(proxy, CHAT, chat(), "sk-of-another-run")).status == 401
    assert (await ask(proxy, "/docs", None, None)).status == 401  # somebody looks around: no agent
    # a bad request for a model that is there
    pair[0].fail_with = pair[1].fail_with = 400
    assert (await ask(proxy, CHAT, chat(), run_key, "bad-request")).status == 400
    expected = (refused + 1, {**unknown, "gpt-4o": 2, "sonnet": 1})
    await wait_for(lambda: told() == expected, 60, f"{told()} is {expected}")


@pytest.mark.parametrize("model", [MODEL, f"hosted_vllm/{MODEL}", "claude-sonnet-4-5"])
async def test_every_alias_reaches_the_policy(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica], model: str
) -> None:
    assert (await ask(proxy, CHAT, chat(model=model), proxy.keys.run, "aliases")).status == 200
    assert (
        await ask(proxy, ANTHROPIC, chat(model=model, max_tokens=9), proxy.keys.run, "aliases")
    ).status == 200
    assert {seen["body"]["model"] for replica in pair for seen in replica.seen} == {MODEL}


async def test_replicas_see_no_key_of_ours(proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]) -> None:
    await ask(proxy, CHAT, chat(), f"{proxy.keys.run}.secretive")
    seen = json.dumps([call for replica in pair for call in replica.seen])
    assert proxy.keys.run not in seen and proxy.keys.master not in seen


async def test_trials_stay_on_their_replica_and_are_spread(proxy: Proxy) -> None:
    async with replicas("a", "b", "c") as three:
        await proxy.reload(1, *(replica.url for replica in three))
        trials = [f"sticky-{number}" for number in range(6)]
        for _ in range(3):
            await asyncio.gather(*(ask(proxy, CHAT, chat(), proxy.keys.run, trial) for trial in trials))
        used = {}
        for trial in trials:
            records = await proxy.records(trial, count=3)
            assert {record["moved_from"] for record in records} == {None}
            (used[trial],) = {record["replica"] for record in records}
        assert sorted(used.values()) == sorted(replica.url for replica in three for _ in range(2))
        assert [len(replica.seen) for replica in three] == [6, 6, 6]


async def test_unnamed_requests_go_where_least_is_in_flight(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    for replica in pair:
        replica.hold = asyncio.Event()
    asked = [asyncio.create_task(ask(proxy, CHAT, chat(), proxy.keys.run)) for _ in range(6)]
    await wait_for(lambda: sum(replica.in_flight for replica in pair) == 6, 60, "all six arrive")
    assert [replica.in_flight for replica in pair] == [3, 3]
    for replica in pair:
        assert replica.hold is not None
        replica.hold.set()
    assert {(await task).status for task in asked} == {200}


async def test_a_stream_is_recorded_whole_and_once(proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]) -> None:
    answer = await ask(proxy, CHAT, chat(stream=True), proxy.keys.run, "streamed")
    assert answer.text.rstrip().endswith("data: [DONE]")
    (record,) = await proxy.records("streamed", count=1)
    assert record["stream"] is True and record["api"] == "openai"
    message = record["response_body"]["choices"][0]["message"]
    assert message["content"].startswith("hello from ")
    assert record["usage"]["total_tokens"] == 10


async def test_a_policy_that_repeats_itself_is_answered_whole(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    """LiteLLM takes 100 equal chunks in a row for a loop, and ends the stream with an error."""
    for replica in pair:
        replica.words = ["again "] * 150
    answer = await ask(proxy, CHAT, chat(stream=True), proxy.keys.run, "repeats")
    assert answer.text.rstrip().endswith("data: [DONE]")
    (record,) = await proxy.records("repeats", count=1)
    assert record["success"] is True
    assert record["response_body"]["choices"][0]["message"]["content"] == "again " * 150


async def test_anthropic_calls_are_recorded_once_in_openais_shape(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    tool = {"name": "run", "input_schema": {"type": "object", "properties": {"cmd": {"type": "string"}}}}
    plain = await ask(
        proxy, ANTHROPIC, chat(model="claude-x", max_tokens=9, tools=[tool]), proxy.keys.run, "cc"
    )
    assert plain.body["content"][0]["type"] == "tool_use"
    streamed = await ask(
        proxy, ANTHROPIC, chat(model="claude-x", max_tokens=9, stream=True), proxy.keys.run, "cc"
    )
    assert "event: message_stop" in streamed.text
    await ask(proxy, CHAT, chat(), proxy.keys.run, "cc")
    first, second, _ = await proxy.records("cc", count=3)
    assert first["api"] == second["api"] == "anthropic"
    call = first["response_body"]["choices"][0]["message"]["tool_calls"][0]
    assert call["function"] == {"name": "run", "arguments": '{"cmd":"ls"}'}
    assert first["request_body"]["tools"] == [tool]
    assert second["response_body"]["choices"][0]["message"]["content"].startswith("hello from ")
    assert len(proxy.trajectory("cc")) == 3


async def test_token_ids_and_probabilities_reach_the_trainer(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    answer = await ask(proxy, CHAT, chat(return_token_ids=True, logprobs=True), proxy.keys.run, "tokens")
    choice = answer.body["choices"][0]
    assert answer.body["prompt_token_ids"] == [1, 2, 3]
    assert choice["provider_specific_fields"]["token_ids"] == [4, 5, 6]
    assert choice["logprobs"]["content"][0]["logprob"] == -0.5
    (record,) = await proxy.records("tokens", count=1)
    assert "token_ids" not in json.dumps(record["response_body"])


async def test_a_record_goes_to_the_trials_own_folder_without_keys(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    (proxy.run_dir / "trials" / "step_0003" / "owned").mkdir(parents=True)
    leaky = [{"role": "user", "content": f"my key is {proxy.keys.run}"}]
    await ask(proxy, CHAT, chat(messages=leaky, api_key="sk-mine"), proxy.keys.run, "owned")
    (record,) = await proxy.records("step_0003", "owned", count=1)
    text = json.dumps(record)
    assert proxy.keys.run not in text and "sk-mine" not in text
    assert record["request_body"]["messages"][0]["content"] == "my key is [redacted]"


async def test_a_failed_turn_is_recorded_once_and_not_sampled_again(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    for replica in pair:
        replica.fail_with = 500
    for path in (CHAT, ANTHROPIC):
        answer = await ask(proxy, path, chat(max_tokens=9), proxy.keys.run, "failing")
        assert answer.status == 500
    records = await proxy.records("failing", count=2)
    assert [record["success"] for record in records] == [False, False]
    assert "engine trouble" in records[0]["failure"]["message"]
    assert records[0]["failure"]["deployment"]["api_base"] == records[0]["replica"]
    assert sum(len(replica.seen) for replica in pair) == 2
    assert len(proxy.trajectory("failing")) == 2


async def test_a_replica_that_is_down_is_cooled_down_and_its_trials_move(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    a, b = pair
    await ask(proxy, CHAT, chat(), proxy.keys.run, "moves-1")
    await ask(proxy, CHAT, chat(), proxy.keys.run, "moves-2")
    on = {(await proxy.records(trial, count=1))[0]["replica"]: trial for trial in ("moves-1", "moves-2")}
    assert set(on) == {a.url, b.url}
    await b.stop()
    assert (await ask(proxy, CHAT, chat(), proxy.keys.run, on[b.url])).status == 500
    await wait_for(lambda: proxy.status(1)["cooled_down"] == [b.url], 60, "it is shown as cooled down")
    for trial in (*on.values(), "moves-new"):
        assert (await ask(proxy, CHAT, chat(), proxy.keys.run, trial)).status == 200
    records = await proxy.records(on[b.url], count=3)
    assert [record["success"] for record in records] == [True, False, True]
    assert "Cannot connect" in records[1]["failure"]["message"]
    assert (records[2]["replica"], records[2]["moved_from"]) == (a.url, b.url)

    await a.stop()
    assert (await ask(proxy, CHAT, chat(), proxy.keys.run, "moves-new")).status == 500
    await wait_for(lambda: len(proxy.status(1)["cooled_down"]) == 2, 60, "both are shown")
    await a.start()  # the same port again: tried although cooled down, and forgiven
    assert (await ask(proxy, CHAT, chat(), proxy.keys.run, "moves-new")).status == 200
    await wait_for(lambda: proxy.status(1)["cooled_down"] == [b.url], 60, "success forgives")


async def test_a_client_that_leaves_its_stream_is_recorded(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    for replica in pair:
        replica.chunk_gap = 0.5
    headers = {"authorization": f"Bearer {proxy.keys.run}.leaver"}
    async with aiohttp.ClientSession() as session:
        response = await session.post(proxy.url + CHAT, json=chat(stream=True), headers=headers)
        await response.content.readany()
        response.close()
    (record,) = await proxy.records("leaver", count=1)
    assert record["failure"]["error_type"] == "client_disconnected"
    (choice,) = record["response_body"]["choices"]
    assert choice["message"]["content"].startswith("hello") and choice["finish_reason"] is None
    assert record["usage"] is None
    await wait_for(lambda: proxy.status(1)["in_flight"] == 0, 60, "nothing is left in flight")


async def test_a_client_that_gives_up_does_not_keep_the_replica_busy(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    for replica in pair:
        replica.hold = asyncio.Event()
    asked = asyncio.create_task(ask(proxy, CHAT, chat(), proxy.keys.run, "gives-up"))
    await wait_for(lambda: sum(replica.in_flight for replica in pair) == 1, 60, "it is in flight")
    asked.cancel()
    (record,) = await proxy.records("gives-up", count=1)
    assert record["failure"]["error_type"] == "client_disconnected"
    await wait_for(lambda: proxy.status(1)["in_flight"] == 0, 60, "the proxy let go of it")


async def test_a_replica_that_dies_in_a_stream_is_a_recorded_failure(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    for replica in pair:
        replica.die_in_stream = True
    with contextlib.suppress(aiohttp.ClientError):
        answer = await ask(proxy, CHAT, chat(stream=True), proxy.keys.run, "died")
        assert "[DONE]" not in answer.text
    (record,) = await proxy.records("died", count=1)
    assert record["success"] is False and record["failure"]["message"]
    await wait_for(lambda: proxy.status(1)["cooled_down"] == [record["replica"]], 60, "it is cooled down")


async def test_a_reload_changes_the_list_under_running_requests(proxy: Proxy) -> None:
    async with replicas("a", "b") as (a, b):
        await proxy.reload(1, a.url)
        a.hold = asyncio.Event()
        running = asyncio.create_task(ask(proxy, CHAT, chat(), proxy.keys.run, "reloaded"))
        streaming = asyncio.create_task(ask(proxy, CHAT, chat(stream=True), proxy.keys.run, "reloaded"))
        await wait_for(lambda: a.in_flight == 2, 60, "two requests are in flight")
        await proxy.reload(1, b.url)
        assert proxy.status(1)["backends"] == [b.url]
        assert (await ask(proxy, CHAT, chat(), proxy.keys.run, "reloaded")).status == 200
        assert len(b.seen) == 1
        a.hold.set()
        assert [(await task).status for task in (running, streaming)] == [200, 200]
        for model in ("claude-any", f"hosted_vllm/{MODEL}"):
            assert (
                await ask(proxy, CHAT, chat(model=model), proxy.keys.run, f"new-{len(model)}")
            ).status == 200
        assert len(a.seen) == 2 and len(b.seen) == 3


async def test_a_bad_file_leaves_the_old_list_and_is_reported(
    proxy: Proxy, pair: tuple[ToyReplica, ToyReplica]
) -> None:
    good = proxy.status(1)["config_sha"]
    proxy.write_text("model_list: [broken")
    proxy.signal(1, signal.SIGHUP)
    await wait_for(lambda: proxy.status(1)["error"], 60, "the error is reported")
    status = proxy.status(1)
    assert "not valid YAML" in status["error"] and status["config_sha"] == good
    assert (await ask(proxy, CHAT, chat(), proxy.keys.run, "after-bad")).status == 200
    await proxy.reload(1, pair[0].url)
    assert proxy.status(1)["error"] is None


async def test_wrong_settings_end_it_with_a_reason(proxy: Proxy, tmp_path: Path) -> None:
    environments: list[tuple[dict[str, str], str]] = [
        ({}, "LIVERL_RUN_DIR is not set"),
        ({"LIVERL_RUN_DIR": str(tmp_path), "LIVERL_PROXY_CONFIG": "x", "LIVERL_LISTEN_FD": "7"}, "key file"),
        (
            {"LIVERL_RUN_DIR": str(proxy.run_dir), "LIVERL_PROXY_CONFIG": "/none", "LIVERL_LISTEN_FD": "7"},
            "cannot read /none",
        ),
        (
            {
                "LIVERL_RUN_DIR": str(proxy.run_dir),
                "LIVERL_PROXY_CONFIG": str(proxy.config),
                "LIVERL_LISTEN_FD": "777",
            },
            "descriptor 777",
        ),
    ]
    from proxykit import RUNNER

    for env, reason in environments:
        process = await asyncio.create_subprocess_exec(
            str(proxy.python),
            str(RUNNER),
            env={"PATH": os.environ["PATH"], **env},
            stderr=asyncio.subprocess.PIPE,
        )
        _, output = await process.communicate()
        assert process.returncode == 2
        assert reason in output.decode() and "Traceback" not in output.decode()
