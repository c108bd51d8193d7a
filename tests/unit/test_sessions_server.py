"""Sessions over HTTP with scripted replicas: both APIs, both SDKs, retries, faults, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kit.lazily import lazily
from kit.token_replica import TokenReplica, call_text
from yarl import URL

from liverl.embedded.tokenizer import EOS_ID, decode
from liverl.observe.trials.trajectory import read_trajectory
from liverl.sessions import trial_log
from liverl.sessions.engine import EngineLost, Sampled
from liverl.sessions.messages import Chat, Message
from liverl.sessions.server import AgentRoutes
from liverl.sessions.store import SILENT
from liverl.util.http_server import Caller

anthropic, openai = lazily("anthropic"), lazily("openai")

TOOL = {
    "name": "read_file",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
OPENAI_TOOLS = [{"type": "function", "function": TOOL}]
ANTHROPIC_TOOLS = [
    {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}
]


def script(_prompt: str, turn: int) -> str:
    """Three turns: a call that lacks a closing tag, another one, words."""
    return (
        f"I look. {call_text('read_file', path='a.txt')}",
        call_text("read_file", path="b.txt"),
        "It says 7.",
    )[min(turn, 2)]


USER = {"role": "user", "content": "What does the file say?"}


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds, at most 20 seconds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def openai_dialogue(opened, *, stream: bool) -> None:
    client = openai.AsyncOpenAI(base_url=opened["openai_url"], api_key=opened["key"], max_retries=0)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are an agent."}, USER]
    for turn in range(3):
        made = client.chat.completions.create(model="m", messages=messages, tools=OPENAI_TOOLS, stream=stream)
        if stream:
            text, calls = "", {}
            async for chunk in await made:
                delta = chunk.choices[0].delta if chunk.choices else None
                text += (delta and delta.content) or ""
                for call in (delta and delta.tool_calls) or ():
                    calls[call.id] = {
                        "id": call.id,
                        "type": "function",
                        "function": call.function.model_dump(),
                    }
            reply = {
                "role": "assistant",
                "content": text,
                **({"tool_calls": list(calls.values())} if calls else {}),
            }
        else:
            reply = (await made).choices[0].message.model_dump(exclude_none=True)
        messages.append(reply)
        for call in reply.get("tool_calls") or ():
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"content {turn}"})
    assert messages[-1]["content"] == "It says 7."
    await client.close()


async def anthropic_dialogue(opened, *, stream: bool) -> None:
    client = anthropic.AsyncAnthropic(base_url=opened["anthropic_url"], api_key=opened["key"], max_retries=0)
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ]
    messages: list[dict[str, Any]] = [USER]
    for turn in range(3):
        wanted = {
            "model": "m",
            "messages": messages,
            "tools": ANTHROPIC_TOOLS,
            "system": system,
            "max_tokens": 32000 if stream else 4000,
        }
        if stream:
            async with client.messages.stream(**wanted) as events:
                message = await events.get_final_message()
        else:
            message = await client.messages.create(**wanted)
        messages.append(
            {
                "role": "assistant",
                "content": [block.model_dump(exclude_none=True) for block in message.content],
            }
        )
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"content {turn}"}
            for block in message.content
            if block.type == "tool_use"
        ]
        assert message.stop_reason == ("tool_use" if results else "end_turn")
        if results:
            messages.append({"role": "user", "content": results})
    assert messages[-1]["content"][-1]["text"] == "It says 7."
    await client.close()


async def test_both_sdks_streamed_and_not_give_the_same_row(host, replica):
    rows = []
    for number, (dialogue, stream) in enumerate(
        [
            (openai_dialogue, False),
            (openai_dialogue, True),
            (anthropic_dialogue, False),
            (anthropic_dialogue, True),
        ]
    ):
        opened = await host.open(f"task-0000000{number}")
        await dialogue(opened, stream=stream)
        (row,) = await host.finish(f"task-0000000{number}")
        rows.append(row)
    assert rows[0] == rows[1] == rows[2] == rows[3]
    row = rows[0]
    ids, start = row["traj_acc_ids"], row["initial_prompt_token_len"]
    assert len(ids) - start == len(row["traj_response_mask"]) == len(row["traj_response_logprobs"])
    sampled = [token for token, bit in zip(ids[start:], row["traj_response_mask"], strict=True) if bit]
    assert sampled == [token for reply in replica.replies[:3] for token in reply]
    # Each prompt of the engine begins with the row up to there: nothing was encoded again.
    for prompt in replica.prompts[:3]:
        assert ids[: len(prompt)] == prompt
    assert decode(ids).count("<|im_end|>") == 7
    assert [
        logprob
        for bit, logprob in zip(row["traj_response_mask"], row["traj_response_logprobs"], strict=True)
        if not bit
    ] == [0.0] * row["traj_response_mask"].count(0)
    status, facts = await host.control("GET", "/sessions")
    assert (status, facts["finished"], facts["counters"]["healed"]) == (200, 4, 8), (
        "text would have broken each turn"
    )


async def test_a_running_trial_is_seen_turn_by_turn_and_its_rows_at_the_end(host):
    opened = await host.open()
    await openai_dialogue(opened, stream=False)
    folder = host.folder / "trials" / opened["id"]
    records = [json.loads(line) for line in (folder / "litellm-trajectory.jsonl").read_text().splitlines()]
    assert [len(record["request_body"]["messages"]) for record in records] == [2, 1, 1], "what is new"
    assert [len(turn.before) + len(turn.after) for turn in read_trajectory(folder).turns] == [3, 1, 0]
    assert (
        records[0]["response_body"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"]
        == "read_file"
    )
    assert not (folder / "proxy_trajectory.json").exists()
    assert (host.folder / "sessions" / f"{opened['id']}.jsonl").stat().st_mode & 0o077 == 0
    (row,) = await host.finish()
    assert await host.finish() == [row], "it can be asked for again"
    written = json.loads((folder / "proxy_trajectory.json").read_text())
    assert {name: written[name] for name in row if name.startswith(("traj", "init"))} == {
        name: value for name, value in row.items() if name.startswith(("traj", "init"))
    }
    assert [message["role"] for message in written["messages_snapshot"]] == [
        "system",
        "user",
        *["assistant", "tool"] * 2,
        "assistant",
    ]
    assert opened["key"] not in (folder / "proxy_trajectory.json").read_text()
    assert (host.folder / "sessions" / "finished.ndjson").stat().st_mode & 0o077 == 0
    assert (await host.chat(opened, USER))[0] == 410


async def test_a_hundred_retries_are_one_sample(host, replica):
    opened = await host.open()
    replica.gate.clear()
    headers = {"Authorization": f"Bearer {opened['key']}", "x-stainless-retry-count": "1"}
    body = {"model": "m", "messages": [USER]}

    async def again():
        url = f"{opened['openai_url']}/chat/completions"
        async with host.http.post(url, json=body, headers=headers) as response:
            return response.status, (await response.json())["id"]

    asked = [asyncio.ensure_future(again()) for _ in range(100)]
    await until(lambda: host.store.session(opened["id"]).counters.num_joined == 99)
    replica.gate.set()
    answers = await asyncio.gather(*asked)
    assert len(set(answers)) == 1 and answers[0][0] == 200 and len(replica.replies) == 1
    assert (await host.chat(opened, USER))[1]["id"] != answers[0][1], "received: asked again, sampled again"


async def test_a_reply_that_nobody_received_is_kept_for_the_same_request(host, replica):
    opened = await host.open()
    replica.gate.clear()
    asked = asyncio.ensure_future(host.chat(opened, USER))
    await replica.begun.wait()
    asked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked
    replica.gate.set()
    session = host.store.session(opened["id"])
    await until(lambda: not session.waiting)
    status, _ = await host.chat(opened, USER)
    assert (status, len(replica.replies)) == (200, 1)


async def test_after_a_restart_url_key_and_prefix_are_the_same(host, replica):
    opened = await host.open()
    messages = [USER]
    _, body = await host.chat(opened, *messages, tools=OPENAI_TOOLS)
    reply = body["choices"][0]["message"]
    messages += [reply, {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}]
    # As after kill -9 in the middle of a line.
    await host.stop()
    journal = host.folder / "sessions" / f"{opened['id']}.jsonl"
    with journal.open("ab") as out:
        out.write(b'{"type":"turn","request":"AA')
    await host.start()
    status, again = await host.control("GET", f"/sessions/{opened['id']}")
    assert (status, again["key"], again["counters"]["num_calls"]) == (200, opened["key"], 1)
    await host.chat(again, *messages, tools=OPENAI_TOOLS)
    (row,) = await host.finish()
    assert row["kind"] == "main" and row["traj_acc_ids"][: len(replica.prompts[1])] == replica.prompts[1]
    assert sum(row["traj_response_mask"]) == sum(map(len, replica.replies))


@pytest.mark.parametrize("told", [False, True])
async def test_a_turn_that_was_recorded_as_the_service_was_killed_is_in_the_trials_file_once(
    host, replica, monkeypatch, told
):
    """Between the journal and the trial's file, or between that and the client."""
    opened = await host.open()
    append = trial_log.append_turn

    def killed(*arguments: Any) -> None:
        if told:
            append(*arguments)
        raise OSError(5, "killed")

    monkeypatch.setattr(trial_log, "append_turn", killed)
    with contextlib.suppress(Exception):
        await host.chat(opened, USER)
    monkeypatch.undo()
    await host.stop()
    await host.start()
    _, again = await host.control("GET", f"/sessions/{opened['id']}")
    assert again["counters"]["num_calls"] == 1, "it was recorded"
    for _ in range(2):
        status, _ = await host.chat(again, USER)
        assert status == 200
    assert len(replica.replies) == 2, "the second one is a new request: its reply has been received"
    path = host.folder / "trials" / opened["id"] / "litellm-trajectory.jsonl"
    assert len(path.read_text().splitlines()) == 2
    assert all(json.loads(line)["request_time"] > 0 for line in path.read_text().splitlines())


