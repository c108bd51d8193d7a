"""Which process has a session, and what the reports of several processes say together."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.http_parser import HttpRequestParser
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from liverl.model import SessionsStatus
from liverl.sessions import shares
from liverl.sessions.counters import Counters, together
from liverl.sessions.merging import LastOnes, Totals, differences, merged_facts, merged_report
from liverl.sessions.replica_file import Replica
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.server import AgentRoutes
from liverl.sessions.shares import Share, owner, session_in, session_in_head
from liverl.sessions.store import Store
from liverl.util.cpu_limits import CpuLimits

NAMES = [f"task-{n:08x}" for n in range(4000)]


def as_the_server_reads(head: bytes) -> str | None:
    """The session of a head by aiohttp's own parser and the rule of the gate; None if that refuses the head."""

    async def parse() -> str | None:
        protocol: Any = SimpleNamespace(_upgraded=False)
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(protocol, loop, 2**16, max_line_size=8190, max_field_size=8190)
        try:
            messages, _, _ = parser.feed_data(head)
        except Exception:
            return None
        if not messages:
            return None
        url = messages[0][0].url
        return session_in((url.relative() if url.absolute else url).parts)

    return asyncio.run(parse())


HEADS = [
    "GET /sess/a/v1/models HTTP/1.1",
    "POST /%73ess/a%2Db/v1/messages?beta=true HTTP/1.1",
    "POST /sess/a%2Fb/v1 HTTP/1.1",
    "POST //sess/a/v1 HTTP/1.1",
    "POST /sess//v1 HTTP/1.1",
    "POST /sess HTTP/1.1",
    "POST /sess/a HTTP/1.0",
    "POST /sess/%zz/v1 HTTP/1.1",
    "POST /sess/%FF/v1 HTTP/1.1",
    "POST /sess/a#b/v1 HTTP/1.1",
    "POST /sess/a?x=/sess/b/v1 HTTP/1.1",
    "POST http://host:1/sess/a/v1 HTTP/1.1",
    "POST http://host:1 HTTP/1.1",
    "POST http:///sess/a HTTP/1.1",
    "POST /x/../sess/a/v1 HTTP/1.1",
    "POST /SESS/a/v1 HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "CONNECT host:1 HTTP/1.1",
    "CONNECT /sess/a/v1 HTTP/1.1",
    "GET /health HTTP/1.1",
    "GET /sess/é/v1 HTTP/1.1",
    "GET  /sess/a/v1 HTTP/1.1",
    "GET /sess/a/v1",
    "GET /sess/a b/v1 HTTP/1.1",
    "\r\nGET /sess/a/v1 HTTP/1.1",
]


@pytest.mark.parametrize("line", HEADS)
def test_the_session_of_a_head_is_the_one_that_the_server_reads(line: str) -> None:
    head = f"{line}\r\nHost: x\r\n\r\n".encode()
    read = as_the_server_reads(head)
    if read is not None:
        assert session_in_head(head) == read


@given(st.text("/s%73esab.?#:0 é", max_size=30))
def test_the_same_for_odd_targets(target: str) -> None:
    head = f"POST /sess/{target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    read = as_the_server_reads(head)
    if read is not None:
        assert session_in_head(head) == read


@pytest.mark.parametrize("head", [b"", b"\x16\x03\x01", b"GET", b"\n\n", b"GET \xff\xfe HTTP/1.1\r\n", b"  "])
def test_what_is_no_http_has_no_session(head: bytes) -> None:
    assert session_in_head(head) is None


def test_a_session_stays_with_its_process_whatever_computes_it() -> None:
    """These numbers are in no file, but two processes of one service must agree on them."""
    assert [owner(name, 4) for name in ("task-00000001", "a", "é", "\udcff")] == [2, 3, 2, 3]
    assert owner("anything", 1) == 0
    counts = [sum(Share(k, 4).has(name) for name in NAMES) for k in range(4)]
    assert sum(counts) == 4000 and min(counts) > 900


@pytest.mark.parametrize(
    ("asked", "cpus", "count"),
    [("auto", 1, 1), ("auto", 15, 1), ("auto", 16, 2), ("auto", 31, 3), ("auto", 256, 4), ("auto", 0.5, 1),
     ("auto", 15.9, 1), ("auto", 16.0, 2), (3, 1, 3)],
)  # fmt: skip
def test_how_many_processes(asked: Any, cpus: float, count: int) -> None:
    assert shares.processes(asked, cpus) == count


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (CpuLimits(machine=64, affinity=64), 4),
        (CpuLimits(machine=64, affinity=16), 2),  # a CPU set
        (CpuLimits(machine=64, affinity=64, quota=24.0), 3),
        (CpuLimits(machine=64, affinity=32, quota=4.0), 1),
        (CpuLimits(machine=64, affinity=64, slurm=16), 2),
    ],
)
def test_auto_counts_the_cpus_that_may_be_used(
    limits: CpuLimits, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "cpu_limits", lambda env: limits)
    assert shares.processes("auto") == count
    assert shares.processes(7) == 7


