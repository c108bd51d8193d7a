"""Which requests wait while a replica's KV cache is nearly full: the rules, and sessions that wait by them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.engines import ENGINES
from liverl.sessions.admission import Admission, KvCache, QueueFull, Rules, SampleRequest
from liverl.sessions.kv_cache import CONFIG, USAGE, read_kv_cache
from liverl.sessions.replica_file import Replica
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.scheduler import Scheduler

RULES = Rules(high_watermark=0.85, hit_threshold=0.8, idle_grace=60)
FULL, FREE = KvCache(0.9, 1000), KvCache(0.1, 1000)
USER = {"role": "user", "content": "What does the file say?"}
MORE = {"role": "user", "content": "go on"}


def script(_prompt: str, turn: int) -> str:
    return f"Reply {turn}."


def full(admission: Admission, cache: KvCache = FULL) -> SampleRequest:
    """One request in flight above the watermark."""
    admission.read(cache, 0)
    first = SampleRequest("first", 0, 10)
    assert admission.ask(first, 0)
    return first


# -- the rules


def test_below_the_watermark_and_without_a_reading_all_pass():
    for cache in (None, KvCache(0.849, 1000)):
        admission = Admission(RULES, 0)
        admission.read(cache, 0)
        assert all(admission.ask(SampleRequest(str(n), 0, 0), 0) for n in range(50))


def test_at_the_watermark_a_new_session_waits_and_the_queue_has_an_end():
    admission = Admission(RULES, 2)
    full(admission, KvCache(0.85, 1000))
    assert not admission.ask(SampleRequest("a", 0, 1), 0) and not admission.ask(SampleRequest("b", 0, 1), 0)
    with pytest.raises(QueueFull):
        admission.ask(SampleRequest("c", 0, 1), 0)
    assert admission.waiting == 2


def test_what_was_admitted_since_the_reading_counts_as_in_use():
    admission = Admission(RULES, 9)
    admission.read(KvCache(0.5, 1000), 0)
    assert admission.ask(SampleRequest("a", 0, 349), 0), "0.5 + 0.349 < 0.85"
    assert admission.ask(SampleRequest("b", 0, 1), 0)
    assert not admission.ask(SampleRequest("c", 0, 1), 0)
    admission.read(KvCache(0.84, 1000), 5)
    assert [each.session for each in admission.admit(5)] == ["c"]


def test_a_queue_is_not_overtaken_when_there_is_room_again():
    admission = Admission(RULES, 9)
    full(admission)
    waiting = [SampleRequest(name, 0, 1) for name in "abc"]
    assert not any(admission.ask(each, 0) for each in waiting)
    admission.read(FREE, 5)
    late = SampleRequest("late", 0, 1)
    assert not admission.ask(late, 5)
    assert admission.admit(5) == [*waiting, late]


def test_a_resident_prefix_passes_until_it_is_evicted_or_too_small_a_part():
    admission = Admission(RULES, 9)
    admission.read(FREE, 0)
    turn = SampleRequest("a", 0, 100)
    admission.ask(turn, 0)
    admission.release(turn, 0)
    full(admission)
    assert admission.ask(SampleRequest("a", 80, 100), 1), "80 % are in the cache"
    for prefix, tokens, written in ((79, 100, 0), (80, 100, 921), (0, 100, 0)):
        admission = Admission(RULES, 9)
        admission.read(FREE, 0)
        for name, size in (("a", 100), ("b", written)):
            turn = SampleRequest(name, 0, size)
            admission.ask(turn, 0)
            admission.release(turn, 0)
        full(admission)
        assert not admission.ask(SampleRequest("a", prefix, tokens), 1), (prefix, tokens, written)


def test_where_the_capacity_is_unknown_only_sessions_without_a_prefix_wait():
    admission = Admission(RULES, 9)
    turn = SampleRequest("a", 0, 100)
    admission.ask(turn, 0)
    admission.release(turn, 0)
    full(admission, KvCache(0.9))
    assert admission.ask(SampleRequest("a", 10, 100), 1)
    assert not admission.ask(SampleRequest("b", 10, 100), 1), "this replica never saw it"


@pytest.mark.parametrize(("usage", "seconds", "passes"), [(0.9, 59, True), (0.9, 60, False), (0.1, 1, False)])
def test_a_session_keeps_its_place_for_a_while_if_it_was_admitted_above_the_watermark(usage, seconds, passes):
    admission = Admission(RULES, 9)
    admission.read(KvCache(usage, 1000), 0)
    turn = SampleRequest("a", 0, 100)
    admission.ask(turn, 0)
    admission.release(turn, 0)
    full(admission)
    assert admission.ask(SampleRequest("a", 0, 100), seconds) is passes
    admission.forget("a")
    assert "a" not in admission._reserved and "a" not in admission._left_at


@pytest.mark.parametrize("cache", [FREE, FULL])
@pytest.mark.parametrize("order", ["forget first", "release first", "forget between"])
@pytest.mark.parametrize("waits", [False, True])
def test_nothing_is_remembered_of_a_session_that_has_ended(cache: KvCache, order: str, waits: bool) -> None:
    """Whether its requests were released before, and whether they had been admitted."""
    admission = Admission(RULES, 9)
    first = full(admission) if waits else None
    if not waits:
        admission.read(cache, 0)
    requests = [SampleRequest("a", 0, 100), SampleRequest("a", 50, 100)]
    assert [admission.ask(each, 0) for each in requests] == [not waits, not waits]
    steps = [lambda each=each: admission.release(each, 1) for each in requests]
    steps.insert(
        {"forget first": 0, "release first": 2, "forget between": 1}[order], lambda: admission.forget("a")
    )
    for step in steps:
        step()
    if first is not None:
        admission.release(first, 2)
        admission.forget("first")
    assert not admission.known


def test_all_requests_of_a_session_follow_its_first_one():
    admission = Admission(RULES, 9)
    first = full(admission)
    a, b, again = SampleRequest("a", 0, 1), SampleRequest("b", 0, 1), SampleRequest("a", 0, 1)
    assert not any(admission.ask(each, 0) for each in (a, b, again))
    assert admission.admit(1) == []
    admission.release(first, 2)
    assert admission.admit(2) == [a, again], "nothing else is in flight, so the first one passes"
    admission.release(a, 3)
    assert admission.admit(3) == []
    admission.release(again, 4)
    assert admission.admit(4) == [b]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("abcdef"), st.integers(0, 100)),
        st.tuples(st.just("release"), st.integers(0, 20), st.none()),
        st.tuples(st.just("leave"), st.integers(0, 20), st.none()),
        st.tuples(st.just("read"), st.sampled_from([0.0, 0.84, 0.85, 1.0, None]), st.none()),
        st.tuples(st.just("forget"), st.sampled_from("abcdef"), st.none()),
    ),
    max_size=80,
)


@given(steps=STEPS, most=st.integers(0, 4))
def test_whatever_happens_nobody_is_overtaken_blocked_or_forgotten(steps, most):
    admission = Admission(RULES, most)
    queue: list[SampleRequest] = []
    flying: list[SampleRequest] = []
    for now, (kind, what, prefix) in enumerate(steps):
        if kind == "ask":
            request = SampleRequest(what, prefix, 100)
            in_flight = any(each.session == what for each in flying)
            try:
                passed = admission.ask(request, now)
            except QueueFull:
                assert len(queue) == most and not in_flight
                continue
            assert passed or not in_flight, "a session with a reply in flight is never blocked"
            (flying if passed else queue).append(request)
        elif kind == "release" and flying:
            admission.release(flying.pop(what % len(flying)), now)
        elif kind == "leave" and queue:
            admission.release(queue.pop(what % len(queue)), now)
        elif kind == "read":
            admission.read(None if what is None else KvCache(what, 1000), now)
        elif kind == "forget":
            admission.forget(what)
        admitted = admission.admit(now)
        sessions = {each.session for each in (*flying, *admitted)}
        for request in admitted:
            queue.remove(request)
        flying += admitted
        assert not any(each.session in sessions for each in queue)
        assert flying or not queue, "the queue moves although nothing is read"
        assert admission.waiting == len(queue) <= most
    while queue:  # no starvation: replies end, and then everyone has had a turn, in the order of the queue
        if not flying:
            raise AssertionError("requests wait for nothing")
        admission.release(flying.pop(), 1000)
        head = queue[0]
        admitted = admission.admit(1000)
        assert not admitted or admitted[0] is head or any(each in queue for each in admitted)
        for request in admitted:
            queue.remove(request)
        flying += admitted


# -- the reading


def test_the_names_of_the_metrics_are_those_of_the_engine():
    names = ENGINES["vllm"].metrics
    assert set(USAGE) == set(names.values["kv_cache_usage"]) and names.cache_info == CONFIG


@pytest.mark.parametrize(
    ("page", "reading"),
    [
        ("", None),
        ("vllm:kv_cache_usage_perc nan", None),
        ("vllm:kv_cache_usage_perc x", None),
        ("vllm:kv_cache_usage_perc_total 0.5", None),
        ('vllm:gpu_cache_usage_perc{engine="0"} 0.5', KvCache(0.5)),
        (
            '# HELP vllm:kv_cache_usage_perc x\nvllm:kv_cache_usage_perc{e="0"} 0.5\n'
            'vllm:kv_cache_usage_perc{e="1"} 1e-1\nvllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1.0\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="20"} 1.0\n',
            KvCache(0.3, 480),
        ),
        (
            'vllm:kv_cache_usage_perc 0.5\nvllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0',
            KvCache(0.5),
        ),
    ],
)
def test_readings(page, reading):
    assert read_kv_cache(page) == reading


# -- sessions that wait


@pytest.fixture
async def busy(tmp_path, replica: TokenReplica):
    """A host whose replica is full, with the reply of session ``first`` in flight; ``first`` is its task."""
    host = SessionHost(tmp_path)
    host.urls, host.rules, host.most_waiting = [replica.url], RULES, 2
    await host.start()
    replica.kv_usage = 0.95
    replica.gate.clear()
    host.first = asyncio.ensure_future(host.chat(await host.open("first"), USER))
    await replica.begun.wait()
    yield host
    replica.gate.set()
    host.first.cancel()
    await host.stop()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def queued(host: SessionHost, number: int) -> None:
    """Wait until so many requests are in the admission queue."""
    await until(lambda: host.store.facts()["queued"] == number)


async def test_a_request_waits_for_room_and_its_wait_is_counted(busy, replica):
    second = asyncio.ensure_future(busy.chat(await busy.open("second"), USER))
    await queued(busy, 1)
    assert replica.prompts == []
    replica.kv_usage = 0.1
    await queued(busy, 0)
    replica.gate.set()
    assert [(await each)[0] for each in (busy.first, second)] == [200, 200]
    counters = busy.store.session("second").counters
    assert counters.proxy_scheduler_num_waits == 1 and counters.proxy_scheduler_wait_sec > 0
    assert counters.proxy_model_inference_sec >= 0
    assert busy.store.session("first").counters.proxy_scheduler_num_waits == 0
    assert busy.store.facts()["counters"].proxy_scheduler_num_waits == 1


async def test_the_host_remembers_of_ended_sessions_nothing(busy, replica):
    scheduler = busy.store._scheduler
    assert scheduler.known == {"first"}
    replica.gate.set()
    await busy.first
    await busy.finish("first")
    assert not scheduler.known


async def test_the_end_of_the_last_reply_lets_the_next_one_begin_although_the_cache_stays_full(busy, replica):
    second = asyncio.ensure_future(busy.chat(await busy.open("second"), USER))
    await queued(busy, 1)
    replica.gate.set()
    assert [(await each)[0] for each in (busy.first, second)] == [200, 200]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_full_queue_is_429_with_a_time_to_come_back(busy, api):
    waiting = [asyncio.ensure_future(busy.chat(await busy.open(f"s{n}"), USER)) for n in range(2)]
    await queued(busy, 2)
    opened = await busy.open("third")
    path = "chat/completions" if api == "openai" else "messages"
    body = {"model": "m", "max_tokens": 5, "messages": [USER]}
    headers = {"x-api-key": opened["key"]}
    async with busy.http.post(f"{opened['openai_url']}/{path}", json=body, headers=headers) as response:
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        error = (await response.json())["error"]
    assert error["type"] == ("rate_limit_exceeded" if api == "openai" else "rate_limit_error")
    for each in waiting:
        each.cancel()


async def test_a_wait_ends_with_the_trials_time_and_leaves_the_queue(busy):
    opened = await busy.open("second", deadline=time.time() + 0.3)
    status, body = await busy.chat(opened, USER)
    assert status == 410 and "is over" in body["error"]["message"]
    await queued(busy, 0)


async def test_a_session_that_ends_leaves_the_queue(busy):
    asked = asyncio.ensure_future(busy.chat(await busy.open("second"), USER))
    await queued(busy, 1)
    await busy.finish("second")
    assert (await asked)[0] == 410
    await queued(busy, 0)


async def test_requests_that_wait_for_a_replica_that_is_lost_end_with_503(busy, replica, monkeypatch):
    monkeypatch.setattr("liverl.sessions.drafting.PATIENCE_S", 0.2)
    asked = asyncio.ensure_future(busy.chat(await busy.open("second"), USER))
    await queued(busy, 1)
    await busy.control("PUT", "/backends", [])
    replica.gate.set()
    await replica.stop()
    status, body = await asked
    assert status == 503 and "no replica" in body["error"]["message"]


async def test_a_sub_agents_request_passes_beside_the_reply_of_its_session(busy, replica):
    opened = await busy.open("first")
    asked = asyncio.ensure_future(busy.chat(opened, {"role": "system", "content": "Other."}, USER))
    await until(lambda: busy.store.session("first").waiting == 2)
    replica.gate.set()
    assert (await asked)[0] == 200
    assert busy.store.session("first").counters.proxy_scheduler_num_waits == 0


async def test_without_metrics_no_request_waits(busy, replica):
    replica.kv_usage = None
    await until(lambda: True)
    asked = asyncio.ensure_future(busy.chat(await busy.open("second"), USER))
    replica.gate.set()
    assert (await asked)[0] == 200


async def test_replicas_that_require_the_runs_token_are_asked_with_it(tmp_path: Path) -> None:
    asked: list[str | None] = []

    async def metrics(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        if asked[-1] != "Bearer tok":
            return web.Response(status=401)
        return web.Response(text="vllm:kv_cache_usage_perc 0.5\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    server = TestServer(app)
    await server.start_server()
    try:
        async with aiohttp.ClientSession() as http:
            for token, usage in (("tok", 0.5), (None, None), ("other", None)):
                replicas = ReplicaList(http, token)
                replicas.put([Replica(str(server.make_url("")), "m")])
                reading = await replicas.kv_cache(await replicas.pick("s", (), 1.0), 5.0)
                assert (reading.usage if reading is not None else None) == usage
    finally:
        await server.close()
    assert asked == ["Bearer tok", None, "Bearer other"]


async def test_a_request_that_waits_lets_others_run_until_one_of_them_wakes_it() -> None:
    readings = 0

    async def read(_engine: Any) -> KvCache:
        nonlocal readings
        readings += 1
        return FULL

    scheduler, engine, admitted = Scheduler(RULES, 3600.0, read), ReplicaList, asyncio.Event()

    async def second() -> float:
        async with scheduler.place(engine, SampleRequest("second", 0, 10), 5.0) as waited:
            admitted.set()
            return waited

    async with scheduler.place(engine, SampleRequest("first", 0, 10), 5.0) as waited:
        assert waited == 0.0
        waiting = asyncio.ensure_future(second())
        for _ in range(5):
            await asyncio.sleep(0)
        assert scheduler.waiting == 1 and not admitted.is_set()
    assert await waiting > 0 and scheduler.waiting == 0
    assert readings == 1, "the first reading still holds"
