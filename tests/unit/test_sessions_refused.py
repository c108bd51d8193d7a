"""Requests that a session refuses for what they ask: counted, named, and told where a person looks for them."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest
from kit.session_api import APIS, TOOLS
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.agents.endings import refused
from liverl.logs.record import Record
from liverl.observe.live_logs.responses import response_of
from liverl.observe.trials.session_facts import document_session
from liverl.sessions.access_log import access_logger
from liverl.sessions.counters import LONGEST, MOST_REFUSED, OTHERS, Counters, together
from liverl.sessions.messages import Api
from liverl.sessions.server import AgentRoutes
from liverl.sessions.service import http_server
from liverl.sessions.session import Session
from liverl.sessions.trial_log import ROWS

USER = {"role": "user", "content": "go"}
PATHS: dict[Api, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
FORCED: dict[Api, Any] = {"openai": "required", "anthropic": {"type": "any"}}


def script(_before: str, turn: int) -> str:
    return f"Reply {turn}."


async def post(
    host: SessionHost, opened: dict[str, Any], path: str, body: Any, key: str | None = None
) -> tuple[int, str]:
    """The status, and what the client is told."""
    url = opened["anthropic_url"] + path
    headers = {"x-api-key": opened["key"] if key is None else key}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with host.http.post(url, data=data, headers=headers) as response:
        said = await response.json()
        return response.status, said["error"]["message"] if response.status >= 400 else ""


def session_of(host: SessionHost) -> Session:
    return host.store.session("task-00000001")


WRONG = [
    ({"messages": [USER], "n": 2}, "n", 400),
    ({"messages": [USER], "echo": True}, "echo", 400),
    ({"messages": [USER], "extra_body": {"top_logprobs": 2}}, "extra_body.top_logprobs", 400),
    ({"messages": []}, "messages", 400),
    ({"messages": [USER, {"role": "judge", "content": "x"}]}, "messages[].role", 400),
    ({"messages": [USER], "model": "gpt-judge-5"}, "model", 404),
    (b"{", "body", 400),
    (b"[]", "body", 400),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("body", "name", "status"), WRONG, ids=[name for _, name, _ in WRONG])
async def test_what_a_session_refuses_of_a_request_is_counted_by_its_field(
    host: SessionHost, replica: TokenReplica, api: Api, body: Any, name: str, status: int
) -> None:
    opened = await host.open()
    if isinstance(body, dict):
        body = {"model": "m", "max_tokens": 9, **body}
    got, words = await post(host, opened, PATHS[api], body)
    counters = session_of(host).counters
    assert (got, counters.num_failed, counters.refused) == (status, 1, {name: 1})
    assert counters.refusal == words != "" and not replica.prompts


@pytest.mark.parametrize("api", APIS)
async def test_a_forced_call_and_a_form_are_refused_by_name(host: SessionHost, api: Api) -> None:
    opened = await host.open()
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [USER],
        "tools": TOOLS[api],
        "tool_choice": FORCED[api],
    }
    for _ in range(2):
        assert (await post(host, opened, PATHS[api], body))[0] == 400
    counters = session_of(host).counters
    assert (counters.num_failed, counters.refused) == (2, {"tool_choice": 2})


async def test_a_wrong_key_and_a_path_that_is_not_served_are_refusals_too(host: SessionHost) -> None:
    opened = await host.open()
    body = {"model": "m", "messages": [USER]}
    assert (await post(host, opened, PATHS["openai"], body, key="of-somebody-else"))[0] == 401
    status, words = await post(host, opened, "/v1/responses", body)
    assert status == 404 and "POST /v1/messages" in words
    counters = session_of(host).counters
    assert (counters.num_failed, counters.refused, counters.refusal) == (2, {"key": 1, "path": 1}, words)
    async with host.http.get(
        f"{opened['anthropic_url']}/v1/me", headers={"x-api-key": opened["key"]}
    ) as asked:
        assert asked.status == 404
    assert session_of(host).counters.num_failed == 2, "who asks what there is wants no reply"


async def test_tokens_that_are_only_counted_are_no_request_for_a_reply(host: SessionHost) -> None:
    opened = await host.open()
    body = {"model": "gpt-judge-5", "messages": [USER]}
    assert (await post(host, opened, "/v1/messages/count_tokens", body))[0] == 404
    assert session_of(host).counters == Counters()


async def test_what_the_engine_refuses_is_named_with_its_words(
    host: SessionHost, replica: TokenReplica
) -> None:
    opened = await host.open()
    replica.failures = [400]
    status, words = await post(host, opened, PATHS["openai"], {"model": "m", "messages": [USER]})
    counters = session_of(host).counters
    assert status == 400 and "scripted 400" in words
    assert (counters.num_failed, counters.refused, counters.refusal) == (1, {"engine": 1}, words)


async def test_refusals_outlive_the_service(host: SessionHost) -> None:
    opened = await host.open()
    await post(host, opened, PATHS["openai"], {"model": "m", "messages": [USER], "n": 2})
    await host.stop()
    await host.start()
    assert session_of(host).counters.refused == {"n": 1}


async def test_a_trial_says_what_was_refused(host: SessionHost) -> None:
    opened = await host.open()
    await post(host, opened, PATHS["openai"], {"model": "m", "messages": [USER], "n": 2})
    await host.finish()
    file = host.folder / "trials" / "task-00000001" / ROWS
    facts = document_session(json.loads(file.read_text()))
    assert facts is not None and facts.refused == ("n",) and facts.refusal.startswith("n is not supported")


def test_names_do_not_grow_without_end() -> None:
    counters = Counters()
    first = [counters.note_refused(f"messages.{index}.content", "x") for index in range(40)]
    assert counters.refused == {"messages[].content": 40} and first == [True, *[False] * 39]
    for index in range(40):
        counters.note_refused(f"guided_{index}", "y" * 999)
    assert len(counters.refused) == MOST_REFUSED + 1 and counters.refused[OTHERS] == 41 - MOST_REFUSED
    assert counters.refusal == "y" * (LONGEST - 1) + "…"


def test_of_several_sessions_the_fields_add_up_and_no_ones_words_stand_for_all() -> None:
    one, other = Counters(refused={"n": 2}, refusal="a"), Counters(refused={"n": 1, "echo": 1}, refusal="b")
    total = together([one, other])
    assert (total.refused, total.refusal) == ({"n": 3, "echo": 1}, "")


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        (Counters(), ""),
        (Counters(num_failed=1), ""),
        (Counters(refused={"n": 1}, refusal="no"), "no (its session refused 1 request of the agent)"),
        (
            Counters(refused={"n": 1, "echo": 2}, refusal="no"),
            "no (its session refused 3 requests of the agent, the last one with these words)",
        ),
    ],
)
def test_refusals_in_words(counters: Counters, words: str) -> None:
    assert refused(msgspec.to_builtins(counters)) == words


# -- its line in the log


async def test_the_log_says_why_on_one_line_and_who_reads_it_finds_it(
    host: SessionHost, caplog: pytest.LogCaptureFixture
) -> None:
    opened = await host.open()
    server = http_server((routes := AgentRoutes(host.store)).app(1 << 20), routes.gate, 1 << 20)
    port = await server.listen("127.0.0.1")
    caplog.set_level(logging.INFO, access_logger.name)
    try:
        url = f"http://127.0.0.1:{port}/sess/task-00000001"
        for body in ({"n": 2}, {"messages": [{"role": "a\n\x1b[31m" + "b" * 999}]}):
            whole = {"model": "m", "messages": [USER], **body}
            assert (await post(host, {**opened, "anthropic_url": url}, PATHS["openai"], whole))[0] == 400
    finally:
        await server.close()
    first, second = (record.getMessage() for record in caplog.records if record.name == access_logger.name)
    why = "n is not supported: send several requests instead: each is a sample of its own"
    assert first.endswith(f" s: {why}")
    assert all(line.isprintable() and len(line) < 500 for line in (first, second))
    found = response_of(Record(0, 0, f"2026-11-27 09:00:01,861 INFO liverl-sessions: {first}"))
    assert found is not None and (found.status, found.message) == (400, why)