def facts(**changes: Any) -> dict[str, Any]:
    clients = {"connections": 3, "without_key": 1, "peer": "a", "of_peer": 1, "dropped": 0, "dropped_peer": "",
               "dropped_of_peer": 0, "turned_away": 0, "descriptors": 10, "descriptor_limit": 100}  # fmt: skip
    told = {
        "error": None, "config_sha": "x", "in_flight": 1, "backends": ["r1"], "open": 2, "finished": 3,
        "waiting": 1, "queued": 0, "silent": [], "counters": {"num_calls": 5}, "last": {}, "replicas": 2,
        "placed": {"r1": 2}, "tokenizers": [], "clients": clients,
    }  # fmt: skip
    return {**told, **changes}


def silent(name: str, since: float, begun: bool = True) -> dict[str, Any]:
    return {"id": name, "since": since, "at": None, "begun": begun}


def route(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "route": "sessions", "why": "", "differs": "", "prompts": 4, "compared": 1,
            "doubted": 0, "ended": 0, **changes}  # fmt: skip


DIFFERS = route(route="replicas", why="w", differs="token 3", doubted=2)


@pytest.mark.parametrize(
    ("one", "other", "name", "merged"),
    [
        ({}, {}, "open", 4),
        ({}, {}, "in_flight", 2),
        ({}, {}, "replicas", 2),
        ({}, {"error": "bad"}, "error", "bad"),
        ({}, {}, "config_sha", "x"),
        ({"config_sha": "y"}, {"config_sha": "y"}, "config_sha", "y"),
        ({"config_sha": "y"}, {}, "config_sha", "before"),
        ({}, {"backends": ["r2", "r1"]}, "backends", ["r1", "r2"]),
        ({}, {"placed": {"r1": 1, "r2": 5}}, "placed", {"r1": 3, "r2": 5}),
        (
            {"counters": {"num_calls": 1, "min_global_steps": 7}},
            {"counters": {"overridden": {"n": 2}, "min_global_steps": 3}},
            "counters",
            {"num_calls": 1, "min_global_steps": 3, "overridden": {"n": 2}},
        ),
        (
            {"silent": [silent("b", 9.0), silent("n", 1.0, begun=False)]},
            {"silent": [silent("a", 5.0)]},
            "silent",
            [silent("a", 5.0), silent("b", 9.0), silent("n", 1.0, begun=False)],
        ),
        ({"tokenizers": [route()]}, {"tokenizers": [route()]}, "tokenizers", [route(prompts=8, compared=2)]),
        (
            {"tokenizers": [route()]},
            {"tokenizers": [DIFFERS]},
            "tokenizers",
            [route(route="replicas", why="w", prompts=8, compared=2, doubted=2)],
        ),
        (
            {"tokenizers": [DIFFERS]},
            {"tokenizers": [DIFFERS]},
            "tokenizers",
            [{**DIFFERS, "prompts": 8, "compared": 2, "doubted": 4}],
        ),
    ],
)
def test_two_reports_are_one(one: dict[str, Any], other: dict[str, Any], name: str, merged: Any) -> None:
    report = merged_report([facts(**one), facts(**other)], {"config_sha": "before"})
    report["counters"] = {name: value for name, value in report["counters"].items() if value}
    assert report[name] == merged
    msgspec.convert({**report, "counters": {}, "silent": []}, SessionsStatus)


def test_one_report_alone_stays_as_it_is() -> None:
    counters = msgspec.to_builtins(together([Counters(num_calls=5)]))
    alone = facts(silent=[silent("a", 5.0)], tokenizers=[route()], last={"poisoned": "t"}, counters=counters)
    assert merged_report([alone], {}) == alone
    assert merged_facts([alone])["counters"] == alone["counters"]
    assert set(merged_facts([alone])["counters"]) <= set(Counters.__struct_fields__)


def test_connections_are_added_up_and_the_fullest_process_is_shown() -> None:
    one, other = facts()["clients"], {**facts()["clients"], "descriptors": 95, "of_peer": 4}
    report = merged_report([facts(clients=one), facts(clients=other)], {})
    clients = report["clients"]
    assert (clients["connections"], clients["peer"], clients["of_peer"]) == (6, "a", 5)
    assert (clients["descriptors"], clients["descriptor_limit"]) == (95, 100)


