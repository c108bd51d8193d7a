"""Equal requests are several samples, unless one is a retry; limits count what was begun; the trainer decides how
replies are sampled."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest
from kit.lazily import lazily
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text
from kit.waiting import until

from liverl.sessions import trial_log
from liverl.sessions.canonical import read_anthropic, read_openai
from liverl.sessions.sampling import NEUTRAL, Limits, overridden, parameters
from liverl.sessions.session import BESIDE

anthropic, openai = lazily("anthropic"), lazily("openai")
USER = {"role": "user", "content": "hello"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def script(before: str, turn: int) -> str:
    return call_text("f", x=str(turn)) if "call" in before else f"Reply {turn}."


def side(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def post(
    host: SessionHost, opened: dict[str, Any], *messages: dict[str, Any], retry: int | None = None
) -> str:
    """One request as an SDK sends it: the id of its reply."""
    headers = {"Authorization": f"Bearer {opened['key']}"}
    if retry is not None:
        headers["x-stainless-retry-count"] = str(retry)
    body = {"model": "m", "messages": list(messages)}
    async with host.http.post(
        f"{opened['openai_url']}/chat/completions", json=body, headers=headers
    ) as response:
        assert response.status == 200, await response.text()
        return str((await response.json())["id"])


async def running(host: SessionHost, opened: dict[str, Any], count: int) -> None:
    session = host.store.session(opened["id"])
    await until(lambda: session.waiting >= count)


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_asks_k_times_gets_k_samples(
    host: SessionHost, replica: TokenReplica, api: str, stream: bool
) -> None:
    opened = await host.open()
    replica.gate.clear()

    async def ask_openai() -> str:
        async with openai.AsyncOpenAI(base_url=opened["openai_url"], api_key=opened["key"]) as client:
            if not stream:
                return (await client.chat.completions.create(model="m", messages=[USER])).id
            chunks = await client.chat.completions.create(model="m", messages=[USER], stream=True)
            return next(iter([chunk.id async for chunk in chunks]))

    async def ask_anthropic() -> str:
        async with anthropic.AsyncAnthropic(
            base_url=opened["anthropic_url"], api_key=opened["key"]
        ) as client:
            asked: Any = {"model": "m", "max_tokens": 99, "messages": [USER]}
            if not stream:
                return (await client.messages.create(**asked)).id
            async with client.messages.stream(**asked) as events:
                return (await events.get_final_message()).id

    ask = ask_openai if api == "openai" else ask_anthropic
    asked = [asyncio.ensure_future(ask()) for _ in range(4)]
    await running(host, opened, 4)
    replica.gate.set()
    assert len(set(await asyncio.gather(*asked))) == 4 and len(replica.replies) == 4
    _, ended = await host.control("POST", f"/sessions/{opened['id']}/finish")
    samples = sum(map(len, replica.replies))
    assert (
        sum(sum(row["traj_response_mask"]) for row in ended["rows"]) + ended["not_trained"]["aside"]
        == samples
    )


async def test_a_retry_joins_the_running_sample(host: SessionHost, replica: TokenReplica) -> None:
    opened = await host.open()
    replica.gate.clear()
    asked = [asyncio.ensure_future(post(host, opened, USER, retry=n)) for n in (0, 1, 2)]
    await until(lambda: host.store.session(opened["id"]).counters.num_joined == 2)
    replica.gate.set()
    assert len(set(await asyncio.gather(*asked))) == 1 and len(replica.replies) == 1


@pytest.mark.parametrize("recorded", [False, True])
async def test_a_client_that_was_cut_off_gets_its_sample_without_saying_that_it_retries(
    host: SessionHost, replica: TokenReplica, recorded: bool
) -> None:
    opened = await host.open()
    replica.gate.clear()
    async with aiohttp.ClientSession() as another:
        url = f"{opened['openai_url']}/chat/completions"
        headers = {"Authorization": f"Bearer {opened['key']}"}
        body = {"model": "m", "messages": [USER]}
        first = asyncio.ensure_future(another.post(url, json=body, headers=headers))
        await running(host, opened, 1)
        first.cancel()
    if recorded:
        replica.gate.set()
        await host.store.session(opened["id"]).settle()
    again = asyncio.ensure_future(post(host, opened, USER))
    await until(lambda: host.store.session(opened["id"]).counters.num_joined == 1)
    replica.gate.set()
    await again
    assert len(replica.replies) == 1


async def test_a_turn_that_could_not_be_told_is_told_later_and_not_sampled_again(
    host: SessionHost, replica: TokenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real, calls = await host.open(), trial_log.append_turn, []

    def once(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return real(*args)

    monkeypatch.setattr(trial_log, "append_turn", once)
    assert [(await host.chat(opened, USER))[0] for _ in range(2)] == [500, 200]
    assert len(replica.replies) == 1
    lines = (host.folder / "trials" / opened["id"] / trial_log.TURNS).read_text().splitlines()
    assert len(lines) == 1


async def test_turns_that_were_never_told_are_written_at_the_end(
    host: SessionHost, replica: TokenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await host.open()

    def full(*_args: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trial_log, "append_turn", full)
    assert (await host.chat(opened, USER))[0] == 500
    await host.stop()
    await host.start()  # only the journal is left of the request
    monkeypatch.undo()
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == len(replica.replies[0])
    (line,) = (host.folder / "trials" / opened["id"] / trial_log.TURNS).read_text().splitlines()
    assert json.loads(line)["response_body"]["choices"][0]["message"]["content"] == "Reply 0."


# -- limits


@pytest.mark.parametrize(("turns", "asked"), [(1, 5), (2, 5), (5, 5), (1, 1)])
async def test_turns_are_counted_when_they_begin(
    host: SessionHost, replica: TokenReplica, turns: int, asked: int
) -> None:
    opened = await host.open(max_turns=turns)
    replica.gate.clear()
    tasks = [asyncio.ensure_future(host.chat(opened, side(f"q{n}"))) for n in range(asked)]
    await running(host, opened, min(turns, asked))
    replica.gate.set()
    statuses = sorted(status for status, _ in await asyncio.gather(*tasks))
    assert statuses == [200] * min(turns, asked) + [410] * max(0, asked - turns)
    assert host.store.session(opened["id"]).counters.refused_turns == max(0, asked - turns)


async def test_candidates_for_one_turn_are_one_turn(host: SessionHost, replica: TokenReplica) -> None:
    opened = await host.open(max_turns=2)
    replica.gate.clear()
    tasks = [asyncio.ensure_future(host.chat(opened, USER)) for _ in range(4)]
    await running(host, opened, 4)
    replica.gate.set()
    bodies = [body for status, body in await asyncio.gather(*tasks) if status == 200]
    assert len(bodies) == 4
    chosen = bodies[2]["choices"][0]["message"]
    assert (await host.chat(opened, USER, chosen, side("on")))[0] == 200
    assert (await host.chat(opened, USER, chosen, side("on"), chosen, side("on")))[0] == 410


async def test_side_questions_are_no_turns(host: SessionHost, replica: TokenReplica) -> None:
    opened = await host.open(max_turns=2, max_consecutive_no_tool=3)
    first = (await host.chat(opened, USER))[1]["choices"][0]["message"]
    for number in range(3):
        assert (await host.chat(opened, side(f"is it right? {number}")))[0] == 200
    assert (await host.chat(opened, USER, first, side("on")))[0] == 200
    _, ended = await host.control("POST", f"/sessions/{opened['id']}/finish")
    assert len(ended["rows"]) == 1 and ended["counters"]["asides"] == 3


@pytest.mark.parametrize("same", [True, False])
async def test_an_agent_that_only_asks_beside_its_conversation_ends(
    host: SessionHost, replica: TokenReplica, same: bool
) -> None:
    opened = await host.open(max_turns=2)
    await host.chat(opened, USER)
    statuses = [
        (await host.chat(opened, USER if same else side(f"is it {n}?")))[0] for n in range(2 * BESIDE + 3)
    ]
    assert statuses == [200] * (2 * BESIDE - 1) + [410] * 4


async def test_a_limit_is_counted_and_the_count_survives_a_restart(
    host: SessionHost, replica: TokenReplica
) -> None:
    opened = await host.open(max_turns=1)
    first = (await host.chat(opened, USER))[1]["choices"][0]["message"]
    assert (await host.chat(opened, USER, first, side("on")))[0] == 410
    await host.stop()
    await host.start()
    assert host.store.session(opened["id"]).counters.refused_turns == 1


async def test_sub_agents_do_not_end_the_main_conversation_by_replies_without_a_call(
    host: SessionHost, replica: TokenReplica
) -> None:
    opened = await host.open(max_consecutive_no_tool=2)
    asking = {"role": "user", "content": "call it"}
    reply = (await host.chat(opened, asking, tools=TOOLS))[1]["choices"][0]["message"]
    headers = {"Authorization": f"Bearer {opened['key']}", "x-claude-code-agent-id": "a1"}
    for number in range(3):
        body = {"model": "m", "messages": [side(f"look {number}")]}
        async with host.http.post(
            f"{opened['openai_url']}/chat/completions", json=body, headers=headers
        ) as response:
            assert response.status == 200
    result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "ok"}
    assert (await host.chat(opened, asking, reply, result, tools=TOOLS))[0] == 200


async def test_nothing_is_sampled_after_the_deadline(host: SessionHost, replica: TokenReplica) -> None:
    opened = await host.open(deadline=time.time() - 1)
    status, body = await host.chat(opened, USER)
    assert status == 410 and "is over" in body["error"]["message"]
    assert await host.finish() == [] and not replica.prompts


# -- whose sampling parameters count

VALUES: dict[str, Any] = {
    "temperature": 0.2,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "presence_penalty": 1.0,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.3,
    "seed": 7,
}
TRAINERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "repetition_penalty": 1.1},
]


@pytest.mark.parametrize("trainers", TRAINERS, ids=["as verl's defaults", "set"])
@pytest.mark.parametrize("name", [*VALUES, "extra_body"])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_in_a_trial_the_trainer_decides_how_replies_are_sampled(
    host: SessionHost, replica: TokenReplica, api: str, name: str, trainers: dict[str, Any]
) -> None:
    opened = await host.open(sampling=trainers)
    asked = {"extra_body": {"top_p": 0.1, "seed": 3}} if name == "extra_body" else {name: VALUES[name]}
    headers = {"x-api-key": opened["key"]}
    path = "/v1/chat/completions" if api == "openai" else "/v1/messages"
    body = {"model": "m", "max_tokens": 50, "messages": [USER], **asked}
    async with host.http.post(opened["anthropic_url"] + path, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
    (got,) = replica.sampling
    chosen = {key: value for key, value in got.items() if key not in ("max_tokens", "logprobs")}
    assert chosen == {**NEUTRAL, **trainers}, "all of them explicitly, and no seed"
    _, ended = await host.control("POST", f"/sessions/{opened['id']}/finish")
    expected = {"top_p", "seed"} if name == "extra_body" else {name}
    assert ended["counters"]["overridden"] == dict.fromkeys(expected, 1), "once for the trial"


@pytest.mark.parametrize("name", VALUES)
async def test_without_a_trainer_the_client_decides(
    host: SessionHost, replica: TokenReplica, name: str
) -> None:
    opened = await host.open(decides="client")
    assert (await host.chat(opened, USER, **{name: VALUES[name]}))[0] == 200
    (got,) = replica.sampling
    assert {key: value for key, value in got.items() if key not in ("max_tokens", "logprobs")} == {
        name: VALUES[name]
    }
    assert host.store.session(opened["id"]).counters.overridden == {}


@pytest.mark.parametrize("read", [read_openai, read_anthropic])
@pytest.mark.parametrize("value", [-1, 0])
def test_no_limit_on_top_k_has_two_spellings(read: Any, value: int) -> None:
    chat = read({"messages": [USER], "max_tokens": 5, "top_k": value})
    assert overridden(chat, Limits()) == {} and parameters(chat, Limits(), 9)["top_k"] == -1


def test_a_seed_of_the_trainers_own_is_not_sent_either() -> None:
    chat = read_openai({"messages": [USER]})
    assert "seed" not in parameters(chat, Limits(sampling={"seed": 3}), 9)