async def test_an_ended_session_costs_no_journal_and_is_answered_for_after_a_restart(host, replica):
    """Its file would stay open, and its ids in memory, for each of thousands of trials."""
    opened = await host.open()
    await openai_dialogue(opened, stream=False)
    rows, before = await host.finish(), len(os.listdir("/proc/self/fd"))
    left = sorted(path.name for path in (host.folder / "sessions").iterdir())
    assert left == ["finished.ndjson"]
    _, facts = await host.control("GET", "/sessions")
    assert (facts["open"], facts["finished"]) == (0, 1)
    for again in (False, True):
        if again:
            await host.stop()
            await host.start()
        assert await host.finish() == rows
        status, described = await host.control("GET", f"/sessions/{opened['id']}")
        assert (status, described["finished"], described["counters"]["num_calls"]) == (200, True, 3)
        _, now = await host.control("GET", "/sessions")
        assert now["counters"]["num_calls"] == facts["counters"]["num_calls"] == 3
        for key, status in (("wrong", 401), (opened["key"], 410)):
            headers = {"Authorization": f"Bearer {key}"}
            url = f"{host.address}/sess/{opened['id']}/v1/models"
            async with host.http.get(url, headers=headers) as response:
                assert response.status == status
        folder = str(host.folder / "trials" / opened["id"])
        status, body = await host.control("POST", "/sessions", {"id": opened["id"], "trial_dir": folder})
        assert (status, "has ended" in body["error"]["message"]) == (409, True)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


