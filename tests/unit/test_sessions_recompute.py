"""A conversation that is compacted, through the servers of sessions, with ``session_proxy.rewrite: recompute``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.session_host import SessionHost
from kit.token_replica import OPENING, TokenReplica, call_text
from kit.waiting import until

from liverl.agents.tool_calls import render_qwen3_coder
from liverl.embedded.engine.chat import prompt_ids
from liverl.embedded.tokenizer import EOS_ID
from liverl.sessions.engine import EngineLost
from liverl.sessions.kept import Kept
from liverl.sessions.recompute import Recomputer
from liverl.sessions.segments import Rewrite
from liverl.util import clocks

TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Look."}
SUMMARY = {"role": "user", "content": "Look. So far: two files were read."}
GENERATE = "/inference/v1/generate"


def script(prompt: str, turn: int) -> str:
    return f"{prompt.count('tool_response')} " + call_text("read_file", path=f"{turn}.txt")


@pytest.fixture
async def host(tmp_path: Path, replica: TokenReplica) -> AsyncIterator[SessionHost]:
    sessions = SessionHost(tmp_path)
    sessions.urls, sessions.rewrite = [replica.url], "recompute"
    await sessions.start()
    yield sessions
    await sessions.stop()


async def say(host: SessionHost, opened: dict[str, Any], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """A turn: the reply and what its tool says."""
    status, body = await host.chat(opened, *messages, tools=[TOOL])
    assert status == 200, body
    reply = body["choices"][0]["message"]
    return [reply, {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}]


async def compacted(host: SessionHost, opened: dict[str, Any]) -> list[dict[str, Any]]:
    """Three turns; then the first one is replaced by a summary, and two more follow. The last history."""
    history = [USER]
    for _ in range(3):
        history += await say(host, opened, *history)
    history = [SUMMARY, *history[3:]]
    for _ in range(2):
        history += await say(host, opened, *history)
    return history


def rendered(messages: list[dict[str, Any]], *, reply: bool) -> list[int]:
    ids = prompt_ids(messages, [TOOL], render_qwen3_coder)
    return ids if reply else ids[: -len(OPENING)]


def places(history: list[dict[str, Any]], *numbers: int) -> list[tuple[int, int]]:
    """Where the replies at these indices are in the prompt, with the token that ends them."""
    found = []
    for number in numbers:
        begin = len(rendered(history[:number], reply=True))
        whole = rendered(history[: number + 1], reply=False)
        found.append((begin, len(whole) - whole[::-1].index(EOS_ID)))
    return found


def counted(host: SessionHost, opened: dict[str, Any]) -> tuple[int, int, int]:
    counters = host.store.facts()["counters"]
    return counters.recomputed, counters.recompute_unplaced, counters.recompute_failed


async def test_replies_that_a_compacted_history_keeps_are_trained_in_one_row(host, replica):
    opened = await host.open()
    history = await compacted(host, opened)
    replica.version = 8
    (row,) = await host.finish()
    assert row["kind"] == "rewrite"
    prompt = rendered(history[:5], reply=True)
    assert replica.scored == [prompt] == [row["traj_acc_ids"][: len(prompt)]]
    (first, end), (second, last) = places(history, 1, 3)
    start = row["initial_prompt_token_len"]
    assert start == first
    mask = row["traj_response_mask"]
    assert len(mask) == len(row["traj_response_logprobs"]) == len(row["traj_acc_ids"]) - start
    kept = [*range(first, end), *range(second, last)]
    assert [start + at for at, bit in enumerate(mask) if bit and start + at < len(prompt)] == kept
    for at in kept:
        assert row["traj_response_logprobs"][at - start] == pytest.approx(-at / 1000)
    behind = [token for token, bit in zip(row["traj_acc_ids"][start:], mask, strict=True) if bit][len(kept) :]
    assert behind == [*replica.replies[3], *replica.replies[4]]
    assert row["policy_versions"] == [[8, len(kept)], [1, len(behind)]]
    assert counted(host, opened) == (2, 0, 0)


async def test_a_conversation_that_is_not_changed_asks_for_nothing(host, replica):
    opened = await host.open()
    history = [USER]
    for _ in range(3):
        history += await say(host, opened, *history)
    rendered_before = replica.rendered
    (row,) = await host.finish()
    assert row["kind"] == "main" and sum(row["traj_response_mask"]) == sum(map(len, replica.replies))
    assert replica.scored == [] and replica.rendered == rendered_before
    assert counted(host, opened) == (0, 0, 0)


@pytest.mark.parametrize("rewrite", ["split", "mask"])
async def test_other_modes_look_for_no_earlier_replies(tmp_path, replica, rewrite):
    host = SessionHost(tmp_path)
    host.urls, host.rewrite = [replica.url], rewrite
    await host.start()
    opened = await host.open()
    await compacted(host, opened)
    assert host.store.session(opened["id"]).rows.segments[-1].kept == Kept()
    rows = await host.finish()
    await host.stop()
    assert [row["kind"] for row in rows] == (["main"] if rewrite == "split" else []) + ["rewrite"]
    assert replica.scored == []
    assert sum(rows[-1]["traj_response_mask"]) == sum(map(len, replica.replies[3:]))


@pytest.mark.parametrize(("rewrite", "kept"), [("recompute", 1), ("split", 0), ("mask", 0)])
async def test_the_later_of_two_requests_at_once_keeps_the_reply_before_both_where_that_is_recomputed(
    tmp_path: Path, replica: TokenReplica, rewrite: Rewrite, kept: int
) -> None:
    host = SessionHost(tmp_path)
    host.urls, host.rewrite = [replica.url], rewrite
    await host.start()
    opened = await host.open()
    history = [USER, *await say(host, opened, USER)]
    replica.gate.clear()
    both = [
        asyncio.ensure_future(say(host, opened, *history[:-1], {**history[-1], "content": text}))
        for text in ("one", "other")
    ]
    await until(lambda: replica.arrived == 3)
    replica.gate.set()
    await asyncio.gather(*both)
    first, second = host.store.session(opened["id"]).rows.segments
    assert (first.kept, second.kind) == (Kept(), "rewrite")
    assert [span.size for span in second.kept.spans] == [len(replica.replies[0])] * kept
    await host.finish()
    assert counted(host, opened) == (kept, 0, 0) and len(replica.scored) == kept
    await host.stop()


async def test_earlier_replies_are_looked_for_once_per_changed_history(host, monkeypatch):
    find, prompts = Recomputer.find, []

    async def counting(self, engine, chat, prompt):
        prompts.append(prompt)
        return await find(self, engine, chat, prompt)

    monkeypatch.setattr(Recomputer, "find", counting)
    opened = await host.open()
    await compacted(host, opened)
    await say(host, opened, {"role": "system", "content": "You search."}, USER)
    assert len(prompts) == 1


async def test_sub_agents_keep_their_rows(host, replica):
    opened = await host.open()
    other = {"role": "system", "content": "You search."}
    await say(host, opened, USER)
    await say(host, opened, other, USER)
    await say(host, opened, SUMMARY)
    rows = await host.finish()
    assert [row["kind"] for row in rows] == ["sub", "rewrite"]
    assert [sum(row["traj_response_mask"]) for row in rows] == [len(reply) for reply in replica.replies[1:]]


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"error": {"message": "out of memory"}}),
        (400, {"error": {"message": "prompt_logprobs is not supported"}}),
        (200, {"choices": []}),
        (200, {"choices": [{"token_ids": [1]}], "prompt_logprobs": None}),
        (200, {"choices": [{"token_ids": [1]}], "prompt_logprobs": [None, {"1": {"logprob": -1.0}}]}),
    ],
)
async def test_without_log_probabilities_earlier_replies_stay_masked(host, replica, caplog, answer):
    opened = await host.open()
    await compacted(host, opened)
    replica.refusals[GENERATE] = answer
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == sum(map(len, replica.replies[3:]))
    assert row["initial_prompt_token_len"] == len(replica.prompts[3])
    assert counted(host, opened) == (0, 0, 2)
    assert "2 earlier replies stay masked" in caplog.text
    (second,) = await host.finish()
    assert second == row


@pytest.mark.parametrize("wrong", ["short", "long", "null", "other"])
async def test_log_probabilities_of_other_ids_are_none(host, replica, monkeypatch, wrong):
    score = replica._score

    def bent(prompt, parameters):
        ids = {"short": prompt[:-1], "long": [*prompt, 5], "other": [*prompt[:-1], prompt[-1] + 1]}
        response = score(ids.get(wrong, prompt), parameters)
        if wrong == "null":
            response.text = response.text.replace(response.text[response.text.rindex('{"') :], "null]}")
        return response

    monkeypatch.setattr(replica, "_score", bent)
    engine = await host.replicas.pick("s", (), 1.0)
    with pytest.raises(EngineLost):
        await engine.score([1, 2, 3])


async def test_the_first_id_has_no_log_probability(host, replica):
    engine = await host.replicas.pick("s", (), 1.0)
    scored = await engine.score([5, 5, 6])
    assert (scored.logprobs, scored.version) == ([-0.001, -0.002], 1)
    assert (await engine.score([5])).logprobs == []


async def test_a_trial_whose_time_is_over_is_not_delayed(host, replica, monkeypatch):
    opened = await host.open(seconds=3600)
    await compacted(host, opened)
    later = clocks.ran() + 3600
    monkeypatch.setattr("liverl.sessions.time_limit.clocks", SimpleNamespace(ran=lambda: later))
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == sum(map(len, replica.replies[3:]))
    assert replica.scored == [] and counted(host, opened) == (0, 0, 2)


async def test_what_the_template_writes_otherwise_is_masked_and_counted(host, replica):
    """The template changes earlier turns of the longer conversation only, so that no shorter one begins it."""
    opened = await host.open()
    history = [USER]
    for _ in range(3):
        history += await say(host, opened, *history)
    replica.rewrites = True
    await say(host, opened, SUMMARY, *history[3:])
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == len(replica.replies[3])
    assert replica.scored == [] and counted(host, opened) == (0, 2, 0)


async def test_two_ends_at_once_ask_once_and_no_request_comes_between(host, replica):
    opened = await host.open()
    history = await compacted(host, opened)
    replica.gate.clear()
    replica.begun.clear()
    late = asyncio.ensure_future(host.chat(opened, *history, tools=[TOOL]))
    await replica.begun.wait()
    replica.begun.clear()
    gone = asyncio.ensure_future(host.store.finish(opened["id"]))
    ends = [asyncio.ensure_future(host.finish()) for _ in range(2)]
    await replica.begun.wait()
    gone.cancel()
    assert (await host.chat(opened, USER))[0] == 410
    assert (await late)[0] == 410
    replica.gate.set()
    one, other = await asyncio.gather(*ends)
    assert one == other and len(replica.scored) == 1
    assert counted(host, opened) == (2, 0, 0)


async def test_places_survive_a_restart(host, replica):
    opened = await host.open()
    await compacted(host, opened)
    await host.stop()
    await host.start()
    (row,) = await host.finish()
    assert counted(host, opened) == (2, 0, 0)
    assert len(replica.scored) == 1 and row["initial_prompt_token_len"] < len(replica.scored[0])


async def test_a_restart_while_a_session_ends_loses_nothing(host, replica):
    opened = await host.open()
    await compacted(host, opened)
    replica.gate.clear()
    replica.begun.clear()
    end = asyncio.ensure_future(host.store.finish(opened["id"]))
    await replica.begun.wait()
    await host.stop()
    with pytest.raises(asyncio.CancelledError):
        await end
    replica.gate.set()
    await host.start()
    await host.finish()
    assert counted(host, opened) == (2, 0, 0)


async def test_places_are_looked_for_while_the_reply_is_sampled(host, replica):
    opened = await host.open()
    history = [USER]
    for _ in range(2):
        history += await say(host, opened, *history)
    replica.gate.clear()
    before = replica.rendered
    asked = asyncio.ensure_future(say(host, opened, SUMMARY, *history[1:]))
    ids = [rendered([SUMMARY, *history[1:number]], reply=True) for number in (5, 1, 3)]
    ids += [rendered([SUMMARY, *history[1:number]], reply=False) for number in (2, 4)]
    wanted = before + sum(map(len, ids))
    for _ in range(1000):
        if replica.rendered >= wanted:
            break
        await asyncio.sleep(0.01)
    assert replica.rendered >= wanted and not asked.done()
    replica.gate.set()
    await asked
    await host.finish()
    assert counted(host, opened) == (2, 0, 0)