def test_the_last_trial_is_that_of_the_process_whose_counter_grew_last() -> None:
    ones = LastOnes()

    def take(number: int, count: int, trial: str) -> str:
        report = {"counters": {"poisoned": count}, "last": {"poisoned": trial}}
        return ones.take(number, report)["poisoned"]

    assert take(0, 1, "a") == "a"
    assert take(1, 3, "b") == "b"
    assert take(0, 1, "a") == "b"
    assert take(0, 2, "c") == "c"
    assert take(0, 0, "old") == "c"
    assert take(0, 2, "old") == "c", "its next process has read the journals again"
    assert take(0, 3, "new") == "new"
    assert ones.take(1, {"counters": {}, "last": {"parse_failed": "a"}})["parse_failed"] == "a"


def _said(calls: int, failed: int, ignored: int, prompts: int | None, dropped: int) -> dict[str, Any]:
    route = {"model": "m", "route": "checking", "compared": 0, "doubted": 0, "ended": 0}
    return {
        "open": calls,
        "counters": {
            "num_calls": calls,
            "num_failed": failed,
            "ignored": {"n": ignored},
            "min_global_steps": 3,
        },
        "tokenizers": [] if prompts is None else [{**route, "prompts": prompts}],
        "clients": {"connections": 1, "dropped": dropped, "turned_away": 0},
    }


@pytest.mark.parametrize(
    ("start", "said", "wanted"),
    [
        (0, (5, 2, 1, 7, 4), (5, 2, 1, 7, 4)),
        (1, (5, 0, 0, 0, 0), (5, 2, 1, 7, 4)),  # the journals have its turns
        (1, (6, 1, 1, 2, 1), (6, 3, 2, 9, 5)),
        (2, (7, 0, 0, None, 0), (7, 3, 2, None, 5)),  # the journals may have more than it had said
        (2, (7, 0, 0, 1, 0), (7, 3, 2, 10, 5)),
        (2, (8, 4, 0, 1, 2), (8, 7, 2, 10, 7)),
    ],
)
def test_no_counter_steps_back_where_a_process_dies(start: int, said: Any, wanted: Any) -> None:
    rows = [(0, (5, 2, 1, 7, 4)), (1, (5, 0, 0, 0, 0)), (1, (6, 1, 1, 2, 1)), (2, (7, 0, 0, None, 0)),
            (2, (7, 0, 0, 1, 0)), (2, (8, 4, 0, 1, 2))]  # fmt: skip
    totals = Totals()
    totals.take(1, 0, _said(9, 9, 9, 9, 9))  # another process
    for row in rows[: rows.index((start, said)) + 1]:
        found = totals.take(0, row[0], _said(*row[1]))
    assert found == {**_said(*wanted), "open": said[0]}
    assert totals.take(1, 0, _said(9, 9, 9, 9, 9)) == _said(9, 9, 9, 9, 9)


def test_what_one_process_has_seen_differ_is_found() -> None:
    assert differences([facts(), facts(tokenizers=[route()])]) == {}
    assert differences([facts(tokenizers=[DIFFERS]), facts()]) == {"m": "token 3"}


async def test_a_request_for_the_session_of_another_process_is_not_one_for_no_session(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as http:
        routes = AgentRoutes(Store(tmp_path, (), ReplicaList(http), share=Share(0, 2)))
        ours, theirs = (next(n for n in NAMES if owner(n, 2) == k) for k in (0, 1))
        statuses = {}
        for name in (ours, theirs):
            request = make_mocked_request("POST", f"/sess/{name}/v1/messages")
            answer = routes.gate(request)
            assert isinstance(answer, web.Response)
            statuses[name] = answer.status
        assert statuses == {ours: 404, theirs: 503}


@pytest.mark.parametrize(("of", "sessions", "most"), [(1, 64, 1), (4, 64, 1), (4, 256, 4), (3, 6, 1)])
async def test_processes_that_know_their_own_sessions_only_use_all_replicas_alike(
    of: int, sessions: int, most: int
) -> None:
    """``most``: sessions of one replica, if each process has as many of them as the others."""
    placed: Counter[str] = Counter()
    async with aiohttp.ClientSession() as http:
        for number in range(of):
            replicas = ReplicaList(http, share=Share(number, of))
            replicas.put([Replica(f"http://r{n}", "m") for n in range(64)])
            for name in range(sessions // of):
                await replicas.pick(f"{number}-{name}", (), 1.0)
            placed.update(replicas.facts()["placed"])
    assert max(placed.values()) == most