async def test_a_session_that_ended_as_the_service_did_is_ended_for_good(host, replica):
    """The journal says so; what is kept of ended sessions does not yet."""
    opened = await host.open()
    await openai_dialogue(opened, stream=False)
    session = host.store.session(opened["id"])
    path = host.folder / "sessions" / f"{opened['id']}.jsonl"
    session.finish()
    await host.stop()
    assert path.exists()
    await host.start()
    assert not path.exists()
    _, facts = await host.control("GET", "/sessions")
    assert (facts["open"], facts["finished"]) == (0, 1)


async def test_what_a_weight_update_cuts_is_kept_and_continued_with_both_versions(host, replica):
    opened = await host.open()
    replica.cut_at = [5, 0, 7]

    class Versions(list):
        def pop(self, index):
            replica.version += 1
            return super().pop(index)

    replica.cut_at = Versions(replica.cut_at)
    await host.chat(opened, USER, tools=OPENAI_TOOLS)
    (row,) = await host.finish()
    text = decode(row["traj_acc_ids"][row["initial_prompt_token_len"] :])
    assert text == script("", 0) + "<|im_end|>", "the same tokens as without"
    assert row["policy_versions"] == [[2, 5], [4, len(script("", 0)) + 1 - 5]]
    _, facts = await host.control("GET", "/sessions")
    assert facts["counters"]["num_aborts"] == 3
    assert (facts["counters"]["min_global_steps"], facts["counters"]["max_global_steps"]) == (2, 4)


