"""A trial through a session: opened with the trainer's key, ended with the tokens of each reply."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from liverl.agents.loop import Conversation, Reply, TrialFailed, read_reply
from liverl.embedded.trainer.carriers import ThroughProxy, ThroughSessions, sampled
from liverl.sessions.client import ServiceSessions
from liverl.sessions.segments import Row


def row(kind: str, prompt: int, behind: list[int], mask: list[int]) -> Row:
    ids = [*range(900, 900 + prompt), *behind]
    return Row(
        kind, prompt, ids, mask, [-float(token) * bit for token, bit in zip(behind, mask, strict=True)]
    )  # type: ignore[arg-type]


MAIN = row("main", 2, [1, 2, 70, 71, 3, 72, 4, 5], [1, 1, 0, 0, 1, 0, 1, 1])


def reply() -> Reply:
    return Reply({"role": "assistant"}, "stop", [], [], 2)


def test_each_run_of_sampled_tokens_is_a_reply() -> None:
    assert sampled([MAIN]) == [([1, 2], [-1.0, -2.0]), ([3], [-3.0]), ([4, 5], [-4.0, -5.0])]
    assert sampled([]) == []


def test_replies_of_a_changed_history_follow_and_those_of_sub_agents_do_not_count() -> None:
    rows = [row("sub", 1, [9], [1]), MAIN, row("rewrite", 3, [6], [1])]
    assert [ids for ids, _ in sampled(rows)] == [[1, 2], [3], [4, 5], [6]]


OPENED = {
    "id": "t",
    "openai_url": "http://h:1/sess/t/v1",
    "anthropic_url": "http://h:1/sess/t",
    "key": "sk-session",
    "finished": False,
}


class Sessions:
    """A trainer's part that answers what a test says. ``statuses``: of the next requests; 200 after them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.statuses: list[int] = []
        self.rows: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read() or b"null")
        self.asked.append((request.path, request.headers["Authorization"], body))
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            return web.json_response({"error": {"message": "no"}}, status=status)
        if request.path == "/sessions":
            return web.json_response(OPENED, status=201)
        return web.json_response({"rows": self.rows})


class Through:
    """Sends every request to the fake server, whatever its host."""

    def __init__(self, http: aiohttp.ClientSession, server: TestServer) -> None:
        self._http, self._server = http, server

    def post(self, url: str, **more: Any) -> Any:
        return self._http.post(self._server.make_url(url.removeprefix("http://sessions")), **more)


@pytest.fixture
async def sessions() -> AsyncIterator[tuple[Sessions, ThroughSessions]]:
    fake = Sessions()
    app = web.Application()
    app.router.add_post("/{path:.*}", fake.answer)
    server = TestServer(app)
    await server.start_server()
    async with aiohttp.ClientSession() as http:
        yield fake, ThroughSessions(ServiceSessions(Through(http, server), "sk-control"))  # type: ignore[arg-type]
    await server.close()


async def test_a_trial_gets_its_own_address_and_key(sessions: Any, tmp_path: Path) -> None:
    fake, through = sessions
    fake.statuses = [503, 500]  # it is being restarted
    line = await through.begin("t", tmp_path, 30.0)
    assert line.chat_url == "http://h:1/sess/t/v1/chat/completions"
    assert line.headers["Authorization"] == "Bearer sk-session" and not line.tokens
    assert [(path, key) for path, key, _ in fake.asked] == [("/sessions", "Bearer sk-control")] * 3
    for _, _, body in fake.asked:
        limits = body.pop("limits")
        assert body == {"id": "t", "trial_dir": str(tmp_path)}
        assert limits["decides"] == "client" and 20 < limits["seconds"] <= 30
        assert limits["deadline"] == pytest.approx(time.time() + 30, abs=10), (
            "for a service of an earlier version"
        )


async def test_the_end_gives_each_reply_its_tokens(sessions: Any) -> None:
    fake, through = sessions
    fake.rows = [{name: getattr(MAIN, name) for name in MAIN.__struct_fields__ if name != "policy_versions"}]
    conversation = Conversation([], [reply(), reply(), reply()])
    await through.end("t", conversation)
    assert [each.token_ids for each in conversation.replies] == [[1, 2], [3], [4, 5]]
    assert conversation.replies[2].logprobs == [-4.0, -5.0]
    for replies in ([reply()], [reply()] * 4):
        with pytest.raises(TrialFailed, match="3 sampled replies, the agent got"):
            await through.end("t", Conversation([], replies))


async def test_a_refusal_is_not_tried_again_and_waiting_has_an_end(sessions: Any, tmp_path: Path) -> None:
    fake, through = sessions
    fake.statuses = [409]
    with pytest.raises(TrialFailed, match="HTTP 409"):
        await through.begin("t", tmp_path, 30.0)
    assert len(fake.asked) == 1
    fake.statuses = [503] * 99
    with pytest.raises(TrialFailed, match="did not answer in time; last: HTTP 503"):
        await through.begin("t", tmp_path, 0.3)


async def test_through_the_proxy_replies_come_with_their_tokens(tmp_path: Path) -> None:
    line = await ThroughProxy("http://h/v1/chat/completions", "sk-run").begin("t", tmp_path, 0.0)
    assert line.tokens and line.headers["x-litellm-routing-key"] == "t"


def test_a_reply_without_tokens_is_read_only_where_a_session_has_them() -> None:
    message = {"role": "assistant", "content": "hi"}
    body = json.dumps({"choices": [{"message": message}], "usage": {"prompt_tokens": 3}}).encode()
    assert read_reply(body, tokens=False).token_ids == []
    with pytest.raises(TrialFailed, match="0 token ids"):
        read_reply(body)
