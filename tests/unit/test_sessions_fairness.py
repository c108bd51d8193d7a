"""One agent that asks for more than its share: in requests at once, in rows, in letters."""

from __future__ import annotations

import asyncio
import time

import pytest
from kit.waiting import until

from liverl.sessions.messages import Chat, Message
from liverl.sessions.result import MANY_ROWS
from liverl.sessions.sampling import OVERFLOW, Overflow, require_short
from liverl.util.http_limits import HTTP

FEW = 3


def script(_prompt: str, turn: int) -> str:
    return f"Reply {turn}."


def different(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"question {number}"}]


@pytest.fixture
def greedy(host):
    host.settings = {"in_flight": FEW, "most_rows": FEW, "asides": "train"}
    return host


@pytest.fixture
async def small(greedy, replica):
    await greedy.stop()
    await greedy.start()
    return greedy


async def test_an_agent_that_asks_often_at_once_has_its_share_of_the_replicas(small, replica) -> None:
    one, other = await small.open("task-00000001"), await small.open("task-00000002")
    replica.gate.clear()
    many = [asyncio.ensure_future(small.chat(one, *different(n))) for n in range(20)]
    await until(lambda: len(replica.prompts) >= FEW or replica.begun.is_set())
    await until(lambda: small.store.waiting == 20)
    in_flight = asyncio.ensure_future(small.chat(other, *different(0)))
    await until(lambda: small.store.waiting == 21)
    session = small.store.session("task-00000001")
    assert session._in_flight.locked()
    replica.gate.set()
    status, _ = await in_flight
    assert status == 200
    assert {(await each)[0] for each in many} == {200}, "nobody is refused: SDKs give up after two"


async def test_never_more_samples_of_one_session_are_in_flight(small, replica, monkeypatch) -> None:
    opened = await small.open()
    now, most = 0, 0
    session = small.store.session(opened["id"])
    draft = session._drafter.draft

    async def counted(*args):
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await draft(*args)
        finally:
            now -= 1

    monkeypatch.setattr(session._drafter, "draft", counted)
    answers = await asyncio.gather(*(small.chat(opened, *different(n)) for n in range(20)))
    assert {status for status, _ in answers} == {200} and most == FEW


async def test_a_request_waits_until_its_trials_deadline_and_no_longer(small, replica) -> None:
    opened = await small.open(deadline=time.time() + 1.5)
    replica.gate.clear()
    answers = await asyncio.gather(*(small.chat(opened, *different(n)) for n in range(FEW + 2)))
    assert {status for status, _ in answers} == {410}
    replica.gate.set()


async def test_what_nobody_waits_for_any_more_is_not_sampled(small, replica) -> None:
    opened = await small.open()
    replica.gate.clear()
    kept = [asyncio.ensure_future(small.chat(opened, *different(n))) for n in range(FEW)]
    await until(lambda: small.store.waiting == FEW)
    left = [asyncio.ensure_future(small.chat(opened, *different(100 + n))) for n in range(5)]
    await until(lambda: small.store.waiting == FEW + 5)
    for each in left:
        each.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    session = small.store.session(opened["id"])
    await until(lambda: sum(s.abandoned for every in session._samples._samples.values() for s in every) == 5)
    replica.gate.set()
    await asyncio.gather(*kept)
    await session.settle()
    assert len(replica.replies) == FEW


async def test_rows_beyond_the_most_are_not_trained_and_counted(small, replica) -> None:
    opened = await small.open()
    for number in range(6):
        assert (await small.chat(opened, *different(number)))[0] == 200
    session = small.store.session(opened["id"])
    every = session.rows.rows(asides="train")
    assert len(every) == 6
    status, ended = await small.control("POST", f"/sessions/{opened['id']}/finish")
    assert status == 200 and len(ended["rows"]) == FEW
    assert ended["not_trained"][MANY_ROWS] == sum(sum(row.traj_response_mask) for row in every[:-FEW])
    assert ended["rows"][-1]["traj_acc_ids"] == every[-1].traj_acc_ids, "the newest of the conversation"
    again = await small.control("POST", f"/sessions/{opened['id']}/finish")
    assert again[1]["not_trained"] == ended["not_trained"]


async def test_a_prompt_that_cannot_fit_is_refused_before_it_is_rendered(host, replica) -> None:
    host.body_limit = 16 << 20
    await host.stop()
    await host.start()
    opened = await host.open()
    before = replica.rendered
    huge = {"role": "user", "content": "word " * 3_000_000}
    status, body = await host.chat(opened, huge)
    assert status == 400 and replica.rendered == before
    words = body["error"]["message"]
    assert OVERFLOW in words and "prompt is too long: 468750 tokens > 20000 maximum" in words
    url, key = f"{host.address}/sess/{opened['id']}/v1/messages/count_tokens", opened["key"]
    asked = {"model": "m", "messages": [huge]}
    async with host.http.post(url, json=asked, headers={"x-api-key": key}) as answer:
        assert answer.status == 400 and "too long" in await answer.text()
    assert (await host.finish()) == [] and replica.rendered == before


@pytest.mark.parametrize("where", ["text", "reasoning", "tools"])
def test_the_letters_of_all_that_is_rendered_count(where: str) -> None:
    def chat(letters: int) -> Chat:
        many = "x" * letters
        message = Message("assistant", many if where == "text" else "", many if where == "reasoning" else "")
        tools = ({"type": "function", "function": {"name": "f", "description": many}},)
        return Chat((message,), tools if where == "tools" else ())

    require_short(chat(90 * HTTP.letters_per_token), 100)
    with pytest.raises(Overflow, match="too long"):
        require_short(chat(102 * HTTP.letters_per_token), 100)