async def test_a_lost_replica_is_left_for_another_with_the_same_prefix(host, replica):
    other = TokenReplica(script)
    other_url = await other.start()
    opened = await host.open()
    _, body = await host.chat(opened, USER, tools=OPENAI_TOOLS)
    await replica.stop()
    await host.control(
        "PUT", "/backends", [{"url": replica.url, "model": "m"}, {"url": other_url, "model": "m"}]
    )
    reply = body["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}
    status, _ = await host.chat(opened, USER, reply, result, tools=OPENAI_TOOLS)
    assert status == 200 and len(other.replies) == 1
    (row,) = await host.finish()
    assert row["traj_acc_ids"][: len(other.prompts[0])] == other.prompts[0]
    await other.stop()


async def test_an_engine_that_fails_is_asked_again_and_its_refusal_is_passed_on(host, replica):
    opened = await host.open()
    replica.failures = [503]
    assert (await host.chat(opened, USER))[0] == 200
    replica.failures = [400]
    status, body = await host.chat(opened, USER, {"role": "user", "content": "again"})
    assert status == 400 and "scripted 400" in body["error"]["message"]


async def test_a_replica_lost_between_sampling_and_parsing_is_not_sampled_again(host, replica):
    opened = await host.open()
    replica.parse_failures = [503]
    status, _ = await host.chat(opened, USER, tools=OPENAI_TOOLS)
    (row,) = await host.finish()
    assert (status, len(replica.replies)) == (200, 1)
    assert row["traj_acc_ids"][row["initial_prompt_token_len"] :] == replica.replies[0]


async def test_requests_wait_for_the_first_replica(host, replica):
    await host.control("PUT", "/backends", [])
    opened = await host.open()
    asked = asyncio.ensure_future(host.chat(opened, USER))
    await until(lambda: host.store.session(opened["id"]).waiting)
    await host.control("PUT", "/backends", [{"url": replica.url, "model": "m"}])
    assert (await asked)[0] == 200


@pytest.mark.parametrize(
    ("changes", "kinds"), [("rewrites", ["main"]), ("numbers", ["rewrite", "rewrite", "rewrite"])]
)
async def test_a_template_that_is_not_append_only(host, replica, changes, kinds):
    """What was sampled is kept where a template changes earlier turns; where what is new depends on them, each turn has
    a row of its own."""
    setattr(replica, changes, True)
    opened = await host.open()
    await openai_dialogue(opened, stream=False)
    rows = await host.finish()
    assert [row["kind"] for row in rows] == ["main", *kinds[1:]]
    sampled = [token for reply in replica.replies for token in reply]
    trained = [
        token
        for row in rows
        for token, bit in zip(
            row["traj_acc_ids"][row["initial_prompt_token_len"] :], row["traj_response_mask"], strict=True
        )
        if bit
    ]
    assert trained == sampled


async def test_a_reply_that_was_cut_is_ended_before_the_next_message(host, replica):
    opened = await host.open()
    _, body = await host.chat(opened, USER, tools=OPENAI_TOOLS, max_tokens=6)
    await host.chat(
        opened, USER, body["choices"][0]["message"], {"role": "user", "content": "go on"}, tools=OPENAI_TOOLS
    )
    first, second = replica.prompts
    (row,) = await host.finish()
    assert second[: len(first) + 7] == [*first, *replica.replies[0], EOS_ID]
    assert row["traj_response_mask"][:7] == [1] * 6 + [0]


async def test_parts_of_a_reply_share_its_limit(host, replica):
    opened = await host.open()
    replica.cut_at = [4]
    _, body = await host.chat(opened, USER, tools=OPENAI_TOOLS, max_tokens=10)
    assert [len(reply) for reply in replica.replies] == [4, 6]
    assert (body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]) == (10, "length")


async def test_a_session_stays_on_its_replica_and_new_ones_go_to_the_emptiest(host, replica):
    other = TokenReplica(script)
    await host.control(
        "PUT", "/backends", [{"url": await other.start(), "model": "m"}, {"url": replica.url, "model": "m"}]
    )
    for number in range(4):
        opened = await host.open(f"task-0000000{number}")
        _, body = await host.chat(opened, USER)
        await host.chat(opened, USER, body["choices"][0]["message"], {"role": "user", "content": "go on"})
    assert (len(replica.replies), len(other.replies)) == (4, 4)
    for each in (replica, other):
        first, second, third, fourth = each.prompts
        assert second[: len(first)] == first and fourth[: len(third)] == third
    await other.stop()


async def test_a_draining_replica_keeps_its_sessions_and_gets_no_new_ones(host, replica):
    other = TokenReplica(script)
    opened = await host.open()
    _, body = await host.chat(opened, USER)
    listed = [
        {"url": replica.url, "model": "m", "draining": True},
        {"url": await other.start(), "model": "m"},
    ]
    await host.control("PUT", "/backends", listed)
    await host.chat(opened, USER, body["choices"][0]["message"], {"role": "user", "content": "go on"})
    await host.chat(await host.open("task-00000002"), USER)
    assert (len(replica.replies), len(other.replies)) == (2, 1)
    await other.stop()


async def test_a_prompt_that_is_too_long_is_refused_by_our_own_arithmetic(host, replica):
    replica.context = 40
    opened = await host.open()
    status, body = await host.chat(opened, {"role": "user", "content": "x" * 200})
    assert status == 400
    # The first words are LiteLLM's, the others Anthropic's: Claude Code compacts its history when it reads them.
    assert re.fullmatch(
        r"exceed context limit! prompt is too long: \d{3} tokens > 40 maximum", body["error"]["message"]
    )
    assert replica.replies == []
    client = anthropic.AsyncAnthropic(base_url=opened["anthropic_url"], api_key=opened["key"], max_retries=3)
    with pytest.raises(anthropic.BadRequestError, match="exceed context limit"):
        await client.messages.create(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "x" * 200}]
        )
    assert host.store.session(opened["id"]).counters.context_overflow == 2, "no SDK tries that again"
    await client.close()


async def test_the_reply_is_cut_to_what_context_and_row_can_hold(host, replica):
    opened = await host.open(max_response_tokens=20)
    status, body = await host.chat(opened, USER, tools=OPENAI_TOOLS, max_tokens=32000)
    assert (status, body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]) == (
        200,
        "length",
        20,
    )
    reply = body["choices"][0]["message"]
    status, body = await host.chat(
        opened, USER, reply, {"role": "user", "content": "go on"}, tools=OPENAI_TOOLS
    )
    assert status == 400 and "limit is 20" in body["error"]["message"]


async def test_limits_of_turns_end_the_conversation_with_an_answer_that_no_client_repeats(host):
    opened = await host.open(max_turns=1)
    _, body = await host.chat(opened, USER, tools=OPENAI_TOOLS)
    reply = body["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}
    status, body = await host.chat(opened, USER, reply, result)
    assert status == 410 and "1 turns" in body["error"]["message"]


async def test_the_trainers_sampling_replaces_the_clients_and_tools_can_be_disabled(host, replica):
    seen = []
    original = replica.reply
    replica.reply = lambda prompt, turn: seen.append(prompt) or original(prompt, turn)
    opened = await host.open(sampling={"temperature": 0.5, "max_tokens": 3}, disable_tools=True)
    _, body = await host.chat(opened, USER, tools=OPENAI_TOOLS, temperature=1.0)
    assert body["usage"]["completion_tokens"] == 3
    assert "read_file" not in seen[0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "a list, not a JSON object"),
        (b"{}", "messages is missing"),
        (b'{"messages": []}', "messages is empty"),
        (b'{"messages": [1]}', "a message is a number"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "image_url"),
        (b'{"messages": [{"role": "poet", "content": "x"}]}', "'poet'"),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', "n is not supported"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens is 0"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}', "temperature is 'hot'"),
        (
            b'{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}',
            "the last message",
        ),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}', "a tool has no function"),
    ],
)
async def test_bad_bodies_are_400_and_say_what_was_found(host, body, words):
    opened = await host.open()
    headers = {"Authorization": f"Bearer {opened['key']}"}
    for path in ("v1/chat/completions", "v1/messages"):
        async with host.http.post(
            f"{opened['anthropic_url']}/{path}", data=body, headers=headers
        ) as response:
            text = await response.text()
            assert response.status == 400, text
            if path == "v1/chat/completions":
                assert words in json.loads(text)["error"]["message"]


async def test_surrogates_and_large_bodies(host):
    opened = await host.open()
    headers = {"Authorization": f"Bearer {opened['key']}"}
    url = f"{opened['openai_url']}/chat/completions"
    body = b'{"messages": [{"role": "user", "content": "half \\ud83d of a sign"}]}'
    async with host.http.post(url, data=body, headers=headers) as response:
        assert response.status == 200
    async with host.http.post(url, data=b" " * (2 << 20), headers=headers) as response:
        assert response.status == 413


async def test_keys_and_ids(host):
    opened = await host.open()
    assert (await host.chat({**opened, "key": "wrong"}, USER))[0] == 401
    assert (await host.chat({**opened, "openai_url": opened["openai_url"].replace("00001", "00002")}, USER))[
        0
    ] == 404
    assert (await host.control("GET", "/sessions", key=opened["key"]))[0] == 401, (
        "an agent's key controls nothing"
    )
    for name, folder in (("../x", "trials/x"), ("x", "elsewhere/x"), ("x", "trials/../x"), ("x", "trials")):
        status, body = await host.control(
            "POST", "/sessions", {"id": name, "trial_dir": str(host.folder / folder)}
        )
        assert status == 400, body
    again = await host.open()
    assert again["key"] == opened["key"]


async def test_the_models_are_listed_for_a_sessions_key_only(host):
    opened = await host.open()
    for key, status in ((opened["key"], 200), ("wrong", 401)):
        async with host.http.get(f"{opened['openai_url']}/models", headers={"x-api-key": key}) as response:
            body = await response.json()
            assert response.status == status, body
        if status == 200:
            assert [model["id"] for model in body["data"]] == ["m"] and body["object"] == "list"


@pytest.mark.parametrize(
    ("method", "path", "api"),
    [
        ("POST", "/v1/responses", "openai"),  # OpenAI's newer API
        ("POST", "/v1/completions", "openai"),
        ("POST", "/v1/embeddings", "openai"),
        ("GET", "/v1/chat/completions", "openai"),
        ("POST", "/v1/messages/batches", "anthropic"),
        ("POST", "/", "openai"),
        ("POST", "/v1/%0A" + "x" * 5000, "openai"),
    ],
)
async def test_what_is_not_served_says_what_is(host, method, path, api):
    opened = await host.open()
    url = URL(opened["anthropic_url"] + path, encoded=True)
    async with host.http.request(
        method, url, json={"input": "x"}, headers={"x-api-key": opened["key"]}
    ) as response:
        assert response.status == 404 and response.content_type == "application/json"
        body = await response.json()
    assert (body.get("type") == "error") == (api == "anthropic")
    words = body["error"]["message"]
    assert words.endswith("is not served here: use POST /v1/chat/completions or POST /v1/messages")
    assert len(words) < 200 and "\n" not in words


SESSION = "task-00000001"
UNKEYED = [
    ("/health", "public", "public"),
    ("/%68ealth", "public", "public"),
    *((path, 404, 404) for path in ("/", "/sess", "/v1/models", "/health/", "//health", "/health/sess/x")),
    *((path, 404, 404) for path in ("/sess/", "/sess/other/v1/models", "/sess//v1/models", "/sess/sess/x")),
    *((f"{before}/{SESSION}/v1/models", 404, 404) for before in ("/x", "//sess", "/SESS", "/sess/sess")),
    (f"/sess/{SESSION}%2Fv1/models", 404, 404),
    *(
        (path, 401, SESSION)
        for path in (
            f"/sess/{SESSION}",
            f"/sess/{SESSION}/",
            f"/sess/{SESSION}/v1/models",
            f"/sess/{SESSION}/v1/messages",
            f"/sess/{SESSION}/v1/messages/count_tokens?beta=true",
            f"/sess/{SESSION}/health",
            f"/%73ess/{SESSION}/v1/models",
            f"/%73%65%73%73/{SESSION}/v1/chat/completions",
            "/sess/%74ask-00000001/v1/models",
            f"http://127.0.0.1/sess/{SESSION}/v1/models",
            f"http://127.0.0.1/%73ess/{SESSION}/v1/models",
        )
    ),
]


async def test_below_a_session_nothing_is_public_however_its_path_is_written(host):
    """What the gate calls public counts to no key's share of connections and bodies."""
    opened = await host.open(SESSION)
    gate = AgentRoutes(host.store).gate

    def judged(path: str, headers: dict[str, str]) -> Any:
        caller = gate(SimpleNamespace(rel_url=URL(path, encoded=True), headers=headers))
        if not isinstance(caller, Caller):
            return caller.status
        return caller.key if caller.proven else "public"

    for path, without, with_key in UNKEYED:
        assert judged(path, {}) == judged(path, {"x-api-key": "wrong"}) == without, path
        assert judged(path, {"x-api-key": opened["key"]}) == with_key, path


@pytest.mark.parametrize("written", ["sess", "%73ess"])
async def test_connections_of_a_key_are_counted_however_the_path_is_written(host, written):
    opened = await host.open()
    url = URL(f"{host.address}/{written}/{opened['id']}/v1/models", encoded=True)
    async with host.http.get(url, headers={"x-api-key": opened["key"]}) as response:
        assert response.status == 200
    (connection,) = [each.connection for each in host.agents._known.values()]
    assert connection.key == opened["id"]


async def test_sixteen_replies_of_a_session_are_sampled_at_once_and_further_requests_wait(host, replica):
    opened = await host.open()
    session = host.store.session(opened["id"])
    replica.gate.clear()

    def ask(number: int) -> Any:
        return asyncio.ensure_future(host.chat(opened, {"role": "user", "content": f"question {number}"}))

    asked = [ask(number) for number in range(16)]
    await until(lambda: replica.arrived == 16)
    assert session._in_flight.locked()
    asked.append(ask(16))
    await until(lambda: session.waiting == 17)
    assert replica.arrived == 16
    replica.gate.set()
    assert {(await each)[0] for each in asked} == {200} and replica.arrived == 17


async def test_a_streamed_reply_that_takes_long_shows_signs_of_life_and_errors_later_as_an_event(
    host, replica, monkeypatch
):
    monkeypatch.setattr("liverl.sessions.server.PING_S", 0.02)
    monkeypatch.setattr("liverl.sessions.server.FIRST_PING_S", 0.02)
    opened = await host.open()
    for client_class, path in (
        (openai.AsyncOpenAI, "openai_url"),
        (anthropic.AsyncAnthropic, "anthropic_url"),
    ):
        replica.gate.clear()
        replica.begun.clear()
        client = client_class(base_url=opened[path], api_key=opened["key"], max_retries=0)
        asked = asyncio.ensure_future(first_words(client))
        await replica.begun.wait()
        await asyncio.sleep(0.1)  # several signs of life
        replica.gate.set()
        assert "It says 7." in await asked or "look" in await asked
        await client.close()
    replica.gate.clear()
    replica.failures = [400]
    headers = {"x-api-key": opened["key"]}
    body = {"model": "m", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "other"}]}
    async with host.http.post(
        f"{opened['anthropic_url']}/v1/messages?beta=true", json=body, headers=headers
    ) as response:
        assert response.status == 200
        assert (await response.content.readline()) == b"event: ping\n"
        replica.gate.set()
        rest = (await response.content.read()).decode()
    assert "event: error" in rest and "scripted 400" in rest


async def first_words(client) -> str:
    if isinstance(client, openai.AsyncOpenAI):
        stream = await client.chat.completions.create(model="m", messages=[USER], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    async with client.messages.stream(model="m", max_tokens=90, messages=[USER]) as events:
        return await events.get_final_text()


async def test_a_full_disk_fails_the_call_and_records_nothing(host, replica, monkeypatch):
    opened = await host.open()
    session = host.store.session(opened["id"])
    size = session._journal.path.stat().st_size

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("liverl.util.append.os", SimpleNamespace(**{**vars(os), "write": full}))
    status, body = await host.chat(opened, USER)
    monkeypatch.undo()
    assert status == 500 and "No space left on device" in body["error"]["message"]
    assert session._journal.path.stat().st_size == size and session.rows.segments == []


async def test_only_the_end_of_a_conversation_is_encoded_and_none_of_it_sent_to_be_parsed(host, replica):
    opened = await host.open()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x" * 4000}]
    rendered = []
    for turn in range(6):
        before = replica.rendered
        _, body = await host.chat(opened, *messages)
        rendered.append(replica.rendered - before)
        messages += [body["choices"][0]["message"], {"role": "user", "content": f"more {turn}"}]
    assert max(rendered[2:]) < 1000 < rendered[0]
    assert max(len(json.dumps(body)) for body in replica.parsed) < 500
    assert EOS_ID in replica.replies[0]


@pytest.mark.parametrize(("choice", "parsed"), [(None, "auto"), ("none", "none"), ("auto", "auto")])
async def test_calls_are_parsed_under_the_choice_that_they_were_sampled_under(host, replica, choice, parsed):
    opened = await host.open()
    await host.chat(opened, USER, tools=OPENAI_TOOLS, tool_choice=choice)
    assert replica.parsed[-1]["tool_choice"] == parsed


async def test_a_reply_without_tokens_is_an_empty_message(host, replica):
    engine = host.store.replicas._engines[replica.url].engine
    chat = Chat((Message("user", "hi"),))
    assert await engine.parse(chat, Sampled([], [], "stop")) == Message("assistant")


async def test_a_replica_that_was_lost_is_asked_for_its_context_again(host, replica):
    opened = await host.open()
    engine = host.store.replicas._engines[replica.url].engine
    assert await engine.context() == 20_000
    replica.context = 40
    assert await engine.context() == 20_000
    await replica.stop()
    with pytest.raises(EngineLost):
        await engine.render(Chat((Message("user", "hi"),)))
    await replica.start(int(replica.url.rsplit(":", 1)[1]))
    status, body = await host.chat(opened, {"role": "user", "content": "x" * 200})
    assert status == 400 and "40 maximum" in body["error"]["message"]


async def test_a_reply_that_a_stop_text_ended_is_closed_before_the_next_message(host, replica):
    opened = await host.open()
    other = await host.open("task-00000002")
    _, body = await host.chat(opened, USER, stop=["look"])
    reply = {"role": "assistant", "content": body["choices"][0]["message"]["content"]}
    await host.chat(opened, USER, reply, {"role": "user", "content": "go on"})
    first, second = replica.prompts
    sampled = replica.replies[0]
    assert decode(sampled) == "I look"
    assert second[: len(first) + 7] == [*first, *sampled, EOS_ID]
    (row,) = await host.finish()
    assert row["traj_acc_ids"][: len(second)] == second
    # Other sessions of the replica are not confused.
    _, body = await host.chat(other, USER)
    await host.chat(other, USER, body["choices"][0]["message"], {"role": "user", "content": "go on"})
    assert decode(replica.prompts[-1]).count("<|im_end|>") == 3


async def test_each_turn_in_the_trials_file_says_its_row_and_what_was_counted(host, tmp_path):
    opened = await host.open()
    first = {"role": "user", "content": "look"}
    status, body = await host.chat(opened, first, tools=OPENAI_TOOLS)
    assert status == 200
    await host.chat(
        opened, first, body["choices"][0]["message"], {"role": "user", "content": "on"}, tools=OPENAI_TOOLS
    )
    path = tmp_path / "trials" / "task-00000001" / trial_log.TURNS
    told = [json.loads(line)["session"] for line in path.read_text().splitlines()]
    assert [(one["kind"], one["opens"], one["counters"]["num_calls"]) for one in told] == [
        ("main", True, 1),
        ("main", False, 2),
    ]
    before = read_trajectory(path.parent).session
    assert before.rows == {"main": 1} and not before.ended
    await host.finish()
    after = read_trajectory(path.parent).session
    assert (
        after.ended and after.rows == before.rows and after.sampled == before.sampled and after.faults == ()
    )


async def test_open_sessions_without_a_request_are_named_and_not_all_of_them(host, replica):
    new = [f"new-{n:08}" for n in range(SILENT + 2)]
    for name in new:
        await host.open(name)
    opened = await host.open("begun-00000001")
    assert (await host.chat(opened, {"role": "user", "content": "look"}))[0] == 200
    silent = host.store.facts()["silent"]
    assert len(silent) == SILENT, "the report does not grow with the sessions"
    assert (silent[0]["id"], silent[0]["begun"]) == ("begun-00000001", True)
    assert [one["id"] for one in silent[1:]] == new[: SILENT - 1] and not silent[1]["begun"]
    replica.gate.clear()
    asking = asyncio.ensure_future(host.chat(opened, {"role": "user", "content": "other"}))
    await until(lambda: host.store.waiting)
    assert "begun-00000001" not in [one["id"] for one in host.store.facts()["silent"]], (
        "its reply is being sampled"
    )
    replica.gate.set()
    await asking
    since = host.store.facts()["silent"][0]["since"]
    assert since > silent[0]["since"]
    await host.stop()
    await host.start()
    (again,) = [one for one in host.store.facts()["silent"] if one["id"] == "begun-00000001"]
    assert silent[0]["since"] < again["since"] <= since, "a restart does not make it silent since its opening"


async def test_requests_that_fail_are_counted(host, replica):
    opened = await host.open(max_turns=1)
    first = {"role": "user", "content": "look"}
    assert (await host.chat(opened, first))[0] == 200
    assert (await host.chat(opened, {"role": "user", "content": "look again"}))[0] == 410
    counters = host.store.facts()["counters"]
    assert (counters.num_calls, counters.num_failed, counters.refused_turns) == (1, 1, 1)
